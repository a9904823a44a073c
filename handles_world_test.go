package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tollgate/fixtures"
	"tollgate/server/handle"
)

// A stateWorld is a Portal with Tool Services whose tools have state: the demo's, and
// notes, which is there for what the demo has no tool for.
type stateWorld struct {
	portal   string       // URL of the registry answer
	received atomic.Int64 // calls that reached a Tool Service

	mu   sync.Mutex
	hook func(tool string) // runs before a call is answered; nil: nothing
}

// newStateWorld starts the world.
func newStateWorld(t *testing.T) *stateWorld {
	t.Helper()
	w := &stateWorld{}
	demo, err := fixtures.Start(fixtures.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(demo.Close)
	for _, key := range []string{"counters", "basket"} {
		demo.Service(key).OnRequest(func(r fixtures.Request) {
			if r.Method == http.MethodPost {
				w.arrive(r.Target)
			}
		})
	}
	notes := httptest.NewServer(http.HandlerFunc(w.serveNotes))
	t.Cleanup(notes.Close)
	document, err := demo.Portal().Document()
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Revision string            `json:"registryRevision"`
		Routes   []json.RawMessage `json:"routes"`
	}
	if err := json.Unmarshal(document, &answer); err != nil {
		t.Fatal(err)
	}
	attached := func(service string) string {
		return fmt.Sprintf(`{"serviceKey":%q,"serviceDomain":%q,"manifestPath":"/%[1]s/manifest","executionPath":"/%[1]s/run"}`, service, notes.URL)
	}
	answer.Routes = append(answer.Routes,
		json.RawMessage(`{"routeKey":"notes","toolServices":[`+attached("notes")+`,`+attached("other")+`]}`),
		json.RawMessage(`{"routeKey":"copy","toolServices":[`+attached("notes")+`]}`))
	if document, err = json.Marshal(answer); err != nil {
		t.Fatal(err)
	}
	portal := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write(document) }))
	t.Cleanup(portal.Close)
	w.portal = portal.URL
	return w
}

// arrive notes a call.
func (w *stateWorld) arrive(target string) {
	w.received.Add(1)
	w.mu.Lock()
	hook := w.hook
	w.mu.Unlock()
	if hook != nil {
		hook(target[strings.LastIndexByte(target, '/')+1:])
	}
}

// onCall has f run before each call is answered, until the test ends.
func (w *stateWorld) onCall(t *testing.T, f func(tool string)) {
	set := func(f func(string)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hook = f
	}
	set(f)
	t.Cleanup(func() { set(nil) })
}

// unreached returns a function that reports a call that reached a Tool Service
// since.
func (w *stateWorld) unreached() func(t *testing.T) {
	before := w.received.Load()
	return func(t *testing.T) {
		t.Helper()
		if n := w.received.Load() - before; n != 0 {
			t.Errorf("%d calls reached a Tool Service", n)
		}
	}
}

// noteTools are the tools of notes, and of a second service that is the same but
// for the prefix of their names. note is signed, memo stored; a brief one lasts for
// a second. The letters of sticker are those that have odd relatives in Unicode.
func noteTools(service string) string {
	prefix := ""
	if service != "notes" {
		prefix = service + "_"
	}
	const (
		written = `{"type":"object","properties":{"sticker":{"type":"string"},"length":{"type":"integer"}},"required":["sticker","length"],"additionalProperties":false}`
		read    = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`
		text    = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`
		sticker = `{"type":"object","properties":{"sticker":{"type":"string"}},"required":["sticker"]}`
		both    = `{"type":"object","properties":{"sticker":{"type":"string"},"text":{"type":"string"}},"required":["sticker"]}`
	)
	var tools []string
	for kind, mode := range map[string]string{"note": "signed", "memo": "stored"} {
		for _, tool := range []struct{ name, input, output, state string }{
			{"write", text, written, `"field":"sticker"`},
			{"rich", text, written, `"field":"sticker"`},
			{"brief", text, written, `"field":"sticker","ttlSeconds":1`},
			{"append", both, written, `"field":"sticker","argument":"sticker","ttlSeconds":600`},
			{"read", sticker, read, `"argument":"sticker"`},
		} {
			tools = append(tools, fmt.Sprintf(`{"name":"%s%s_%s","description":"Does it.","inputSchema":%s,"outputSchema":%s,"_meta":{"version":"1","state":{"mode":%q,%s}}}`,
				prefix, kind, tool.name, tool.input, tool.output, mode, tool.state))
		}
	}
	return fmt.Sprintf(`{"bundleId":%q,"tools":[%s]}`, service, strings.Join(tools, ","))
}

// serveNotes answers as notes and other.
func (w *stateWorld) serveNotes(rw http.ResponseWriter, r *http.Request) {
	service, rest, _ := strings.Cut(r.URL.Path[1:], "/")
	rw.Header().Set("Content-Type", "application/json")
	if rest == "manifest" {
		io.WriteString(rw, noteTools(service))
		return
	}
	w.arrive(r.URL.Path)
	var call struct {
		Sticker struct{ Text string }
		Text    string
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	text := call.Sticker.Text + call.Text
	result := fmt.Sprintf(`{"sticker": {"text": %q}, "length": %d}`, text, len(text))
	switch {
	case strings.HasSuffix(rest, "_read"):
		fmt.Fprintf(rw, `{"text":%q}`, text)
	case strings.HasSuffix(rest, "_rich"):
		rw.Header().Set("Content-Type", "application/vnd.mcp.call-tool-result+json")
		fmt.Fprintf(rw, `{"content":[{"type":"text","text":%q},{"type":"text","text":"written"}],"structuredContent":%s}`, result, result)
	default:
		io.WriteString(rw, result)
	}
}

// gateway starts a gateway of this world. keys are those that sign handles, as the
// environment has them, "" for none; more are further lines of its configuration.
func (w *stateWorld) gateway(t *testing.T, keys string, more ...string) *gateway {
	t.Helper()
	c := command{args: []string{"--config", w.config(t, more...)}}
	if keys != "" {
		c.env = []string{"TOLLGATE_HANDLE_KEYS=" + keys}
	}
	return serve(t, c)
}

func (w *stateWorld) config(t *testing.T, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, path, fmt.Sprintf("shutdown: {delay: 0s}\nregistry:\n  portal: {url: %q}\n", w.portal)+strings.Join(more, "\n")+"\n")
	return path
}

// atRedis is the line of a configuration that names a Redis.
func atRedis(url string) string { return fmt.Sprintf("redis: {url: %q}", url) }

// handleKey makes a key with an id, as TOLLGATE_HANDLE_KEYS has it.
func handleKey(id string) string {
	key, err := handle.NewKey(id)
	if err != nil {
		panic(err) // the id is a good one
	}
	return key
}

// printOf is what /actuator/info says of a key.
func printOf(key string) string {
	id, encoded, _ := strings.Cut(key, ":")
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		panic(err) // of handleKey, or of the command that makes keys
	}
	sum := sha256.Sum256(secret)
	return fmt.Sprintf(`{"id":%q,"sha256":"%x"}`, id, sum[:4])
}

// A stateful is a tool call's answer, and what tools with state say in it.
type stateful struct {
	rpcAnswer
	status int
	raw    string

	Handle, Sticker string
	Count           int
	Text            string
}

// afresh opens a connection for each request.
var afresh = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// ask calls a tool on a connection of its own.
func (g *gateway) ask(modern bool, route, tool, arguments string) (stateful, error) {
	return g.askOver(afresh, modern, route, tool, arguments)
}

func (g *gateway) askOver(client *http.Client, modern bool, route, tool, arguments string) (a stateful, err error) {
	var header []string
	for _, line := range callHeaders(tool, modern) {
		name, value, _ := strings.Cut(line, ": ")
		header = append(header, name, value)
	}
	got, err := postMessage(context.Background(), client, g.URL+"/mcp/"+route, door{modern: modern}.call("1", tool, arguments), header...)
	if err != nil {
		return a, err
	}
	a, err = readStateful([]byte(got.body))
	a.status = got.status
	return a, err
}

// readStateful reads an answer from the wire.
func readStateful(data []byte) (a stateful, err error) {
	a.raw = string(data)
	if err := json.Unmarshal(data, &a.rpcAnswer); err != nil {
		return a, fmt.Errorf("%w in %s", err, data)
	}
	if a.Result == nil {
		return a, nil
	}
	if a.Result.Structured != nil {
		data = a.Result.Structured
	} else {
		data = []byte(a.says())
	}
	json.Unmarshal(data, &a) // of another form: it says nothing
	return a, nil
}

// try is ask for a call that must be answered with HTTP 200 and a tool's result.
func (g *gateway) try(t *testing.T, route, tool, arguments string) stateful {
	t.Helper()
	a, err := g.ask(true, route, tool, arguments)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != 200 || a.Result == nil {
		t.Fatalf("%s was answered with status %d, %s", tool, a.status, a.raw)
	}
	return a
}

// do is try for a call that must succeed. One that Redis was too slow for, and that
// changed nothing, is made again.
func (g *gateway) do(t *testing.T, route, tool, arguments string) (a stateful) {
	t.Helper()
	onceRedisIsInTime(func() string {
		a = g.try(t, route, tool, arguments)
		if strings.Contains(arguments, `"handle":`) || strings.Contains(arguments, `"sticker":`) {
			return strings.ReplaceAll(a.says(), updateUnknown, "") // the state may have changed
		}
		return a.says()
	})
	if a.Result.IsError {
		t.Fatalf("%s failed: %s", tool, a.raw)
	}
	return a
}

// again is try for a call that may be made twice, once Redis is in time for it.
func (g *gateway) again(t *testing.T, route, tool, arguments string) (a stateful) {
	t.Helper()
	onceRedisIsInTime(func() string {
		a = g.try(t, route, tool, arguments)
		return a.says()
	})
	return a
}

// onceRedisIsInTime runs f again as long as it returns that the state store is
// unavailable, and returns what it says last. On a machine that has no time for
// Redis an operation runs into its time limit, and that is no failure of what is
// tested.
func onceRedisIsInTime(f func() (says string)) string {
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // between two tries
		if says := f(); !strings.Contains(says, storeAway) || time.Now().After(late) {
			return says
		}
	}
}

// says is the text that the model gets, "" where it is not one text.
func (a stateful) says() (text string) {
	if a.Result != nil && len(a.Result.Content) == 1 {
		json.Unmarshal(a.Result.Content[0].Text, &text)
	}
	return text
}

// wantRefused checks that the tool failed with just this text.
func (a stateful) wantRefused(t *testing.T, what, text string) {
	t.Helper()
	if a.Error != nil || a.Result == nil || !a.Result.IsError || a.says() != text || a.Result.Structured != nil {
		t.Errorf("%s: got %.600s\nwant a tool error that says %q", what, a.raw, text)
	}
}

// handleIs is an object of arguments with the handle in it.
func handleIs(handle string) string { return `{"handle":` + quoted(handle) + `}` }

// stickerIs is the same for notes.
func stickerIs(handle string) string { return `{"sticker":` + quoted(handle) + `}` }

func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(data)
}

// The texts of handles that are refused.
const (
	notValidHandle  = `The argument "handle": the handle is not valid here; create a new one. Nothing was called.`
	notValidSticker = `The argument "sticker": the handle is not valid here; create a new one. Nothing was called.`
	expiredSticker  = `The argument "sticker": the handle expired after 1 s; create a new one. Nothing was called.`
	storeAway       = `state store unavailable` // a part of the following
	updateUnknown   = `The Tool Service did run, but whether its new state was kept is not known: state store unavailable; read the state before you try again.`
	storeAwayIn     = `The argument "handle": state store unavailable, try again. Nothing was called.`
	storeAwayOut    = `The Tool Service did run, but its new state was not kept: state store unavailable, try again.`
	stateChanged    = `The Tool Service did run, but its new state was not kept: state changed, read it again.`
)

// warnings are the lines of the log that warn, or worse, and contain part.
func (g *gateway) warnings(part string) []string { return warningsIn(g.stderr.text(), part) }

func warningsIn(log, part string) (lines []string) {
	for line := range strings.Lines(log) {
		if (strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`)) && strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

// What the log of package server warns of.
const (
	unknownKeyWarning = "replicas may have different keys"
	storeAwayWarning  = "the state store is unavailable"
)

// memoryStore is the line of a configuration without Redis.
const memoryStore = "handles: {memoryStore: true}"
