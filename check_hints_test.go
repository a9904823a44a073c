package main

import (
	"path/filepath"
	"strings"
	"testing"

	"tollgate/redistest"
	"tollgate/transport/auth"
)

// warned are the warnings of a check that must not fail.
func (o outcome) warned(t *testing.T) (warnings []string) {
	t.Helper()
	if o.code != 0 {
		t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	for line := range strings.Lines(o.stdout) {
		if text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "warning: "); ok {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// wantWarnings checks that there are just these warnings, by how they begin.
func wantWarnings(t *testing.T, o outcome, want ...string) {
	t.Helper()
	got := o.warned(t)
	if len(got) != len(want) {
		t.Errorf("got %d warnings, want %d: %q", len(got), len(want), got)
		return
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q…", got[i], want[i])
		}
	}
}

// TestCheckWarnsOfWhatIsHardlyMeant: a configuration that is good, and yet does what its
// operator would not expect.
func TestCheckWarnsOfWhatIsHardlyMeant(t *testing.T) {
	const (
		portal   = "registry: {portal: {url: \"http://127.0.0.1:9/\"}}\n"
		redis    = "redis: {url: \"redis://127.0.0.1:9\"}\n"
		replicas = "cost.replicas is not set: "
	)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                 {portal, nil},
		"replicas":                {portal + redis, []string{replicas}},
		"replicas, said":          {portal + redis + "cost: {replicas: 1}\n", nil},
		"replicas, closed":        {portal + redis + "cost: {onStoreFailure: closed}\n", nil},
		"replicas, without Redis": {portal + "cost: {onStoreFailure: local}\n", nil},
		"replicas, unmetered":     {portal + redis + "cost: {enabled: false}\n", nil},
		"small hour":              {portal + "cost: {enforce: always, tiers: {trial: {capacity: 1000, refillPerSecond: 10, hourly: 299}}}\n", []string{"cost.tiers.trial.hourly, 299, is less than cost.pageSize, 300, "}},
		"small bucket":            {portal + "cost: {enforce: always, tiers: {trial: {capacity: 299, refillPerSecond: 10, hourly: 299}}}\n", []string{"cost.tiers.trial.capacity, 299, is less than cost.pageSize, 300, "}},
		"just enough":             {portal + "cost: {enforce: always, tiers: {trial: {capacity: 300, refillPerSecond: 10, hourly: 300}}}\n", nil},
		"small, and a small page": {portal + "cost: {pageSize: 10, tiers: {trial: {capacity: 10, refillPerSecond: 1, hourly: 10}}}\n", nil},
		"small, unmetered":        {portal + "cost: {enabled: false, tiers: {trial: {capacity: 1, refillPerSecond: 1, hourly: 1}}}\n", nil},
		"small, nobody known":     {portal + "cost: {tiers: {trial: {capacity: 1, refillPerSecond: 1, hourly: 1}}}\n", nil},
		"small, never refused":    {portal + "cost: {enforce: never, tiers: {trial: {capacity: 1, refillPerSecond: 1, hourly: 1}}}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "tollgate.yaml")
			writeFile(t, config, test.text)
			wantWarnings(t, tollgate(t, "check", "--config", config), test.want...)
		})
	}
}

// TestCheckWarnsOfRoutesThatDoNotExist: a misspelt route of a key is one it may not use.
// The Portal's routes are known with --live only.
func TestCheckWarnsOfRoutesThatDoNotExist(t *testing.T) {
	named := auth.Key{ID: "42", Routes: []string{"plant", "plnt"}}
	file, _ := apiKeys(t, named, auth.Key{ID: "43", Routes: []string{"plant"}}, auth.Key{ID: "44"})
	section := requires(file, "")
	const want = "these API keys name routes that do not exist: 42 (plnt)"
	config := filepath.Join(t.TempDir(), "tollgate.yaml")

	writeFile(t, config, staticRoutes("plant")+section+"\n")
	wantWarnings(t, tollgate(t, "check", "--config", config), want)

	writeFile(t, config, section+"\n")
	wantWarnings(t, tollgate(t, "check", "--fixtures", "--config", config), want)
	wantWarnings(t, tollgate(t, "check", "--live", "--fixtures", "--config", config), want)

	writeFile(t, config, "registry: {portal: {url: \"http://127.0.0.1:9/\"}}\n"+section+"\n")
	wantWarnings(t, tollgate(t, "check", "--config", config))
	if o := tollgate(t, "check", "--live", "--config", config); o.code != exitFailed || strings.Contains(o.stdout, "name routes") {
		t.Errorf("the Portal is away: exit code %d\n%s", o.code, o.stdout)
	}
}

// TestCheckLiveWarnsOfEviction: as serve does.
func TestCheckLiveWarnsOfEviction(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	file := service.config(t, redis.URL(), "cost: {replicas: 2}")
	wantWarnings(t, tollgate(t, "check", "--live", "--config", file))
	redis.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	wantWarnings(t, tollgate(t, "check", "--live", "--config", file), "Redis may throw budgets away when its memory is full, ")
	wantWarnings(t, tollgate(t, "check", "--config", file))
	wantWarnings(t, tollgate(t, "check", "--live", "--config", service.config(t, redis.URL(), "cost: {enabled: false}")))
}

// TestTheDemoSaysThatItHasNoRedis: who wants to try shared budgets must not believe that
// he has.
func TestTheDemoSaysThatItHasNoRedis(t *testing.T) {
	const says = "the demo never uses Redis: budgets"
	if g := guarded(t, awayRedis); len(g.warnings(says)) != 1 {
		t.Errorf("the log does not say it:\n%s", g.stderr.text())
	}
	if g := guarded(t); len(g.warnings(says)) != 0 {
		t.Errorf("nobody wanted Redis:\n%s", g.stderr.text())
	}
}

// TestTheWelcomeOfAGuardedDemo: its lines work for who has done what it says.
func TestTheWelcomeOfAGuardedDemo(t *testing.T) {
	file, keys := apiKeys(t, auth.Key{ID: "42"})
	g := guarded(t, requires(file, ""))
	g.stdout.await(t, g.exited, "tools/call\",")
	shown := g.stdout.text()
	if !strings.Contains(shown, "Callers need an API key") || !strings.Contains(shown, "TOLLGATE_API_KEY") {
		t.Errorf("the welcome does not say that a key is needed:\n%s", shown)
	}
	lines := curlCommands(shown)
	for _, line := range lines {
		if out := shell(t, "export TOLLGATE_API_KEY="+keys["42"]+"; "+line); !strings.Contains(out, "HTTP/1.1 200") || !strings.Contains(out, `"result"`) {
			t.Errorf("this line does not work:\n%s\n%s", line, out)
		}
	}
	if len(lines) != 2 || strings.Contains(shown, keys["42"]) {
		t.Errorf("the welcome is\n%s", shown)
	}
	open := guarded(t)
	open.stdout.await(t, open.exited, "tools/call\",")
	if shown := open.stdout.text(); strings.Contains(shown, "TOLLGATE_API_KEY") {
		t.Errorf("nobody needs a key:\n%s", shown)
	}
}

// TestClientConfigOfAGuardedGateway: the entry has the place for the key, in the form
// that the client knows.
func TestClientConfigOfAGuardedGateway(t *testing.T) {
	file, keys := apiKeys(t, auth.Key{ID: "42"})
	local := []string{"--fixtures", "--config", guardedConfig(t, requires(file, ""))}
	remote := []string{"--http", "https://gw.example", "--with-key"}
	for name, test := range map[string]struct {
		client string
		args   []string
		want   []string // in the snippet
		says   string
	}{
		"claude":            {"claude", local, []string{`"env": {`, `"TOLLGATE_API_KEY": "${TOLLGATE_API_KEY}"`}, `replace ${TOLLGATE_API_KEY} in "env"`},
		"claude, remote":    {"claude", remote, []string{`"--url"`, `"TOLLGATE_API_KEY": "${TOLLGATE_API_KEY}"`}, `replace ${TOLLGATE_API_KEY} in "env"`},
		"vscode":            {"vscode", local, []string{`"TOLLGATE_API_KEY": "${input:tollgate-api-key}"`, `"id": "tollgate-api-key"`, `"password": true`}, "VS Code asks"},
		"vscode, remote":    {"vscode", remote, []string{`"Authorization": "Bearer ${input:tollgate-api-key}"`, `"id": "tollgate-api-key"`}, "VS Code asks"},
		"cursor":            {"cursor", local, []string{`"TOLLGATE_API_KEY": "${env:TOLLGATE_API_KEY}"`}, "its own environment"},
		"cursor, remote":    {"cursor", remote, []string{`"Authorization": "Bearer ${env:TOLLGATE_API_KEY}"`}, "its own environment"},
		"inspector":         {"inspector", local, []string{`"TOLLGATE_API_KEY": "${TOLLGATE_API_KEY}"`}, `replace ${TOLLGATE_API_KEY} in "env"`},
		"inspector, remote": {"inspector", remote, nil, "set the header Authorization"},
		"asked for":         {"claude", []string{"--fixtures", "--with-key"}, []string{`"TOLLGATE_API_KEY"`}, `in "env"`},
	} {
		o := tollgate(t, append([]string{"client-config", test.client, "--route", "plant"}, test.args...)...)
		if o.code != 0 || !strings.Contains(o.stderr, test.says) || strings.Contains(o.stdout+o.stderr, keys["42"]) {
			t.Errorf("%s: exit code %d, want %q\n%s", name, o.code, test.says, o.stderr)
		}
		for _, part := range test.want {
			if !strings.Contains(o.stdout, part) {
				t.Errorf("%s: the snippet lacks %s:\n%s", name, part, o.stdout)
			}
		}
		if test.want == nil && strings.Contains(o.stdout, "headers") {
			t.Errorf("%s: the snippet has headers:\n%s", name, o.stdout)
		}
	}
	keyless := guardedConfig(t, requires("", "https://login.example"))
	if o := tollgate(t, "client-config", "claude", "--route", "plant", "--fixtures", "--config", keyless); o.code != exitFailed || !strings.Contains(o.stderr, "without HTTP a caller can only show an API key") || o.stdout != "" {
		t.Errorf("an entry that could not start: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	// What nobody has filled in is no key.
	o := command{args: append([]string{"tools", "--route", "plant"}, local...), env: apiKeyIs("${TOLLGATE_API_KEY}")}.run(t)
	if o.code != exitFailed || !strings.Contains(o.stderr, "set TOLLGATE_API_KEY to an API key") {
		t.Errorf("a placeholder: exit code %d\n%s", o.code, o.stderr)
	}
}
