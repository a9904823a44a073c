package server

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// An eventLog is an observer that keeps what it hears.
type eventLog struct {
	mu      sync.Mutex
	started int
	ended   []CallEvent
	refused []string
}

func (l *eventLog) CallStarted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started++
}

func (l *eventLog) RequestRefused(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, reason)
}

func (l *eventLog) CallEnded(e CallEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, e)
}

func TestEveryCallIsObservedOnce(t *testing.T) {
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		}
	}
	forwarded := CallEvent{Route: "claims", Service: "claims-service", Outcome: "ok", Forwarded: true}
	event := func(change func(*CallEvent)) CallEvent {
		e := forwarded
		change(&e)
		return e
	}
	tests := map[string]struct {
		tool, arguments string
		setup           func(*gateway)
		want            CallEvent
	}{
		"ok": {"claims.echo", `{}`, func(g *gateway) { g.service.handle("claims.echo", answer(200, "X-Agent-Cost", "5")) }, forwarded},
		"no cost": {"claims.echo", `{}`, func(g *gateway) { g.service.handle("claims.echo", answer(204)) },
			event(func(e *CallEvent) { e.CostMissing = true })},
		"broken cost": {"claims.echo", `{}`, func(g *gateway) { g.service.handle("claims.echo", answer(200, "X-Agent-Cost", "5.0")) },
			event(func(e *CallEvent) { e.CostMissing = true })},
		"an error needs no cost": {"claims.status", `{"status":422}`, nil, event(func(e *CallEvent) { e.Outcome = "tool_error" })},
		"no answer": {"claims.echo", `{}`, func(g *gateway) {
			g.service.handle("claims.echo", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}, event(func(e *CallEvent) { e.Outcome = string(upstream.Reset) })},
		"refused arguments":   {"claims.status", `{"status":"x"}`, nil, CallEvent{Route: "claims", Service: "claims-service", Outcome: "invalid_arguments"}},
		"malformed arguments": {"claims.echo", `{"a":1,"a":2}`, nil, CallEvent{Route: "claims", Service: "claims-service", Outcome: "invalid_params"}},
		"unknown tool":        {"claims.nope", `{}`, nil, CallEvent{Route: "claims", Outcome: "tool_not_found"}},
		"a panic": {"claims.nope", `{}`, func(g *gateway) { g.routes.onRecheck = func() { panic("boom") } },
			CallEvent{Route: "claims", Outcome: "panic"}},
		"the route goes": {"claims.nope", `{}`, func(g *gateway) { g.routes.onRecheck = func() { delete(g.routes.snapshots, "claims") } },
			CallEvent{Route: "claims", Outcome: "route_not_found"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log := new(eventLog)
			g := newGateway(t, func(o *Options) { o.Observer = log })
			if test.setup != nil {
				test.setup(g)
			}
			g.call(true, test.tool, test.arguments)
			if log.started != 1 || len(log.ended) != 1 {
				t.Fatalf("%d calls started, %d ended; want 1", log.started, len(log.ended))
			}
			got := log.ended[0]
			if (got.Upstream > 0) != test.want.Forwarded || got.Total < got.Upstream || got.Total <= 0 {
				t.Errorf("times: total %v, upstream %v", got.Total, got.Upstream)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(CallEvent{}, "Total", "Upstream")); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatNeverBecomesACallIsRefused(t *testing.T) {
	log := new(eventLog)
	g := newGateway(t, func(o *Options) { o.Observer = log })
	g.modern(methodList, "")
	g.call(true, "claims.echo", `{}`)
	if log.refused != nil {
		t.Errorf("answered requests were refused: %q", log.refused)
	}
	log.started, log.ended = 0, nil
	g.postTo("/mcp/nowhere", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
	g.postTo("/mcp/claims", `{"jsonrpc":"2.0","id":1,"method":"tools/`)
	if log.started != 0 || len(log.ended) != 0 {
		t.Errorf("%d calls started, %v ended", log.started, log.ended)
	}
	if diff := cmp.Diff([]string{"route_not_found", "parse_error"}, log.refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// TestHandleEventsAreWhatKeepersDo holds the list of events against the errors that
// the comments of handle.Keeper name for each operation.
func TestHandleEventsAreWhatKeepersDo(t *testing.T) {
	const notValidHere = "not valid here" // all kinds that the agent cannot tell apart
	kinds := map[string]string{}          // by the name of the constant
	documented := map[string][]string{}   // kinds by operation
	source := readFile(t, "handle/handle.go")
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) +Kind = "(\w+)"`).FindAllSubmatch(source, -1) {
		kinds[string(m[1])] = string(m[2])
	}
	methods := regexp.MustCompile(`((?:\t//.*\n)+)\t(Create|Open|Update)\(`).FindAllSubmatch(source, -1)
	for _, m := range methods {
		_, errs, _ := strings.Cut(strings.Join(strings.Fields(strings.ReplaceAll(string(m[1]), "//", "")), " "), "Errors are ")
		operation := strings.ToLower(string(m[2]))
		for name, kind := range kinds {
			listed := regexp.MustCompile(`\b` + name + `\b`).MatchString(errs)
			alike := strings.Contains(errs, notValidHere) && outcomeOf(handle.Kind(kind)) == "handle_not_valid"
			if listed || alike {
				documented[operation] = append(documented[operation], kind)
			}
		}
		slices.Sort(documented[operation])
	}
	events := map[string][]string{}
	for _, e := range HandleEvents() {
		if e.Outcome != "ok" && e.Outcome != unchangedState && !slices.Contains(events[e.Operation], e.Outcome) {
			events[e.Operation] = append(events[e.Operation], e.Outcome)
			slices.Sort(events[e.Operation])
		}
	}
	if len(methods) != 3 || len(kinds) < 9 {
		t.Fatalf("found %d methods and %d kinds", len(methods), len(kinds))
	}
	if diff := cmp.Diff(documented, events); diff != "" {
		t.Errorf("outcomes besides ok and unchanged (-documented +listed):\n%s", diff)
	}
}
