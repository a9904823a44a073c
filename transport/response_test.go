package transport

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// largeAnswer is a handler that reports what became of writing size bytes, and
// when.
func largeAnswer(size int, ended chan<- error, took *time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began := time.Now()
		_, err := w.Write(make([]byte, size))
		*took = time.Since(began)
		ended <- err
	}
}

func TestAnswersNobodyReadsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, took := make(chan error, 1), time.Duration(0)
		b := startBubble(t, largeAnswer(8<<20, ended, &took))
		nc := b.dial()
		if _, err := io.WriteString(nc, request); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || took != writeTimeLimit {
			t.Errorf("writing ended after %v with %v, want a time-out after %v", took, err, writeTimeLimit)
		}
		if rest, err := io.ReadAll(nc); err != nil || len(rest) > writeChunk {
			t.Errorf("%d bytes came, and %v; want the connection closed", len(rest), err)
		}
		b.signal(os.Interrupt)
		<-b.done
	})
}

// Answers without a body are the server's to write, after the handler.
func TestAnswersWithoutABodyThatNobodyReadsAreGivenUp(t *testing.T) {
	endsUnreadAfter(t, writeTimeLimit, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
}

// What net/http sends after the handler of an event stream has the deadline that the
// handler set last.
func TestEventStreamsEndByTheirOwnDeadline(t *testing.T) {
	const limit = writeTimeLimit / 3
	endsUnreadAfter(t, limit, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
		_, _ = io.WriteString(w, "data: the last\n\n") // stays in the server's buffer
	})
}

// endsUnreadAfter sends requests on a connection and reads no answer: it has to end after
// limit.
func endsUnreadAfter(t *testing.T, limit time.Duration, handler http.HandlerFunc) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, handler)
		nc := b.dial()
		began := time.Now()
		for err := error(nil); err == nil; {
			_, err = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		if took := time.Since(began); took != limit {
			t.Errorf("the connection ended after %v, want %v", took, limit)
		}
		b.signal(os.Interrupt)
		<-b.done
	})
}

func TestSlowReadersGetWholeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		ended, took := make(chan error, 1), time.Duration(0)
		b := startBubble(t, largeAnswer(size, ended, &took))
		nc := b.dial()
		if _, err := io.WriteString(nc, request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for chunk := make([]byte, 32<<10); ; time.Sleep(5 * time.Second) {
			n, err := io.ReadFull(res.Body, chunk)
			if got += n; err != nil {
				break
			}
		}
		if err := <-ended; err != nil || got != size || took < 2*writeTimeLimit {
			t.Errorf("%d bytes came, and writing ended after %v with %v", got, took, err)
		}
		nc.Close()
		b.signal(os.Interrupt)
		<-b.done
	})
}
