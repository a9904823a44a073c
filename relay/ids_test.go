package relay

import (
	"net/http"
	"strings"
	"testing"
)

// TestIdsThatCannotComeBackAreRefusedHere: without an id, and the gateway does not
// get to see them.
func TestIdsThatCannotComeBackAreRefusedHere(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	for _, member := range []string{
		`"id":1.5`, `"id":1.0`, `"id":1e2`, `"id":9007199254740992`, `"id":-9007199254740992`, `"id":-0`,
		`"id":null`, `"id":true`, `"id":[1]`, `"id":{}`, `"id":"\ud800"`, `"id":1,"id":2`, `"id":1,"id":1`, `"id":1,"\u0069d":2`,
	} {
		for _, rest := range []string{`"method":"ping"`, `"result":{}`, `"method":"notifications/cancelled"`} {
			h.send(`{"jsonrpc":"2.0",%s,%s}`, member, rest)
			if id, code, message, data := errorOf(t, h.recv()); id != "" || code != -32600 || !strings.Contains(message, "id") || data["reason"] != "invalid_request" {
				t.Errorf("%s, %s: id %q, code %d, %q, %v", member, rest, id, code, message, data)
			}
		}
	}
	for _, id := range []string{`9007199254740991`, `-9007199254740991`, `0`, `""`, `"1.5"`, `"\ud83d\ude00"`, `"\ufffd"`,
		"\"\ufffd \\ud83d\\ude00\"", "\"\ufffd\\\\ud83d\"",
	} {
		h.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
		if got, want := h.recv(), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	h.finishCleanly()
}

// TestARequestNamedLikeTheCancellationIsAnswered: it has an id, so it cancels
// nothing, and the client waits for what the gateway says to it.
func TestARequestNamedLikeTheCancellationIsAnswered(t *testing.T) {
	for era, params := range map[string]string{"2026-07-28": modern(`"requestId":"a"`), "legacy": `{"requestId":"a"}`} {
		t.Run(era, func(t *testing.T) {
			arrived, leave := make(chan struct{}), make(chan struct{})
			h := start(t, func(w http.ResponseWriter, r *http.Request) {
				got := receive(t, r)
				if got.method == "ping" {
					close(arrived)
					select {
					case <-leave:
					case <-r.Context().Done(): // the test has failed
					}
				}
				writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
			}, nil)
			h.send(`{"jsonrpc":"2.0","id":"a","method":"ping","params":%s}`, params)
			<-arrived
			for _, id := range []string{`"b"`, `1`} {
				h.send(`{"jsonrpc":"2.0","id":%s,"method":"notifications/cancelled","params":%s}`, id, params)
				if got, want := h.recv(), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			close(leave)
			if got := h.recv(); got != `{"jsonrpc":"2.0","id":"a","result":{}}` {
				t.Errorf("got %s, want the answer to a", got)
			}
			h.finishCleanly()
		})
	}
}

func TestAnIdInUseIsRefused(t *testing.T) {
	arrived, leave := make(chan struct{}, 100), make(chan struct{})
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		arrived <- struct{}{}
		<-leave
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":"a","method":"ping"}`)
	<-arrived
	h.send(`{"jsonrpc":"2.0","id":"\u0061","method":"ping"}`)
	if id, code, message, _ := errorOf(t, h.recv()); id != "" || code != -32600 || message != "the id is in use by a call in flight" {
		t.Errorf("id %q, code %d, %q", id, code, message)
	}
	close(leave)
	for range 50 { // an answer that was read frees the id
		if got := h.recv(); got != `{"jsonrpc":"2.0","id":"a","result":{}}` {
			t.Fatalf("got %s", got)
		}
		h.send(`{"jsonrpc":"2.0","id":"a","method":"ping"}`)
	}
	h.recv()
	h.finishCleanly()
}
