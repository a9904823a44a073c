package relay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// full starts a relay and sends it as many requests as may be under way. They
// have the ids from 0 on and all have arrived at the gateway, which answers none;
// those that end, because the client has cancelled them, are told in ended.
// Whatever the gateway gets beside them is answered at once, and told in others.
func full(t *testing.T, params string) (h *harness, others chan posted, ended chan string) {
	others, ended = make(chan posted, 10*maxExchanges), make(chan string, maxExchanges)
	arrived := make(chan struct{}, maxExchanges)
	h = start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		if got.method == "slow" {
			arrived <- struct{}{}
			<-r.Context().Done()
			ended <- got.id
			return
		}
		others <- got
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	for i := range maxExchanges {
		h.send(`{"jsonrpc":"2.0","id":%d,"method":"slow","params":%s}`, i, params)
	}
	for range maxExchanges {
		<-arrived
	}
	return h, others, ended
}

// cancelAll lets a full relay end without waiting for answers.
func (h *harness) cancelAll() {
	h.t.Helper()
	for i := range maxExchanges {
		h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
	}
}

func TestARequestTooManyIsRefused(t *testing.T) {
	h, others, ended := full(t, modern(""))
	for _, id := range []string{`"one more"`, `4711`} {
		h.send(`{"jsonrpc":"2.0","id":%s,"method":"ping","params":%s}`, id, modern(""))
		got, code, message, data := errorOf(t, h.recv())
		if got != id || code != -32603 || message != "too many requests under way (128): wait for one to end" || data["reason"] != "too_many_requests" {
			t.Errorf("request %s was answered with %s %d %q %v", id, got, code, message, data)
		}
	}
	h.cancelAll()
	for range maxExchanges {
		<-ended
	}
	h.finishCleanly()
	if len(others) > 0 {
		t.Error("a refused request reached the gateway")
	}
}

func TestANotificationTooManyIsDropped(t *testing.T) {
	h, others, _ := full(t, modern(""))
	h.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
	h.send(`{"jsonrpc":"2.0","id":5,"result":{"roots":[]}}`)
	h.cancelAll()
	h.finishCleanly()
	if len(others) > 0 {
		t.Error("a dropped notification reached the gateway")
	}
	if log := h.log.String(); strings.Count(log, "a message is dropped") != 2 || !strings.Contains(log, "method=notifications/progress") || !strings.Contains(log, "too many requests under way") {
		t.Errorf("the log does not tell what was dropped: %s", log)
	}
}

// TestCancellationIsReadWhenNothingElseIs: it is the way to make room.
func TestCancellationIsReadWhenNothingElseIs(t *testing.T) {
	for era, params := range map[string]string{"2026-07-28": modern(""), "legacy": "{}"} {
		t.Run(era, func(t *testing.T) {
			h, others, ended := full(t, params)
			h.send(`{"jsonrpc":"2.0","id":"one more","method":"ping","params":%s}`, params)
			h.recv() // the refusal
			notification := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`
			h.send("%s", notification)
			if id := <-ended; id != "3" {
				t.Errorf("request %s was cancelled, want 3", id)
			}
			if era == "legacy" {
				if got := <-others; got.body != notification {
					t.Errorf("the gateway got %s, want the cancellation", got.body)
				}
			}
			h.cancelAll()
			h.finishCleanly()
		})
	}
}

// TestEndOfInputIsReadWhenNothingElseIs: listen streams end with the input, and
// here nothing else is under way.
func TestEndOfInputIsReadWhenNothingElseIs(t *testing.T) {
	arrived := make(chan struct{}, maxExchanges)
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		arrived <- struct{}{}
		<-r.Context().Done()
	}, nil)
	for i := range maxExchanges {
		h.send(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":%s}`, i, modern(""))
	}
	for range maxExchanges {
		<-arrived
	}
	h.send(`{"jsonrpc":"2.0","id":"one more","method":"ping","params":%s}`, modern(""))
	rest, err := h.finish()
	if err != nil || len(rest) != 1 {
		t.Errorf("ended with %v and wrote %q, want the refusal alone", err, rest)
	}
}

// TestAnAnswerThatWasReadMakesRoom: a client that never has more requests under
// way than are allowed is never refused.
func TestAnAnswerThatWasReadMakesRoom(t *testing.T) {
	h, _, _ := full(t, modern(""))
	h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
	for { // when the cancelled request has ended cannot be seen in another way
		h.send(`{"jsonrpc":"2.0","id":"try","method":"ping","params":%s}`, modern(""))
		if strings.Contains(h.recv(), "result") {
			break
		}
	}
	for i := range 300 {
		h.send(`{"jsonrpc":"2.0","id":"p%d","method":"ping","params":%s}`, i, modern(""))
		if got, want := h.recv(), fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","result":{}}`, i); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	h.cancelAll()
	h.finishCleanly()
}

// TestRefusalsThatAreNotReadDoNotStopCancellation: the client writes and writes
// before it reads.
func TestRefusalsThatAreNotReadDoNotStopCancellation(t *testing.T) {
	h, _, ended := full(t, modern(""))
	const more = maxRefusals + 10
	for i := range more {
		h.send(`{"jsonrpc":"2.0","id":"p%d","method":"ping","params":%s}`, i, modern(""))
	}
	h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	<-ended
	h.cancelAll()
	rest, err := h.finish()
	if err != nil || len(rest) < maxRefusals || len(rest) > more {
		t.Errorf("ended with %v and wrote %d refusals", err, len(rest))
	}
	if log := h.log.String(); !strings.Contains(log, "refusals are not read") || !strings.Contains(log, "too many requests under way") {
		t.Errorf("the log does not tell that refusals were dropped, and what they said: %.500s", log)
	}
}

// TestTheLogTellsWhatADroppedRefusalSaid: there are several causes.
func TestTheLogTellsWhatADroppedRefusalSaid(t *testing.T) {
	h := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a message reached the gateway") }, nil)
	for range maxRefusals + 10 {
		h.send(`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`)
	}
	if _, err := h.finish(); err != nil {
		t.Error(err)
	}
	if log := h.log.String(); !strings.Contains(log, "refusals are not read") || !strings.Contains(log, "id must be a string or an integer") {
		t.Errorf("the log does not tell why requests were refused: %.500s", log)
	}
}
