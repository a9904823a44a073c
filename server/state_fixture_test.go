package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/server/handle"
)

// stateTools are the tools with state on the route claims, in both modes:
// signed.create, stored.create and so on. put takes a handle or none. Those of the
// manifest of all tests are there as well.
const stateTools = `{"bundleId": "state-service", "tools": [` +
	`{"name": "MODE.create", "description": "Creates.", "inputSchema": {"type": "object"}, "_meta": {"version": "1", "state": {"mode": "MODE", "field": "handle"}}},` +
	`{"name": "MODE.increment", "description": "Updates.", "inputSchema": {"type": "object", "required": ["handle"], "properties": {"handle": {"type": "string"}}},` +
	` "outputSchema": {"type": "object", "required": ["handle"], "properties": {"handle": {"type": "string"}}}, "_meta": {"version": "1", "state": {"mode": "MODE", "field": "handle", "argument": "handle", "ttlSeconds": 60}}},` +
	`{"name": "MODE.put", "description": "Creates or updates.", "inputSchema": {"type": "object", "properties": {"handle": {"type": "string"}}}, "_meta": {"version": "1", "state": {"mode": "MODE", "field": "handle", "argument": "handle"}}},` +
	`{"name": "MODE.read", "description": "Reads.", "inputSchema": {"type": "object", "required": ["state"], "properties": {"state": {"type": "string"}}}, "_meta": {"version": "1", "state": {"mode": "MODE", "argument": "state"}}}` +
	`]}`

var modes = []string{"signed", "stored"}

// canary is in every state of these tests, and nowhere else.
const canary = "canary-of-the-state"

// A stateGateway is a gateway whose Tool Service counts in states.
type stateGateway struct {
	*gateway
	store *fakeStore
}

func testKeys(t testing.TB, id string) *handle.Keys {
	t.Helper()
	keys, err := handle.ParseKeys(id + ":" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(id, 32)[:32])))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// withStates lets a gateway serve tools with state.
func withStates(t testing.TB, store *fakeStore) func(*Options) {
	return func(o *Options) {
		o.Signed = handle.NewSigned(testKeys(t, "k1"), 1024)
		o.Stored = handle.NewStored(store)
	}
}

func newStateGateway(t testing.TB, change ...func(*Options)) *stateGateway {
	t.Helper()
	g := &stateGateway{store: &fakeStore{}}
	g.gateway = newGateway(t, append([]func(*Options){withStates(t, g.store)}, change...)...)
	g.log.level.Set(slog.LevelDebug)
	tools := g.tools(readFile(t, "testdata/manifest.json"))
	for _, mode := range modes {
		tools = append(tools, g.tools([]byte(strings.ReplaceAll(stateTools, "MODE", mode)))...)
		g.answer(mode+".create", `{ "count" : 0, "handle" : {"count" : 0, "note":"`+canary+`"} }`)
		g.answer(mode+".put", `{"handle":["`+canary+`"]}`)
		g.answer(mode+".read", `{"count":0}`)
		g.service.handle(mode+".increment", increment)
	}
	g.swap("claims", tools...)
	return g
}

// answer makes a tool answer with JSON.
func (g *stateGateway) answer(tool, body string) {
	g.answerAs(tool, http.StatusOK, "application/json", body)
}

func (g *stateGateway) answerAs(tool string, status int, contentType, body string) {
	g.service.handle(tool, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func increment(w http.ResponseWriter, r *http.Request) {
	var arguments struct {
		Handle struct {
			Count int    `json:"count"`
			Note  string `json:"note"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&arguments); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	arguments.Handle.Count++
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"handle": arguments.Handle, "count": arguments.Handle.Count})
}

// A toolAnswer is what a call came to.
type toolAnswer struct {
	t       testing.TB
	text    string // of the first item
	raw     string // the whole answer
	result  bool
	isError bool
	structd string
	code    int
}

// through calls a tool by a door, in an era.
func (g *stateGateway) through(play wayIn, modern bool, tool, arguments string) toolAnswer {
	g.t.Helper()
	meta := strings.NewReplacer("$META,", "")
	if modern {
		meta = strings.NewReplacer("$META", modernMeta)
	}
	answers := play(g.gateway, meta.Replace(request(methodCall, `"name":"`+tool+`","arguments":`+arguments)))
	if len(answers) != 1 {
		g.t.Fatalf("%d answers: %q", len(answers), answers)
	}
	return decodeCall(g.t, answers[0])
}

// do calls a tool over HTTP.
func (g *stateGateway) do(tool, arguments string) toolAnswer {
	g.t.Helper()
	return g.through(waysIn[0].play, true, tool, arguments)
}

func decodeCall(t testing.TB, raw string) toolAnswer {
	t.Helper()
	var m struct {
		Result *struct {
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
			IsError           bool
		}
		Error struct{ Code int }
	}
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	a := toolAnswer{t: t, raw: raw, code: m.Error.Code}
	if m.Result != nil {
		a.result, a.isError, a.structd, a.text = true, m.Result.IsError, string(m.Result.StructuredContent), m.Result.Content[0].Text
	}
	return a
}

// handle is the handle in a result.
func (a toolAnswer) handle() string {
	a.t.Helper()
	var r struct{ Handle string }
	if err := json.Unmarshal([]byte(a.text), &r); err != nil || r.Handle == "" || a.isError {
		a.t.Fatalf("no handle (%v) in %s", err, a.raw)
	}
	return r.Handle
}

// wantFailure expects a failed result with the parts in its text.
func (a toolAnswer) wantFailure(parts ...string) {
	a.t.Helper()
	if !a.result || !a.isError {
		a.t.Errorf("not a failed result: %s", a.raw)
	}
	for _, part := range parts {
		if !strings.Contains(a.text, part) {
			a.t.Errorf("no %q in %q", part, a.text)
		}
	}
}

// bodies are what the Tool Service got for a tool.
func (g *stateGateway) bodies(tool string) (bodies []string) {
	for _, call := range g.service.received() {
		if call.path == tool {
			bodies = append(bodies, call.body)
		}
	}
	return bodies
}

// wantOutcome checks the outcome in the last line about a call.
func (g *stateGateway) wantOutcome(outcome string) {
	g.t.Helper()
	var last string
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, `"msg":"call"`) {
			last = line
		}
	}
	if !strings.Contains(last, `"outcome":"`+outcome+`"`) {
		g.t.Errorf("want outcome %s: %s", outcome, last)
	}
}

// lines are the log's lines with a text.
func (g *stateGateway) lines(text string) (found []string) {
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// A fakeStore is a memory that can be away.
type fakeStore struct {
	handle.Memory
	mu     sync.Mutex
	away   bool
	before func() // each operation
}

func (s *fakeStore) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *fakeStore) failing(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		s.before()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.away {
		return errors.New("no connection")
	}
	return nil
}

func (s *fakeStore) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	if err := s.failing(ctx); err != nil {
		return nil, err
	}
	return s.Memory.Get(ctx, key, limit)
}

func (s *fakeStore) SetFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := s.failing(ctx); err != nil {
		return err
	}
	return s.Memory.SetFor(ctx, key, value, ttl)
}

func (s *fakeStore) Swap(ctx context.Context, key, prefix string, value []byte, ttl time.Duration) (bool, error) {
	if err := s.failing(ctx); err != nil {
		return false, err
	}
	return s.Memory.Swap(ctx, key, prefix, value, ttl)
}
