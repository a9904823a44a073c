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
		err    error
		want   Error
		outage bool
	}{
		{reply("LOADING Redis is loading sesame"), Error{Kind: KindLoading, Detail: "LOADING"}, true},
		{reply("BUSY Redis is busy running a script."), Error{Kind: KindLoading, Detail: "BUSY"}, true},
		{reply("MISCONF Redis is configured to save sesame"), Error{Kind: KindReadOnly, Detail: "MISCONF"}, true},
		{reply("MOVED 3999 sesame:6381"), Error{Kind: KindNoMaster, Detail: "MOVED"}, true},
		{reply("ASK 3999 sesame:6381"), Error{Kind: KindNoMaster, Detail: "ASK"}, true},
		{reply("TRYAGAIN sesame"), Error{Kind: KindNoMaster, Detail: "TRYAGAIN"}, true},
		{reply("ERR max number of clients reached"), Error{Kind: KindProtocol, Detail: "ERR"}, true},
		{fmt.Errorf("failed to authenticate: %w", reply("WRONGPASS sesame")), Error{Kind: KindAuth, Detail: "WRONGPASS"}, true},
		{reply("WRONGTYPE sesame"), Error{Kind: KindReply, Detail: "WRONGTYPE"}, false},
		{reply("WRONGTYPE sesame script: 5e5a, on @user_script:12."), Error{Kind: KindReply, Detail: "WRONGTYPE"}, false},
		{reply("NOSCRIPT No matching script sesame"), Error{Kind: KindReply, Detail: "NOSCRIPT"}, false},
		{reply("OOM command not allowed sesame script: 5e5a, on @user_script:14."), Error{Kind: KindReadOnly, Detail: "OOM"}, true},
		{reply("sesame is wrong"), Error{Kind: KindProtocol, Detail: "not a Redis"}, true},
		{reply(""), Error{Kind: KindProtocol, Detail: "not a Redis"}, true},
		{errors.Join(&net.DNSError{Name: "sesame", IsNotFound: true}), Error{Kind: KindConnect, Detail: "host not found"}, true},
		{&net.DNSError{Name: "sesame", IsTimeout: true}, Error{Kind: KindTimeout, Detail: ""}, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Error{Kind: KindConnect, Detail: "refused"}, true},
		{os.NewSyscallError("read", syscall.ECONNRESET), Error{Kind: KindConnect, Detail: ""}, true},
		{io.EOF, Error{Kind: KindConnect, Detail: ""}, true},
		{redis.ErrClosed, Error{Kind: KindConnect, Detail: ""}, true},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), Error{Kind: KindTimeout, Detail: ""}, true},
		{tlsError{os.ErrDeadlineExceeded}, Error{Kind: KindTimeout, Detail: ""}, true},
		{tlsError{errors.New("sesame")}, Error{Kind: KindTLS, Detail: ""}, true},
		{errors.Join(errNoMaster, io.EOF), Error{Kind: KindNoMaster, Detail: "no master of that name"}, true},
		{errors.New(`redis: can't parse "sesame"`), Error{Kind: KindProtocol, Detail: "not a Redis"}, true},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			got := classify(test.err)
			if *got != test.want || got.outage() != test.outage {
				t.Errorf("got %v, outage %v; want %v, outage %v", got, got.outage(), &test.want, test.outage)
			}
			if strings.Contains(got.Error(), "sesame") {
				t.Errorf("%v says too much", got)
			}
		})
	}
}
