package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/transport"
)

func TestEndOfInputAwaitsAnswers(t *testing.T) {
	arrived, ended := make(chan struct{}), make(chan struct{})
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		close(arrived)
		<-ended
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	_, _ = io.WriteString(h.stdin, `{"jsonrpc":"2.0","id":1,"method":"slow"}`) // no newline
	h.stdin.Close()
	<-arrived
	close(ended)
	rest, err := h.finish()
	if err != nil || len(rest) != 1 || rest[0] != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("got %q and %v", rest, err)
	}
}

func TestEndOfInputEndsListenStreams(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":%s}`, modern(""))
	h.recv()
	h.finishCleanly()
}

// trip is a gateway without a network, for tests with their own clock.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAnswersThatDoNotComeInTimeAreGivenUp: each open request gets an error, one
// that is still held up by the handshake included; streams, notifications and
// cancelled requests get nothing.
func TestAnswersThatDoNotComeInTimeAreGivenUp(t *testing.T) {
	input := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"slow"}`,
		`{"jsonrpc":"2.0","id":"b","method":"slow"}`,
		`{"jsonrpc":"2.0","id":"c","method":"slow"}`,
		`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":` + modern("") + `}`,
		`{"jsonrpc":"2.0","method":"notifications/progress"}`,
		`{"jsonrpc":"2.0","id":2,"method":"initialize"}`,
		`{"jsonrpc":"2.0","id":3,"method":"waits for initialize"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`,
	}, "\n")
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		began := time.Now()
		err := Run(t.Context(), Options{
			URL:   "https://gateway.example/mcp/claims",
			Lines: transport.NewStdio(strings.NewReader(input), &out, 1000),
			Transport: trip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		})
		if took := time.Since(began); err != nil || took != finishTimeout {
			t.Errorf("ended after %v with %v, want the end after %v", took, err, finishTimeout)
		}
		var ids []string
		for line := range strings.Lines(out.String()) {
			id, code, _, data := errorOf(t, line)
			if code != -32603 || data["reason"] != "gateway_answer_late" {
				t.Errorf("got %s", line)
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		if want := []string{`"b"`, "1", "2", "3"}; !slices.Equal(ids, want) {
			t.Errorf("errors for %v, want %v", ids, want)
		}
	})
}

// TestASlowToolIsAwaited: a tool may take 30 s, and its client may have closed
// its end when it had asked.
func TestASlowToolIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
		err := Run(t.Context(), Options{
			URL:   "https://gateway.example/mcp/claims",
			Lines: transport.NewStdio(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"slow"}`), &out, 1000),
			Transport: trip(func(r *http.Request) (*http.Response, error) {
				select {
				case <-r.Context().Done():
				case <-time.After(30 * time.Second):
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(answer))}, r.Context().Err()
			}),
		})
		if err != nil || out.String() != answer+"\n" {
			t.Errorf("ended with %v and wrote %q", err, out.String())
		}
	})
}

func TestGivingUpDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outRead, out := io.Pipe()
		began := time.Now()
		err := Run(t.Context(), Options{
			URL:   "https://gateway.example/mcp/claims",
			Lines: transport.NewStdio(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"slow"}`), out, 1000),
			Transport: trip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		})
		if took := time.Since(began); err != nil || took != finishTimeout+stopTimeout {
			t.Errorf("ended after %v with %v, want %v", took, err, finishTimeout+stopTimeout)
		}
		outRead.Close()
	})
}

func TestEndOfContextEndsTheRelay(t *testing.T) {
	arrived := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		close(arrived)
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	in, write := io.Pipe()
	defer write.Close()
	done := make(chan error, 1)
	var out lockedBuffer
	go func() { done <- Run(ctx, Options{URL: srv.URL + "/mcp/a", Lines: transport.NewStdio(in, &out, 1000)}) }()
	_, _ = io.WriteString(write, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"slow\"}\n")
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || out.String() != "" {
		t.Errorf("returned %v and wrote %q", err, out.String())
	}
}

func TestBrokenPipeEndsTheRelay(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer srv.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close() // the client is gone
	in, write := io.Pipe()
	defer write.Close()
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), Options{URL: srv.URL + "/mcp/a", Lines: transport.NewStdio(in, w, 1000)})
	}()
	_, _ = io.WriteString(write, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")
	if err := <-done; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want the error of the broken pipe", err)
	}
}
