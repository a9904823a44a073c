package main

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tollgate/redistest"
)

// TestNoSecretGetsOut runs a talkative gateway among origins that fail in every
// way and say secrets while they do, and looks for what it was told in everything
// it writes and answers.
func TestNoSecretGetsOut(t *testing.T) {
	w := newTalkativeWorld(t)
	redis := w.startRedis(t)
	config, env := w.config(t, w.server.URL, w.redisURL(redis.Addr(), w.redisUser, w.redisPassword))
	g := serve(t, command{args: []string{"--config", config, "--log-level", "debug", "--pprof"}, env: env})

	w.callEverything(t, g)
	handles := w.callWithState(t, g)
	w.failThePortal(t, g)
	redis.Kill()
	if a := w.useHandle(t, g, "stored", handles["stored"]); !strings.Contains(a.body, "state store unavailable") {
		t.Errorf("without Redis: status %d, %s", a.status, a.body)
	}
	w.searchViews(t, g)
	w.relayEverything(t, g)

	held := make(chan answer, 1)
	go func() { held <- w.call(t, g, "hold", w.callerHeaders()) }()
	select {
	case <-w.held:
	case a := <-held:
		t.Fatalf("the call was not held: status %d, %s", a.status, a.body)
	case <-time.After(patience):
		t.Fatal("the call reaches nobody")
	}
	g.signal(t, syscall.SIGTERM)
	g.stderr.await(t, g.exited, "listener closed")
	w.searchViews(t, g)
	close(w.let)
	if a := <-held; !strings.Contains(a.body, w.result) {
		t.Errorf("the held call: status %d, %s", a.status, a.body)
	}
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(g.stderr.text(), `"msg":"call"`); n < len(toolFaults) {
		t.Errorf("the log has %d calls", n)
	}
	w.secrets.search(t, "the log", inLog, g.stderr.text()+g.stdout.text())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets.search(t, "the traces", inTrace, string(w.spans))
}

// TestNoSecretGetsOutWhileNothingCanBeReached: who looks for the reason is told
// it, in the log and at last by a dump of everything that runs.
func TestNoSecretGetsOutWhileNothingCanBeReached(t *testing.T) {
	w := newTalkativeWorld(t)
	w.keysInFile = true
	redis := w.startRedis(t)
	for name, redisURL := range map[string]string{
		"wrong password": w.redisURL(redis.Addr(), w.redisUser, w.secrets.add("a wrong password", forNobody)),
		"unknown user":   w.redisURL(redis.Addr(), w.secrets.addName("an unknown user", forNobody), w.redisPassword),
		"refused":        w.redisURL("127.0.0.1:1", w.redisUser, w.redisPassword),
		"no such host":   w.redisURL(w.host+".invalid", w.redisUser, w.redisPassword),
		"TLS":            strings.Replace(w.redisURL(redis.Addr(), w.redisUser, w.redisPassword), "redis:", "rediss:", 1),
	} {
		t.Run(name, func(t *testing.T) {
			config, env := w.config(t, "http://127.0.0.1:1", redisURL)
			g := serve(t, command{args: []string{"--config", config, "--log-level", "debug", "--pprof"}, env: env})
			a := g.modern(t, "claims", "tools/list", "", "")
			w.secrets.search(t, "the list", inAnswer, fmt.Sprint(a.header)+a.body)
			w.searchViews(t, g)
			g.stderr.await(t, g.exited, warnsRedisAway)
			g.stderr.await(t, g.exited, "traces cannot be delivered")
			g.signal(t, syscall.SIGQUIT)
			g.wait(t)
			w.secrets.search(t, "the log", inLog, g.stderr.text()+g.stdout.text())
		})
	}
}

// startRedis is a Redis with a user of its own and with copies that are none.
func (w *talkativeWorld) startRedis(t *testing.T) *redistest.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "redis.conf")
	writeFile(t, file, fmt.Sprintf("user %s on >%s ~* +@all\n", w.redisUser, w.redisPassword))
	redis := redistest.Start(t, file)
	said := w.secrets.add("a value in Redis", forNobody)
	for _, key := range []string{"portal", "route:claims", "route:faulty"} {
		redis.Do("SET", "tollgate:registry:"+key, said)
	}
	return redis
}

func (w *talkativeWorld) redisURL(addr, user, password string) string {
	u := url.URL{Scheme: "redis", User: url.UserPassword(user, password), Host: addr}
	return u.String()
}

// callerHeaders are headers as a caller may send them: those that pass through
// to Tool Services and those that do not.
func (w *talkativeWorld) callerHeaders() (header []string) {
	names := append([]string{"x-api-key", "cookie", "proxy-authorization", "x-forwarded-for", "referer", "user-agent", "tracestate", "baggage", "x-unlisted"}, passedHeaders...)
	for _, name := range names {
		value := w.secrets.add("the caller's header "+name, forNobody)
		if name == "authorization" {
			value = "Bearer " + value
		}
		header = append(header, name, value)
	}
	return header
}

// call calls a tool with arguments that nobody but the agent knows.
func (w *talkativeWorld) call(t *testing.T, g *gateway, tool string, header []string) answer {
	said := w.secrets.add("an argument of "+tool, forAgent)
	return g.modern(t, "claims", "tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":{"id":%q,"large":9007199254740993}`, tool, said), header...)
}

// callEverything sends what callers can send, right and wrong.
func (w *talkativeWorld) callEverything(t *testing.T, g *gateway) {
	t.Helper()
	header := w.callerHeaders()
	look := func(what string, a answer) {
		t.Helper()
		w.secrets.search(t, "the answer to "+what, inAnswer, fmt.Sprint(a.header)+a.body)
	}
	for _, tool := range append([]string{"echo", "typed"}, toolFaults...) {
		a := w.call(t, g, tool, header)
		if tool == "echo" && !strings.Contains(a.body, w.result) {
			t.Errorf("the headers did not pass through: %s", a.body)
		}
		if a.status != 200 || a.Result == nil {
			t.Errorf("%s: status %d, %s", tool, a.status, a.body)
		}
		look(tool, a)
	}
	secret := func(what string) string { return w.secrets.add(what, forAgent) }
	era := []string{"MCP-Protocol-Version", "2026-07-28"}
	for what, a := range map[string]answer{
		"an invalid argument": g.modern(t, "claims", "tools/call", "echo", fmt.Sprintf(`"name":"echo","arguments":{"kind":%q}`, secret("an invalid argument")), header...),
		"an unknown tool":     g.modern(t, "claims", "tools/call", secret("an unknown tool"), fmt.Sprintf(`"name":%q`, w.secrets.all[len(w.secrets.all)-1].value), header...),
		"an unknown route":    g.modern(t, w.secrets.addName("an unknown route", forTraces), "tools/list", "", "", header...),
		"an unknown method":   g.modern(t, "claims", w.secrets.addName("an unknown method", forAgent), "", "", header...),
		"a cursor":            g.modern(t, "claims", "tools/list", "", fmt.Sprintf(`"cursor":%q`, secret("a cursor")), header...),
		"a broken body":       g.post(t, "claims", `{"broken `+secret("a broken body"), append(era, header...)...),
		"an id":               g.post(t, "claims", fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/list"}`, w.secrets.add("an id", forTraces)), header...),
		"an origin":           g.modern(t, "claims", "tools/list", "", "", append([]string{"Origin", "http://" + w.secrets.addName("an origin", forAgent)}, header...)...),
		"a client's name": g.post(t, "claims", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":%q,"version":"1"}}}`,
			secret("a protocol version"), secret("a client's name")), header...),
		"a route that cannot be served": g.modern(t, "faulty", "tools/list", "", "", header...),
		"an invalid route":              g.modern(t, "invalid", "tools/list", "", "", header...),
	} {
		look(what, a)
	}
}

// callWithState makes states, uses them, and tries handles that are not valid. It
// returns the handle of each mode.
func (w *talkativeWorld) callWithState(t *testing.T, g *gateway) map[string]string {
	t.Helper()
	handles := map[string]string{}
	for _, mode := range []string{"signed", "stored"} {
		a := g.modern(t, "claims", "tools/call", "keep-"+mode, fmt.Sprintf(`"name":"keep-%s"`, mode))
		read, err := readStateful([]byte(a.body))
		made := read.Handle
		if err != nil || made == "" {
			t.Fatalf("keep-%s makes no handle: %v, status %d, %s", mode, err, a.status, a.body)
		}
		handles[mode] = made
		w.secrets.note("the end of a handle, "+mode, forAgent, made[strings.LastIndexByte(made, '.')+1:])
		w.secrets.search(t, "the answer with a handle", inAnswer, a.body)
		if a := w.useHandle(t, g, mode, made); !strings.Contains(a.body, `\"used\":true`) {
			t.Errorf("the Tool Service does not get the state: status %d, %s", a.status, a.body)
		}
		other := map[string]string{"signed": "stored", "stored": "signed"}[mode]
		for _, invalid := range []string{
			made[:len(made)-1], made + "A", w.secrets.add("something for a handle", forAgent),
			strings.Replace(made, ".signs.", ".verifies.", 1) + " ",
			strings.Replace(made, ".signs.", "."+w.secrets.addName("a key's id", forAgent)+".", 1),
		} {
			if mode == "stored" && invalid == made {
				continue // there is no key to replace
			}
			if a := w.useHandle(t, g, mode, invalid); !strings.Contains(a.body, "not valid here") {
				t.Errorf("a handle that is not valid: status %d, %s", a.status, a.body)
			}
		}
		if a := w.useHandle(t, g, other, made); !strings.Contains(a.body, "not valid here") {
			t.Errorf("a handle of the other mode: status %d, %s", a.status, a.body)
		}
	}
	return handles
}

// useHandle calls a tool with a handle of one mode.
func (w *talkativeWorld) useHandle(t *testing.T, g *gateway, mode, handle string) answer {
	t.Helper()
	a := g.modern(t, "claims", "tools/call", "use-"+mode, fmt.Sprintf(`"name":"use-%s","arguments":{"handle":%q}`, mode, handle))
	w.secrets.search(t, "the answer to a handle", inAnswer, fmt.Sprint(a.header)+a.body)
	return a
}

// failThePortal has the Portal fail in every way.
func (w *talkativeWorld) failThePortal(t *testing.T, g *gateway) {
	t.Helper()
	if w.asked.Load() == 0 {
		t.Error("the Portal did not get its token")
	}
	for _, fault := range portalFaults {
		w.portal.Store(fault)
		before := w.asked.Load()
		for late := time.Now().Add(patience); w.asked.Load() == before; { // its retry clock may say no
			if time.Now().After(late) {
				t.Fatal("nobody asks the Portal")
			}
			a := g.modern(t, "claims", "tools/list", "", "")
			w.secrets.search(t, "the list", inAnswer, fmt.Sprint(a.header)+a.body)
		}
		w.searchViews(t, g)
	}
}

// searchViews looks at everything the management listener answers.
func (w *talkativeWorld) searchViews(t *testing.T, g *gateway) {
	t.Helper()
	for path, want := range map[string]int{
		"/actuator/health":               0,
		"/actuator/health/liveness":      200,
		"/actuator/health/readiness":     0,
		"/actuator/toolBundles":          200,
		"/actuator/info":                 200,
		"/actuator/loggers":              200,
		"/actuator/nothing":              404,
		"/metrics":                       200,
		"/debug/pprof/":                  200,
		"/debug/pprof/cmdline":           200,
		"/debug/pprof/heap?debug=1":      200,
		"/debug/pprof/goroutine?debug=2": 200,
	} {
		a := g.management(t, http.MethodGet, path)
		if want != 0 && a.status != want {
			t.Errorf("%s: status %d, %.200s", path, a.status, a.body)
		}
		w.secrets.search(t, path, inView, fmt.Sprint(a.header)+a.body)
	}
	if a := g.management(t, http.MethodGet, "/actuator/info"); !strings.Contains(a.body, `"handleKeys":[{"id":"signs",`) || !strings.Contains(a.body, `{"id":"verifies",`) {
		t.Errorf("the keys of handles are not in use: %s", a.body)
	}
	a := g.management(t, http.MethodPost, "/actuator/refresh/faulty")
	w.secrets.search(t, "a refresh", inView, fmt.Sprint(a.header)+a.body)
}

// relayEverything runs the relay, and a gateway of its own, over lines.
func (w *talkativeWorld) relayEverything(t *testing.T, g *gateway) {
	t.Helper()
	key := w.secrets.add("the API key", forNobody)
	config, env := w.config(t, w.server.URL, w.redisURL("127.0.0.1:1", w.redisUser, w.redisPassword))
	args := []string{"stdio", "--log-level", "debug"}
	header := w.callerHeaders()
	for i := 0; i < len(header); i += 2 {
		if name := header[i]; name != "proxy-authorization" && name != "cookie" {
			args = append(args, "--header", name+": "+header[i+1])
		}
	}
	said := w.secrets.add("an argument on a line", forAgent)
	call := func(id int, tool string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"id":%q},%s}}`, id, tool, said, modernMeta)
	}
	stdin := strings.Join([]string{call(1, "echo"), call(2, "failing"), call(3, "garbage"), `{"broken ` + said, `[` + said + `]`}, "\n") + "\n"
	for name, more := range map[string][]string{
		"own route":       {"--route", "claims", "--config", config},
		"relay":           {"--url", g.URL + "/mcp/claims"},
		"relay, refused":  {"--url", "http://127.0.0.1:1/" + w.path},
		"relay, failing":  {"--url", w.server.URL + "/" + w.path + "/failing"},
		"relay, 401":      {"--url", w.server.URL + "/" + w.path + "/refusing"},
		"relay, redirect": {"--url", w.server.URL + "/" + w.path + "/redirecting"},
		"relay, garbage":  {"--url", w.server.URL + "/" + w.path + "/garbage"},
	} {
		args := args
		if strings.HasPrefix(name, "relay") { // a credential of the caller's own beside the key is refused
			args = withoutHeader(args, "authorization", "x-api-key")
		}
		o := command{args: append(args[:len(args):len(args)], more...), env: append(env, "TOLLGATE_API_KEY="+key), stdin: stdin}.run(t)
		w.secrets.search(t, "what stdio answers: "+name, inAnswer, o.stdout)
		w.secrets.search(t, "what stdio logs: "+name, inLog, o.stderr+" ")
	}
}

// withoutHeader is a command line without --header flags of those names.
func withoutHeader(args []string, names ...string) (kept []string) {
	for i := 0; i < len(args); i++ {
		drop := false
		for _, name := range names {
			drop = drop || args[i] == "--header" && strings.HasPrefix(args[i+1], name+":")
		}
		if drop {
			i++
			continue
		}
		kept = append(kept, args[i])
	}
	return kept
}
