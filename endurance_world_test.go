package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tollgate/fixtures"
	"tollgate/transport/auth"
)

// A restlessWorld is what a gateway has to live with for long: a Portal whose routes
// come and go, Tool Services whose lists change and whose answers fail in every way,
// and the demo's route lab, which is well. Each turn makes it another one.
type restlessWorld struct {
	server   *httptest.Server // the Portal and all Tool Services but flapping and the demo's
	flapping *origin          // well in every other turn only
	lab      json.RawMessage  // the Portal's entry of the demo's lab
	turn     atomic.Int64
	waiting  sync.Map // from the name of a call of wait to the channel that tells of its arrival
	release  chan struct{}

	config string // of the gateway
	keys   map[string]string
}

func newRestlessWorld(t *testing.T) *restlessWorld {
	t.Helper()
	w := &restlessWorld{release: make(chan struct{})}
	demo, err := fixtures.Start(fixtures.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(demo.Close)
	document, err := demo.Portal().Document()
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Routes []json.RawMessage }
	if err := json.Unmarshal(document, &answer); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(answer.Routes, func(entry json.RawMessage) bool { return strings.Contains(string(entry), `"routeKey":"lab"`) })
	if at < 0 {
		t.Fatalf("the demo has no route lab: %s", document)
	}
	w.lab = answer.Routes[at]
	w.flapping = newOrigin(t, manifestOf("flapping", "flapping.ping"))
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	t.Cleanup(func() { close(w.release) })
	w.configure(t)
	return w
}

// configure writes the configuration of a gateway of this world: origins are checked
// often, connections are not kept for long, callers have keys, and what they pay and
// what is stored for them is in memory.
func (w *restlessWorld) configure(t *testing.T) {
	file, keys := apiKeys(t, auth.Key{ID: "rich", Tier: "bulk"}, auth.Key{ID: "other", Tier: "bulk"}, auth.Key{ID: "poor", Tier: "poor"})
	w.keys, w.config = keys, filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, w.config, fmt.Sprintf(`shutdown: {delay: 0s}
registry:
  portal: {url: %q, refreshTTL: 200ms}
  manifest: {refreshTTL: 200ms, readTimeout: 2s}
  refreshWait: 200ms
  retryInterval: 100ms
  missInterval: 200ms
upstream: {idleTimeout: 200ms, maxResponseBytes: %d}
handles: {memoryStore: true, ephemeralKeys: true}
auth: {mode: required, keysFile: %q}
cost: {tiers: {poor: {capacity: %d, refillPerSecond: 1, hourly: %[4]d}}}
`, w.server.URL+"/registry", maxRestlessAnswer, file, poorBudget))
}

// poorBudget is how many calls the poor caller can pay in an hour.
const poorBudget = 10

// maxRestlessAnswer is the bound of a Tool Service's answer in this world.
const maxRestlessAnswer = 2 << 20

// flaps are the ways in which flapping is not well.
var flaps = []fault{down, slow, resetMidBody, status500, html200, invalidJSON, oversize, hung, redirect}

// turns changes the world every so often until ended is closed.
func (w *restlessWorld) turns(every time.Duration, ended <-chan struct{}) {
	for tick := time.NewTicker(every); ; {
		select {
		case <-ended:
			tick.Stop()
			w.flapping.mend()
			return
		case <-tick.C:
			n := w.turn.Add(1)
			w.flapping.mend()
			if n%2 == 1 {
				w.flapping.begin(flaps[n/2%int64(len(flaps))])
			}
		}
	}
}

// ServeHTTP implements http.Handler.
func (w *restlessWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	service, tool, _ := strings.Cut(r.URL.Path[1:], "/")
	rw.Header().Set("Content-Type", "application/json")
	turn := w.turn.Load()
	switch {
	case r.Method == http.MethodPost:
		w.answerCall(rw, r, strings.TrimPrefix(tool, "mcp/"), body)
	case service == "registry":
		w.answerBadly(rw, r, turn, 5, w.declaration(turn))
	case service == "churn":
		w.answerBadly(rw, r, turn, 7, churnManifest(turn))
	default:
		io.WriteString(rw, restlessManifests[service])
	}
}

// answerBadly answers as an origin does that fails in three turns of so many.
func (w *restlessWorld) answerBadly(rw http.ResponseWriter, r *http.Request, turn, of int64, document string) {
	switch turn % of {
	case 1:
		answerAs(rw, http.StatusInternalServerError, "text/plain", "no")
	case 2:
		answerHalf(rw, r, document)
	case 3:
		for w.turn.Load() == turn && wait(r, 10*time.Millisecond) {
		}
		panic(http.ErrAbortHandler)
	default:
		answerDocument(rw, r, document)
	}
}

// fleeting are the routes that come and go. Each is there in two turns of four.
var fleeting = []string{"fleeting-a", "fleeting-b", "fleeting-c", "fleeting-d"}

// declaration is the registry answer of a turn.
func (w *restlessWorld) declaration(turn int64) string {
	entries := []string{string(w.lab), w.entry("churn", "churn"), w.entry("faulty", "faulty"), w.entry("tally", "tally"),
		w.entry("flapping", "flapping", "steady")}
	for i, route := range fleeting {
		if (turn+int64(i))%4 < 2 {
			entries = append(entries, w.entry(route, "steady"))
		}
	}
	return registryOf(entries...)
}

func (w *restlessWorld) entry(route string, services ...string) string {
	list := make([]string, len(services))
	for i, key := range services {
		domain := w.server.URL
		if key == "flapping" {
			domain = w.flapping.url()
		}
		list[i] = fmt.Sprintf(`{"serviceKey":%q,"serviceDomain":%q,"manifestPath":"/%[1]s/manifest","executionPath":"/%[1]s/mcp"}`, key, domain)
	}
	return fmt.Sprintf(`{"routeKey":%q,"toolServices":[%s]}`, route, strings.Join(list, ","))
}

// churnManifest is the list of a turn: each of its descriptions names the turn.
func churnManifest(turn int64) string {
	names := []string{"churn.echo", "churn.big", "churn.wait", fmt.Sprintf("churn.turn%d", turn%5)}
	for i := range 16 {
		names = append(names, fmt.Sprintf("churn.more%d", i))
	}
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(`{"name":%q,"description":"Turn %d.","inputSchema":{"type":"object"},"_meta":{"version":"%[2]d","timeoutMillis":30000}}`, name, turn)
	}
	return fmt.Sprintf(`{"bundleId":"churn","tools":[%s]}`, strings.Join(tools, ","))
}

// restlessManifests are the lists that do not change. A call of faulty fails in the way
// that its tool is named after. What tally keeps lasts for 20 seconds.
var restlessManifests = map[string]string{
	"steady": manifestOf("steady", "steady.ping"),
	"faulty": `{"bundleId":"faulty","tools":[` + faultyTool("status", "") + `,` + faultyTool("reset", "") + `,` + faultyTool("cut", "") + `,` +
		faultyTool("hang", `,"timeoutMillis":200`) + `,` + faultyTool("forever", `,"timeoutMillis":300,"streams":true`) + `,` + faultyTool("flood", "") + `]}`,
	"tally": `{"bundleId":"tally","tools":[` + tallyTools("signed") + `,` + tallyTools("stored") + `]}`,
}

func faultyTool(name, meta string) string {
	return fmt.Sprintf(`{"name":"faulty.%s","description":"Fails.","inputSchema":{"type":"object"},"_meta":{"version":"1"%s}}`, name, meta)
}

func tallyTools(mode string) string {
	return fmt.Sprintf(`{"name":"tally.%[1]s.make","description":"Begins.","inputSchema":{"type":"object"},
		"_meta":{"version":"1","state":{"mode":%[1]q,"field":"handle","ttlSeconds":20}}},
	{"name":"tally.%[1]s.add","description":"Goes on.","inputSchema":{"type":"object","required":["handle"],"properties":{"handle":{"type":"string"}}},
		"_meta":{"version":"1","state":{"mode":%[1]q,"field":"handle","argument":"handle","ttlSeconds":20}}}`, mode)
}

// answerCall answers a call.
func (w *restlessWorld) answerCall(rw http.ResponseWriter, r *http.Request, tool string, body []byte) {
	switch tool {
	case "churn.big":
		fmt.Fprintf(rw, `{"big":%q}`, strings.Repeat("x", 1<<20))
	case "churn.wait":
		if arrived, ok := w.waiting.LoadAndDelete(string(body)); ok {
			close(arrived.(chan struct{}))
		}
		select {
		case <-r.Context().Done():
		case <-w.release:
		}
	case "tally.signed.make", "tally.stored.make":
		io.WriteString(rw, `{"handle":{"count":0},"count":0}`)
	case "tally.signed.add", "tally.stored.add":
		var state struct{ Handle struct{ Count int } }
		json.Unmarshal(body, &state) // the gateway's; a wrong one shows in the count
		fmt.Fprintf(rw, `{"handle":{"count":%d},"count":%[1]d}`, state.Handle.Count+1)
	case "faulty.status":
		answerAs(rw, http.StatusInternalServerError, "application/json", `{"error":"no"}`)
	case "faulty.reset":
		if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	case "faulty.cut":
		answerHalf(rw, r, `{"half":"of it"}`)
	case "faulty.hang":
		<-r.Context().Done()
	case "faulty.forever":
		streamForever(rw, r)
	case "faulty.flood":
		for block := strings.Repeat("x", 1<<16); r.Context().Err() == nil; {
			if _, err := io.WriteString(rw, block); err != nil {
				return
			}
		}
	default:
		rw.Write(body)
	}
}

// streamForever tells of progress until the caller leaves.
func streamForever(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for n := 1; wait(r, 5*time.Millisecond); n++ {
		fmt.Fprintf(rw, "event: progress\ndata: {\"progress\":%d}\n\n", n)
		http.NewResponseController(rw).Flush()
	}
}
