package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tollgate/cost"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// eachDoor runs a test for both modes, by every door, in both eras.
func eachDoor(t *testing.T, test func(t *testing.T, g *stateGateway, mode string, call func(tool, arguments string) toolAnswer)) {
	for _, mode := range modes {
		for _, way := range waysIn {
			for era, modern := range eras {
				t.Run(mode+"/"+way.name+"/"+era, func(t *testing.T) {
					g := newStateGateway(t)
					test(t, g, mode, func(tool, arguments string) toolAnswer {
						t.Helper()
						return g.through(way.play, modern, mode+"."+tool, arguments)
					})
				})
			}
		}
	}
}

func TestStateTravelsBetweenCalls(t *testing.T) {
	eachDoor(t, func(t *testing.T, g *stateGateway, mode string, call func(tool, arguments string) toolAnswer) {
		created := call("create", `{}`)
		first := created.handle()
		if want := `{"count":0,"handle":` + strconv.Quote(first) + `}`; created.text != want {
			t.Errorf("created %s, want %s", created.text, want)
		}
		once := call("increment", `{"handle":"`+first+`"}`)
		second := once.handle()
		if want := `{"count":1,"handle":` + strconv.Quote(second) + `}`; once.text != want || once.structd != want {
			t.Errorf("text %s, structuredContent %s, want %s", once.text, once.structd, want)
		}
		if again := call("increment", `{"handle":"`+second+`"}`); !strings.Contains(again.text, `"count":2`) {
			t.Errorf("incremented twice: %s", again.raw)
		}
		call("read", `{"state":"`+second+`"}`)
		if (first == second) != (mode == "stored") {
			t.Errorf("handles %s and %s", first, second)
		}
		want := []string{`{"handle":{"count":0,"note":"` + canary + `"}}`, `{"handle":{"count":1,"note":"` + canary + `"}}`}
		if diff := cmp.Diff(want, g.bodies(mode+".increment")); diff != "" {
			t.Errorf("the service got (-want +got):\n%s", diff)
		}
		read := `{"state":{"count":1,"note":"` + canary + `"}}`
		if mode == "stored" { // the handle is the same one, and shows the newest state
			read = strings.Replace(read, "1", "2", 1)
		}
		if got := g.bodies(mode + ".read"); !slices.Equal(got, []string{read}) {
			t.Errorf("the service got %q, want %s", got, read)
		}
		if strings.Contains(created.raw+once.raw, canary) {
			t.Errorf("the state is readable in %s\n%s", created.raw, once.raw)
		}
	})
}

// Only the value of the one argument changes.
func TestOtherArgumentsStayByteForByte(t *testing.T) {
	eachDoor(t, func(t *testing.T, g *stateGateway, mode string, call func(tool, arguments string) toolAnswer) {
		quoted := strconv.Quote(call("put", `{}`).handle())
		escaped := `"\u00` + strconv.FormatInt(int64(quoted[1]), 16) + quoted[2:]
		state := `["` + canary + `"]`
		var want []string
		for _, form := range []string{
			"{ \"z\" : 1.0,\"handle\"  :\t%s , \"a\":9007199254740993, \"e\":1E+2 ,\"u\":\"<>&é\\u00e9\\ud800\", \"n\":null}",
			`{"\u0068andle":%s,"o":{"handle":"x","Handle":[ ]}}`,
			`{"handle ":"x","handles":1,"\u0000handle":2,"handle":%s}`,
		} {
			for _, handle := range []string{quoted, escaped} {
				if a := call("put", fmt.Sprintf(form, handle)); a.isError || !a.result {
					t.Errorf("%s: %s", form, a.raw)
				}
				want = append(want, fmt.Sprintf(form, state))
			}
		}
		if diff := cmp.Diff(want, g.bodies(mode + ".put")[1:]); diff != "" {
			t.Errorf("the service got (-want +got):\n%s", diff)
		}
	})
}

// Nothing the agent writes may pass for a state.
func TestNothingPassesForAState(t *testing.T) {
	eachDoor(t, func(t *testing.T, g *stateGateway, mode string, call func(tool, arguments string) toolAnswer) {
		for _, tt := range []struct{ tool, arguments string }{
			{"put", `{"handle":"VALID","handle":{"count":9}}`},
			{"put", `{"handle":"VALID","\u0068andle":"x"}`},
			{"put", `{"handle":"VALID","Handle":{"count":9}}`},
			{"put", `{"HANDLE":{"count":9}}`},
			{"put", `{"\u0048andle":{"count":9}}`},
			{"read", `{"state":"VALID","ſtate":{"count":9}}`},
			{"read", `{"state":"VALID","\u017ftate":{"count":9}}`},
			{"read", `{"state":"VALID","\ufb06ate":{"count":9}}`},
			{"put", `{"handle\u0000":{"count":9},"handle":"VALID"}`},
			{"put", `{"handle\u0000x":{"count":9}}`},
			{"read", `{"STATE":1}`}, // before the schema, which misses "state"
		} {
			valid := call("create", `{}`).handle()
			if a := call(tt.tool, strings.ReplaceAll(tt.arguments, "VALID", valid)); a.code != -32602 && !strings.Contains(tt.arguments, `"VALID":{`) {
				t.Errorf("%s: %s", tt.arguments, a.raw)
			}
			if a := call(tt.tool, tt.arguments); a.code != -32602 {
				t.Errorf("%s: %s", tt.arguments, a.raw)
			}
		}
		for _, arguments := range []string{`{"handle":{"count":9}}`, `{"handle":5}`, `{"handle":null}`, `{"handle":[]}`, `{}`} {
			call("increment", arguments).wantFailure("do not fit the tool's inputSchema", "Nothing was called")
		}
		for _, handle := range []string{``, `x`, `h1.k1.e30.e30`, `s1.AAAAAAAAAAAAAAAAAAAAAA`, `{\"count\":9}`, strings.Repeat("h", 1<<17)} {
			a := call("increment", `{"handle":"`+handle+`"}`)
			if want := `The argument "handle": the handle is not valid here; create a new one. Nothing was called.`; a.text != want || !a.isError {
				t.Errorf("%.50s: %s", handle, a.raw)
			}
			g.wantOutcome("handle_not_valid")
		}
		for _, tool := range []string{"increment", "put", "read"} {
			if got := g.bodies(mode + "." + tool); len(got) > 0 {
				t.Errorf("%s was called with %q", tool, got)
			}
		}
	})
}

// A schema that lets the argument be something else is no way around.
func TestAnArgumentThatIsNoStringIsNoHandle(t *testing.T) {
	g := newStateGateway(t)
	tools := g.tools([]byte(strings.ReplaceAll(stateTools, "MODE", "signed")))
	for _, tool := range tools {
		if tool.Name == "signed.put" {
			loose := *tool.Tool
			loose.Input = g.tools(readFile(t, "testdata/manifest.json"))[4].Input
			tool.Tool = &loose
		}
	}
	g.swap("claims", tools...)
	for _, value := range []string{`null`, `5`, `{"count":9}`} {
		g.do("signed.put", `{"handle":`+value+`}`).wantFailure("not valid here")
	}
	if got := g.bodies("signed.put"); len(got) > 0 {
		t.Errorf("the service got %q", got)
	}
}

func TestHandlesHoldWhereTheyWereMade(t *testing.T) {
	g := newStateGateway(t)
	for _, mode := range modes {
		made := g.do(mode+".create", `{}`).handle()
		g.swap("other", g.routes.snapshots["claims"].Tools...)
		body, header := modernRequest(methodCall, `"name":"`+mode+`.increment","arguments":{"handle":"`+made+`"}`)
		decodeCall(t, g.postTo("/mcp/other", body, header...).body).wantFailure("not valid here")
		g.do(mode+".increment", `{"handle":"`+made+`"}`).handle()
		// Another caller's handle is as good as made up.
		ctx := context.WithoutCancel(t.Context())
		result, err := g.core.call(ctx, &call{route: "claims", caller: Caller{Principal: "somebody"}, tool: registry.ToolName(mode + ".increment"), arguments: []byte(`{"handle":"` + made + `"}`)})
		if err != nil || !result.IsError || !strings.Contains(string(result.Content), "not valid here") {
			t.Errorf("%s: %s %v", mode, result.Content, err)
		}
	}
}

func TestResultsWithoutAState(t *testing.T) {
	eachDoor(t, func(t *testing.T, g *stateGateway, mode string, call func(tool, arguments string) toolAnswer) {
		made := call("put", `{}`).handle()
		g.answer(mode+".put", `{"count":7}`)
		if a := call("put", `{"handle":"`+made+`"}`); a.isError || a.text != `{"count":7}` {
			t.Errorf("an update without a state: %s", a.raw)
		}
		g.wantOutcome("ok")
		if lines := g.lines(`"level":"DEBUG","msg":"an update left the state as it was","route":"claims","tool":"` + mode + `.put","service":"state-service","mode":"` + mode + `","operation":"update"`); len(lines) != 1 {
			t.Errorf("lines about it: %q", lines)
		}
		call("put", `{}`).wantFailure("did run", `"handle"`, `{"count":7}`)
		g.wantOutcome("state_missing")
		g.answer(mode+".put", `{"handle":1,"Handle":"`+canary+`"}`)
		a := call("put", `{"handle":"`+made+`"}`)
		a.wantFailure("did run", "not kept", `"handle"`)
		g.wantOutcome("state_ambiguous")
		if strings.Contains(a.raw, canary) {
			t.Errorf("the state is in %s", a.raw)
		}
		g.answerAs(mode+".put", 422, "application/json", `{"handle":"mine"}`)
		call("put", `{}`).wantFailure(`HTTP 422`, `{"handle":"mine"}`)
		g.wantOutcome("tool_error")

		g.answer(mode+".read", `{"ok":true}`)
		call("read", `{"state":"`+made+`"}`)
		if got := g.bodies(mode + ".read"); !slices.Equal(got, []string{`{"state":["` + canary + `"]}`}) {
			t.Errorf("the state did not stay as it was: %q", got)
		}
	})
}

func TestReadyResultsCarryState(t *testing.T) {
	eachDoor(t, func(t *testing.T, g *stateGateway, mode string, call func(tool, arguments string) toolAnswer) {
		g.answerAs(mode+".create", 200, "application/vnd.mcp.call-tool-result+json",
			`{"content":[{"type":"text","text":"{\"handle\":\"`+canary+`\"}"}],"structuredContent":{"handle":"`+canary+`"}}`)
		a := call("create", `{}`)
		if want := `{"handle":"` + a.handle() + `"}`; a.structd != want || strings.Contains(a.raw, canary) {
			t.Errorf("got %s", a.raw)
		}
		call("read", `{"state":"`+a.handle()+`"}`)
		if got := g.bodies(mode + ".read"); !slices.Equal(got, []string{`{"state":"` + canary + `"}`}) {
			t.Errorf("the service got %q", got)
		}
	})
}

func TestStatesHaveASize(t *testing.T) {
	g := newStateGateway(t)
	g.answer("signed.create", `{"handle":"`+strings.Repeat("x", 1024)+`"}`)
	g.do("signed.create", `{}`).wantFailure("The Tool Service did run, but its new state was not kept: ", "mode stored")
	g.wantOutcome("state_too_large")
	g.answer("stored.create", `{"handle":"`+strings.Repeat("x", handle.MaxState)+`"}`)
	g.do("stored.create", `{}`).wantFailure("did run", "not kept", strconv.Itoa(handle.MaxState))
	g.wantOutcome("state_too_large")
	g.answer("stored.create", `{"handle":"`+strings.Repeat("x", handle.MaxState-2)+`"}`)
	made := g.do("stored.create", `{}`).handle()
	g.do("stored.read", `{"state":"`+made+`"}`)
	if got := g.bodies("stored.read"); len(got) != 1 || len(got[0]) != len(`{"state":}`)+handle.MaxState {
		t.Errorf("the service got %d bodies", len(got))
	}
}

func TestOfTwoUpdatesOneWins(t *testing.T) {
	g := newStateGateway(t)
	made := g.do("stored.create", `{}`).handle()
	arguments := `{"handle":"` + made + `"}`
	won := false
	g.service.handle("stored.increment", func(w http.ResponseWriter, r *http.Request) {
		if !won { // the other call comes and goes while this one is with the service
			won = true
			g.do("stored.increment", arguments).handle()
		}
		increment(w, r)
	})
	lost := g.do("stored.increment", arguments)
	if want := "The Tool Service did run, but its new state was not kept: state changed, read it again."; lost.text != want || !lost.isError {
		t.Errorf("the loser: %s", lost.raw)
	}
	g.wantOutcome("state_changed")
	if again := g.do("stored.increment", arguments); !strings.Contains(again.text, `"count":2`) {
		t.Errorf("after one update that won: %s", again.raw)
	}
}

// made is a handle that a gateway made, without a Tool Service.
func (g *stateGateway) made(mode string, ttl time.Duration) string {
	g.t.Helper()
	keeper := g.core.keepers[registry.StateMode(mode)]
	made, err := keeper.Create(g.t.Context(), handle.Binding{Route: "claims", Service: "state-service", Principal: cost.Anonymous}, ttl, []byte(`{"note":"`+canary+`"}`))
	if err != nil {
		g.t.Fatal(err)
	}
	return made
}

func TestHandlesExpire(t *testing.T) {
	g := newStateGateway(t)
	synctest.Test(t, func(t *testing.T) {
		g.t = t
		for _, mode := range modes {
			made := g.made(mode, time.Minute)
			time.Sleep(61 * time.Second)
			g.do(mode+".increment", `{"handle":"`+made+`"}`).wantFailure(`The argument "handle": the handle expired after 60 s; create a new one. Nothing was called.`)
			g.wantOutcome("handle_expired")
		}
	})
}

const (
	awayWarning = "the state store is unavailable: tools with stored state fail, others do not"
	keyWarning  = "a handle names a key that is not here: replicas may have different keys"
)

func TestTheStoreIsAway(t *testing.T) {
	g := newStateGateway(t)
	made := g.do("stored.create", `{}`).handle()
	increments := `{"handle":"` + made + `"}`

	g.store.setAway(true)
	if a := g.do("stored.increment", increments); a.text != `The argument "handle": state store unavailable, try again. Nothing was called.` || !a.isError {
		t.Errorf("in: %s", a.raw)
	}
	g.wantOutcome("state_store_unavailable")
	if a := g.do("stored.create", `{}`); a.text != "The Tool Service did run, but its new state was not kept: state store unavailable, try again." || !a.isError {
		t.Errorf("out, of a creation: %s", a.raw)
	}
	g.wantOutcome("state_store_unavailable")
	if len(g.bodies("stored.increment")) > 0 || len(g.bodies("stored.create")) != 2 {
		t.Error("the service was called where it should not be, or the other way round")
	}
	for _, tool := range []string{"signed.create", "claims.echo"} {
		if a := g.do(tool, `{}`); a.isError {
			t.Errorf("%s fails as well: %s", tool, a.raw)
		}
	}
	g.store.setAway(false)
	g.service.handle("stored.increment", func(w http.ResponseWriter, r *http.Request) { g.store.setAway(true); increment(w, r) })
	// The update may have happened: who just tries again may make his change twice.
	if a := g.do("stored.increment", increments); a.text != "The Tool Service did run, but whether its new state was kept is not known: state store unavailable; read the state before you try again." || !a.isError {
		t.Errorf("out, of an update: %s", a.raw)
	}
	g.wantOutcome("state_store_unavailable")
	g.store.setAway(false)
	g.do("stored.read", `{"state":"`+made+`"}`)
	if got := g.bodies("stored.read"); !slices.Equal(got, []string{`{"state":{"count":0,"note":"` + canary + `"}}`}) {
		t.Errorf("after it is back: %q", got)
	}
}

func TestOneWarningAMinuteForAStoreThatIsAway(t *testing.T) {
	g := newStateGateway(t)
	g.store.setAway(true)
	increment := func() { g.do("stored.increment", `{"handle":"s1.AAAAAAAAAAAAAAAAAAAAAA"}`).wantFailure("unavailable") }
	synctest.Test(t, func(t *testing.T) {
		g.t = t
		for range 3 {
			increment()
		}
		want := `"level":"WARN","msg":"` + awayWarning + `","route":"claims","tool":"stored.increment","service":"state-service","mode":"stored","operation":"open","kind":"unavailable","cause":"no connection","calls":1}`
		if lines := g.lines(awayWarning); len(lines) != 1 || !strings.HasSuffix(lines[0], want+"\n") {
			t.Errorf("warnings: %q", lines)
		}
		time.Sleep(time.Minute)
		increment()
		if lines := g.lines(awayWarning); len(lines) != 2 || !strings.Contains(lines[1], `"calls":3`) {
			t.Errorf("warnings: %q", lines)
		}
	})
}

func TestReplicasWithDifferentKeys(t *testing.T) {
	other := newStateGateway(t, func(o *Options) { o.Signed = handle.NewSigned(testKeys(t, "k2"), 1024) })
	g := newStateGateway(t)
	synctest.Test(t, func(t *testing.T) {
		g.t = t
		other.t = t
		made := other.made("signed", time.Hour)
		for range 3 {
			g.do("signed.increment", `{"handle":"`+made+`"}`).wantFailure("not valid here")
			g.do("signed.increment", `{"handle":"forged"}`).wantFailure("not valid here")
		}
		want := `"level":"WARN","msg":"` + keyWarning + `","route":"claims","tool":"signed.increment","service":"state-service","mode":"signed","operation":"open","kind":"unknown_key","calls":1}`
		if lines := g.lines(keyWarning); len(lines) != 1 || !strings.HasSuffix(lines[0], want+"\n") {
			t.Errorf("warnings: %q", lines)
		}
		time.Sleep(59 * time.Second)
		g.do("signed.increment", `{"handle":"`+made+`"}`)
		time.Sleep(time.Second)
		g.do("signed.increment", `{"handle":"`+made+`"}`)
		if lines := g.lines(keyWarning); len(lines) != 2 || !strings.Contains(lines[1], `"calls":4}`) {
			t.Errorf("warnings: %q", lines)
		}
		if lines := g.lines(`"level":"DEBUG","msg":"handle refused, or state not kept"`); len(lines) != 6 || !strings.Contains(lines[0], `"kind":"malformed"`) {
			t.Errorf("the others: %q", lines)
		}
	})
}

// What is wrong is counted; what it was is told nobody.
func TestHandlesAndStatesAreNowhere(t *testing.T) {
	log := new(eventLog)
	g := newStateGateway(t, func(o *Options) { o.Observer = log })
	var secrets []string
	for _, mode := range modes {
		made := g.do(mode+".create", `{}`).handle()
		secrets = append(secrets, made)
		g.do(mode+".increment", `{"handle":"`+made+`"}`)
		g.do(mode+".increment", `{"handle":"h1.secret-key.e30.`+strings.Repeat("A", 43)+`"}`)
		g.do(mode+".increment", `{"handle":5}`)
		g.do(mode+".put", `{"Handle":"`+made+`"}`)
		g.answer(mode+".put", `{"count":1}`)
		g.do(mode+".put", `{"handle":"`+made+`"}`)
	}
	g.store.setAway(true)
	g.do("stored.increment", `{"handle":"`+secrets[1]+`"}`)
	g.answer("signed.create", `{"handle":"`+canary+strings.Repeat("x", 1024)+`"}`)
	g.do("signed.create", `{}`)
	secrets = append(secrets, canary, base64.RawURLEncoding.EncodeToString([]byte(canary)), "secret-key")
	for _, secret := range secrets {
		if text := g.log.String() + fmt.Sprintf("%+v", log.ended); strings.Contains(text, secret) {
			t.Errorf("%q is in the log or in what the observer hears", secret)
		}
	}
	event := func(mode registry.StateMode, operation, outcome string) HandleEvent {
		return HandleEvent{mode, operation, outcome}
	}
	want := []CallEvent{
		{HandleOut: event("signed", "create", "ok")},
		{HandleIn: event("signed", "open", "ok"), HandleOut: event("signed", "update", "ok")},
		{HandleIn: event("signed", "open", "unknown_key")},
		{}, {},
		{HandleIn: event("signed", "open", "ok"), HandleOut: event("signed", "update", "unchanged")},
		{HandleOut: event("stored", "create", "ok")},
		{HandleIn: event("stored", "open", "ok"), HandleOut: event("stored", "update", "ok")},
		{HandleIn: event("stored", "open", "malformed")},
		{}, {},
		{HandleIn: event("stored", "open", "ok"), HandleOut: event("stored", "update", "unchanged")},
		{HandleIn: event("stored", "open", "unavailable")},
		{HandleOut: event("signed", "create", "too_large")},
	}
	for _, e := range want {
		for _, h := range []HandleEvent{e.HandleIn, e.HandleOut} {
			if h != (HandleEvent{}) && !slices.Contains(HandleEvents(), h) {
				t.Errorf("%v is not among those that there can be", h)
			}
		}
	}
	ignored := cmpopts.IgnoreFields(CallEvent{}, "Route", "Service", "Outcome", "Total", "Upstream", "Forwarded", "CostMissing")
	if diff := cmp.Diff(want, log.ended, ignored); diff != "" {
		t.Errorf("the observer heard (-want +got):\n%s", diff)
	}
}

// A caller that leaves is no fault of the store, and gets no state.
func TestACallerThatLeavesWhileItsStateIsKept(t *testing.T) {
	g := newStateGateway(t)
	made := g.do("stored.create", `{}`).handle()
	for operations := range 2 { // opening, updating
		ctx, leave := context.WithCancel(t.Context())
		done := 0
		g.store.before = func() {
			if done++; done > operations {
				leave()
			}
		}
		in := &call{route: "claims", caller: anonymous(), tool: "stored.increment", arguments: []byte(`{"handle":"` + made + `"}`)}
		if result, err := g.core.call(ctx, in); err == nil {
			t.Errorf("who left was answered: %s", result.Content)
		}
		leave()
		g.wantOutcome("canceled")
	}
	g.store.before = nil
	g.do("stored.read", `{"state":"`+made+`"}`)
	if got := g.bodies("stored.read"); len(got) != 1 || !strings.Contains(got[0], `"count":0`) {
		t.Errorf("the state is %q", got)
	}
	if lines := g.lines(`"level":"WARN"`); len(lines) > 0 {
		t.Errorf("warnings: %q", lines)
	}
	if n := len(g.bodies("stored.increment")); n != 1 {
		t.Errorf("the service was called %d times, want once", n)
	}

	// Nor is a store asked for somebody who left before.
	g.store.before = func() { t.Error("the store was asked") }
	ctx, leave := context.WithCancel(t.Context())
	leave()
	snapshot, _ := g.routes.Current("claims")
	tool := snapshot.Tool("stored.create")
	state, err := g.core.stateOf(&call{route: "claims", caller: anonymous()}, tool, new(callRecord))
	if err != nil {
		t.Fatal(err)
	}
	reading := upstream.Read("claims", tool, &upstream.Answer{Status: http.StatusOK, ContentType: "application/json", Body: []byte(`{"handle":1}`)}, false)
	if kept, refusal, err := state.out(ctx, &reading); err == nil || kept != "" || refusal != "" {
		t.Errorf("got %q, %q, %v", kept, refusal, err)
	}
}

// A store that is slow does not fill the places of a Tool Service that is not.
func TestTheServiceIsFreeWhileItsStateIsKept(t *testing.T) {
	g := newStateGateway(t)
	inFlight := -1
	g.store.before = func() { inFlight = g.core.upstream.InFlight()["state-service"] }
	g.do("stored.create", `{}`).handle()
	if inFlight != 0 {
		t.Errorf("%d calls in flight while a state is kept", inFlight)
	}
}

// A mode that is not served is refused by the registry; here it is a bug.
func TestAModeThatIsNotServed(t *testing.T) {
	g := newStateGateway(t, func(o *Options) { o.Signed, o.Stored = nil, nil })
	for _, mode := range modes {
		if a := g.do(mode+".create", `{}`); a.code != -32603 {
			t.Errorf("%s: %s", mode, a.raw)
		}
		g.wantOutcome("internal_error")
	}
	if got := g.service.received(); len(got) > 0 {
		t.Errorf("the service was called: %v", got)
	}
}
