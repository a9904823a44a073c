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
		{reply("LOADING Redis is loading sesame"), Error{KindLoading, "LOADING"}, true},
		{reply("BUSY Redis is busy running a script."), Error{KindLoading, "BUSY"}, true},
		{reply("MISCONF Redis is configured to save sesame"), Error{KindReadOnly, "MISCONF"}, true},
		{reply("MOVED 3999 sesame:6381"), Error{KindNoMaster, "MOVED"}, true},
		{reply("ASK 3999 sesame:6381"), Error{KindNoMaster, "ASK"}, true},
		{reply("TRYAGAIN sesame"), Error{KindNoMaster, "TRYAGAIN"}, true},
		{reply("ERR max number of clients reached"), Error{KindProtocol, "ERR"}, true},
		{fmt.Errorf("failed to authenticate: %w", reply("WRONGPASS sesame")), Error{KindAuth, "WRONGPASS"}, true},
		{reply("WRONGTYPE sesame"), Error{KindReply, "WRONGTYPE"}, false},
		{reply("WRONGTYPE sesame script: 5e5a, on @user_script:12."), Error{KindReply, "WRONGTYPE"}, false},
		{reply("NOSCRIPT No matching script sesame"), Error{KindReply, "NOSCRIPT"}, false},
		{reply("OOM command not allowed sesame script: 5e5a, on @user_script:14."), Error{KindReadOnly, "OOM"}, true},
		{reply("sesame is wrong"), Error{KindProtocol, "not a Redis"}, true},
		{reply(""), Error{KindProtocol, "not a Redis"}, true},
		{errors.Join(&net.DNSError{Name: "sesame", IsNotFound: true}), Error{KindConnect, "host not found"}, true},
		{&net.DNSError{Name: "sesame", IsTimeout: true}, Error{KindTimeout, ""}, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Error{KindConnect, "refused"}, true},
		{os.NewSyscallError("read", syscall.ECONNRESET), Error{KindConnect, ""}, true},
		{io.EOF, Error{KindConnect, ""}, true},
		{redis.ErrClosed, Error{KindConnect, ""}, true},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), Error{KindTimeout, ""}, true},
		{tlsError{os.ErrDeadlineExceeded}, Error{KindTimeout, ""}, true},
		{tlsError{errors.New("sesame")}, Error{KindTLS, ""}, true},
		{errors.Join(errNoMaster, io.EOF), Error{KindNoMaster, "no master of that name"}, true},
		{errors.New(`redis: can't parse "sesame"`), Error{KindProtocol, "not a Redis"}, true},
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
