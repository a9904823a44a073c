package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// reply is an error reply as go-redis returns it.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Error
		says verdict // of a script
	}{
		{reply("LOADING Redis is loading sesame"), Error{Kind: KindLoading, Detail: "LOADING"}, isOutage},
		{reply("BUSY Redis is busy running a script."), Error{Kind: KindLoading, Detail: "BUSY"}, isOutage},
		{reply("MISCONF Redis is configured to save sesame"), Error{Kind: KindReadOnly, Detail: "MISCONF"}, isOutage},
		{reply("MOVED 3999 sesame:6381"), Error{Kind: KindNoMaster, Detail: "MOVED"}, isOutage},
		{reply("ASK 3999 sesame:6381"), Error{Kind: KindNoMaster, Detail: "ASK"}, isOutage},
		{reply("TRYAGAIN sesame"), Error{Kind: KindNoMaster, Detail: "TRYAGAIN"}, isOutage},
		{reply("ERR max number of clients reached"), Error{Kind: KindProtocol, Detail: "too many clients"}, isOutage},
		{reply("ERR max number of clients + cluster connections reached"), Error{Kind: KindProtocol, Detail: "too many clients"}, isOutage},
		{fmt.Errorf("failed to initialize connection options: %w", reply("ERR DB index is out of range")), Error{Kind: KindProtocol, Detail: "no such database"}, isOutage},
		{fmt.Errorf("failed to authenticate: %w", reply("ERR AUTH <password> called without any password configured for sesame")),
			Error{Kind: KindProtocol, Detail: "no password expected"}, isOutage},
		{reply("ERR unknown command 'EVALSHA', with args beginning with: sesame"), Error{Kind: KindProtocol, Detail: "ERR"}, isRefusal},
		{reply("ERR The user executing the script can't run this command or subcommand script: sesame"), Error{Kind: KindAuth, Detail: "NOPERM"}, isRefusal},
		{reply("ERR The user executing the script can't access at least one of the keys mentioned in the command script: sesame"), Error{Kind: KindAuth, Detail: "NOPERM"}, isRefusal},
		{reply("NOPERM this user has no permissions to run sesame"), Error{Kind: KindAuth, Detail: "NOPERM"}, isRefusal},
		{sentinelError{reply("NOPERM this user has no permissions to run sesame")}, Error{Kind: KindAuth, Detail: "NOPERM", ofSentinel: true}, isOutage},
		{fmt.Errorf("failed to authenticate: %w", reply("WRONGPASS sesame")), Error{Kind: KindAuth, Detail: "WRONGPASS"}, isOutage},
		{reply("WRONGTYPE sesame"), Error{Kind: KindReply, Detail: "WRONGTYPE"}, isAnswer},
		{reply("WRONGTYPE sesame script: 5e5a, on @user_script:12."), Error{Kind: KindReply, Detail: "WRONGTYPE"}, isAnswer},
		{reply("NOSCRIPT No matching script sesame"), Error{Kind: KindReply, Detail: "NOSCRIPT"}, isAnswer},
		{reply("OOM command not allowed sesame script: 5e5a, on @user_script:14."), Error{Kind: KindReadOnly, Detail: "OOM"}, isOutage},
		{reply("sesame is wrong"), Error{Kind: KindProtocol, Detail: "not a Redis"}, isOutage},
		{reply(""), Error{Kind: KindProtocol, Detail: "not a Redis"}, isOutage},
		{errors.Join(&net.DNSError{Name: "sesame", IsNotFound: true}), Error{Kind: KindConnect, Detail: "host not found"}, isOutage},
		{&net.DNSError{Name: "sesame", IsTimeout: true}, Error{Kind: KindTimeout, Detail: ""}, isOutage},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Error{Kind: KindConnect, Detail: "refused"}, isOutage},
		{os.NewSyscallError("read", syscall.ECONNRESET), Error{Kind: KindConnect, Detail: ""}, isOutage},
		{io.EOF, Error{Kind: KindConnect, Detail: ""}, isOutage},
		{redis.ErrClosed, Error{Kind: KindConnect, Detail: ""}, isOutage},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), Error{Kind: KindTimeout, Detail: ""}, isOutage},
		{tlsError{os.ErrDeadlineExceeded}, Error{Kind: KindTimeout, Detail: ""}, isOutage},
		{tlsError{errors.New("sesame")}, Error{Kind: KindTLS, Detail: ""}, isOutage},
		{errors.Join(errNoMaster, io.EOF), Error{Kind: KindNoMaster, Detail: "no master of that name"}, isOutage},
		{errors.New(`redis: can't parse "sesame"`), Error{Kind: KindProtocol, Detail: "not a Redis"}, isOutage},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			got := classify(test.err)
			if says, _ := got.verdict(runsScript); *got != test.want || says != test.says {
				t.Errorf("got %v, verdict %d; want %v, verdict %d", got, says, &test.want, test.says)
			}
			if strings.Contains(got.Error(), "sesame") {
				t.Errorf("%v says too much", got)
			}
		})
	}
}
