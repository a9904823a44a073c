package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// apiKeyIs is the environment of whoever has an API key and no HTTP.
func apiKeyIs(key string) []string { return []string{"TOLLGATE_API_KEY=" + key} }

// TestWithoutHTTPTheKeyComesFromTheEnvironment: stdio, tools and call look at it
// before they do anything, and say what is wrong with it.
func TestWithoutHTTPTheKeyComesFromTheEnvironment(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("plants", "plant"), apiKeyEntry("labs", "lab"))
	config := guardedConfig(t, requires(file, ""))
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	tokensOnly := guardedConfig(t, requires("", issuer.issuer()))
	var secrets sentinels
	for id, key := range keys {
		secrets.note("the API key "+id, forNobody, key)
	}
	token := issuer.token(t, resourceOf("plant")).Access
	secrets.note("an access token", forNobody, token)

	for name, args := range map[string][]string{
		"stdio": {"stdio", "--route", "plant"},
		"tools": {"tools", "--route", "plant"},
		"call":  {"call", "--route", "plant", "telemetry_projects", "{}"},
	} {
		for what, test := range map[string]struct {
			config string
			env    []string
			says   string // in the end, on standard error; "" is admitted
		}{
			"good":              {config, apiKeyIs(keys["plants"]), ""},
			"missing":           {config, nil, "tollgate: auth.mode is required: set TOLLGATE_API_KEY to an API key of " + file},
			"empty":             {config, apiKeyIs(""), "tollgate: auth.mode is required: set TOLLGATE_API_KEY to an API key of " + file},
			"wrong":             {config, apiKeyIs(keys["plants"] + "x"), "tollgate: TOLLGATE_API_KEY holds no API key of " + file},
			"an access token":   {config, apiKeyIs(token), "tollgate: TOLLGATE_API_KEY holds no API key of " + file},
			"for another route": {config, apiKeyIs(keys["labs"]), "tollgate: route plant does not exist, or the API key in TOLLGATE_API_KEY may not use it"},
			"where there are no keys": {tokensOnly, apiKeyIs(keys["plants"]),
				"tollgate: auth.mode is required, and auth.keysFile is not set: without HTTP a caller can only show an API key"},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				o := command{
					args:  append(args, "--fixtures", "--log-level", "debug", "--config", test.config),
					env:   test.env,
					stdin: strings.Join(conversations["2026-07-28"], "\n") + "\n",
				}.run(t)
				secrets.search(t, "what it writes", inLog, o.stdout+o.stderr)
				if test.says != "" {
					if o.code != 1 || o.stdout != "" || !strings.HasSuffix(o.stderr, test.says+"\n") {
						t.Errorf("exit code %d, stdout %q, stderr %s\nwant 1, nothing and %q", o.code, o.stdout, o.stderr, test.says)
					}
					return
				}
				if name == "stdio" {
					checkConversation(t, o)
				} else if o.code != 0 || !strings.Contains(o.stdout, map[string]string{"tools": "telemetry_projects", "call": "ALD"}[name]) {
					t.Errorf("exit code %d, stdout %s, stderr %s", o.code, o.stdout, o.stderr)
				}
			})
		}
	}
}

// TestWhoMayNotUseARouteDoesNotHearWhichThereAre: without a key that is good for it, a
// route that does not exist is answered as one that does.
func TestWhoMayNotUseARouteDoesNotHearWhichThereAre(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("labs", "lab"), apiKeyEntry("all"))
	config := guardedConfig(t, requires(file, ""))
	for _, args := range [][]string{{"stdio"}, {"tools"}, {"call", "x", "{}"}} {
		for what, env := range map[string][]string{"no key": nil, "a wrong one": apiKeyIs("tg_x"), "one of another route": apiKeyIs(keys["labs"])} {
			said := map[string]outcome{}
			for _, route := range []string{"plant", "nosuch"} {
				o := command{args: append(args[:len(args):len(args)], "--route", route, "--fixtures", "--config", config), env: env}.run(t)
				o.stderr = strings.ReplaceAll(o.stderr, route, "ROUTE")
				said[route] = o
			}
			if a, b := said["plant"], said["nosuch"]; a.code != 1 || b.code != 1 || a.stderr != b.stderr || strings.Contains(b.stderr, "everything") {
				t.Errorf("%s, %s: %d %s\nwant as of a route that exists: %d %s", args[0], what, b.code, b.stderr, a.code, a.stderr)
			}
		}
		o := command{args: append(args[:len(args):len(args)], "--route", "nosuch", "--fixtures", "--config", config), env: apiKeyIs(keys["all"])}.run(t)
		if o.code != 2 || !strings.Contains(o.stderr, "route nosuch does not exist; routes: ") {
			t.Errorf("%s with a key for all routes: %d %s", args[0], o.code, o.stderr)
		}
	}
}

// TestTheRelayShowsItsKeyToTheGateway: what the remote gateway says of it is told to
// the client.
func TestTheRelayShowsItsKeyToTheGateway(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("plants", "plant"), apiKeyEntry("labs", "lab"))
	g := guarded(t, requires(file, ""))
	for era, lines := range conversations {
		relay := func(env []string) outcome {
			o := command{
				args:  []string{"stdio", "--url", g.URL + "/mcp/plant", "--log-level", "debug"},
				env:   env,
				stdin: strings.Join(lines, "\n") + "\n",
			}.run(t)
			for _, key := range keys {
				if strings.Contains(o.stderr+o.stdout, key[:12]) {
					t.Errorf("%s: the key is shown: %s%s", era, o.stderr, o.stdout)
				}
			}
			return o
		}
		checkConversation(t, relay(apiKeyIs(keys["plants"])))
		for what, test := range map[string]struct {
			env  []string
			code int
			says string
		}{
			"missing": {nil, -32603, "HTTP 401: the gateway wants a valid API key or access token: set TOLLGATE_API_KEY to one (Authentication is required: "},
			"wrong":   {apiKeyIs(keys["plants"] + "x"), -32603, "HTTP 401: the gateway wants a valid API key or access token: set TOLLGATE_API_KEY to one (The API key is not valid.)"},
			"another": {apiKeyIs(keys["labs"]), 404, "route not found"},
		} {
			o := relay(test.env)
			if o.code != 0 { // the gateway may take the key next time
				t.Errorf("%s, %s: exit code %d", era, what, o.code)
			}
			for _, id := range []string{"1", "2", "3"} {
				m, ok := answers(t, o.stdout)[id]
				if !ok || m.Error == nil || m.Error.Code != test.code || !strings.HasPrefix(m.Error.Message, test.says) {
					t.Errorf("%s, %s: request %s was answered with %s", era, what, id, o.stdout)
				}
			}
		}
	}
}

// tiny is a budget whose hour two calls use up, and whose bucket is in nobody's way.
const tiny = `cost: {tiers: {basic: {capacity: 400, refillPerSecond: 1, hourly: 2}}}`

var numbers = regexp.MustCompile(`[0-9]+`)

// TestABudgetIsRefusedAlikeEverywhere: over stdio the error is the one of HTTP, and
// call says it in words.
func TestABudgetIsRefusedAlikeEverywhere(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("42"))
	key := apiKeyIs(keys["42"])
	config := guardedConfig(t, requires(file, ""), tiny)
	g := guarded(t, requires(file, ""), tiny)
	errorOf := func(raw string) string {
		t.Helper()
		var m struct{ Error json.RawMessage }
		if err := json.Unmarshal([]byte(raw), &m); err != nil || m.Error == nil {
			t.Fatalf("no error: %s", raw)
		}
		return string(m.Error)
	}

	// What can never pass says no time, so it is the same to the byte.
	const rows = `{"project":"ALD","limit":300}`
	never := g.modern(t, "plant", "tools/call", "telemetry_tags", `"name":"telemetry_tags","arguments":`+rows, bearer(keys["42"])...)
	if never.status != 429 || never.header.Get("Retry-After") != "" || never.Error.Code != 429 {
		t.Errorf("status %d, %v, %s", never.status, never.header, never.body)
	}
	for range 2 {
		g.echo(t, bearer(keys["42"])...).hourLeft(t)
	}
	later := g.echo(t, bearer(keys["42"])...)
	if later.status != 429 || later.header.Get("Retry-After") == "" || !strings.Contains(later.body, `"violated":["hour"]`) {
		t.Errorf("status %d, %v, %s", later.status, later.header, later.body)
	}
	for _, modern := range []bool{true, false} {
		plant := startStdio(t, command{args: []string{"stdio", "--fixtures", "--route", "plant", "--config", config}, env: key})
		lab := startStdio(t, command{args: []string{"stdio", "--fixtures", "--route", "lab", "--config", config}, env: key})
		if !modern {
			plant.hello(t)
			lab.hello(t)
		}
		if diff := cmp.Diff(errorOf(never.body), errorOf(plant.ask(t, modern, "telemetry_tags", rows).raw)); diff != "" {
			t.Errorf("modern=%v: never (-HTTP +stdio):\n%s", modern, diff)
		}
		for range 2 {
			lab.do(t, modern, "lab.echo", `{}`)
		}
		got := errorOf(lab.ask(t, modern, "lab.echo", `{}`).raw)
		var refusal struct {
			Code int
			Data struct {
				Reason       string
				RetryAfterMs int64
				Violated     []string
				Estimate     int
				Hour         struct{ Limit, Remaining, ResetSeconds int }
			}
		}
		if err := json.Unmarshal([]byte(got), &refusal); err != nil {
			t.Fatal(err)
		}
		d := refusal.Data
		if refusal.Code != 429 || d.Reason != "budget_exhausted" || d.Estimate != 1 || d.RetryAfterMs < 3_000_000 || d.RetryAfterMs > 3_600_000 ||
			d.Hour.Limit != 2 || d.Hour.Remaining != 0 || d.Hour.ResetSeconds < 3000 || len(d.Violated) != 1 {
			t.Errorf("modern=%v: %s", modern, got)
		}
		if diff := cmp.Diff(numbers.ReplaceAllString(errorOf(later.body), "N"), numbers.ReplaceAllString(got, "N")); diff != "" {
			t.Errorf("modern=%v: later (-HTTP +stdio):\n%s", modern, diff)
		}
		plant.end(t)
		lab.end(t)
	}

	o := command{args: []string{"call", "--fixtures", "--config", config, "--route", "plant", "telemetry_tags", rows}, env: key}.run(t)
	var said struct{ Message string }
	if err := json.Unmarshal([]byte(errorOf(never.body)), &said); err != nil {
		t.Fatal(err)
	}
	if o.code != 1 || !strings.HasSuffix(o.stderr, "tollgate: route plant, tool telemetry_tags: "+said.Message+"\n") {
		t.Errorf("call: exit code %d, %s", o.code, o.stderr)
	}
}
