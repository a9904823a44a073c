package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

func readText(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestTheReplicasExampleIsGood loads the file platform engineers copy, and holds
// against it what its comments say.
func TestTheReplicasExampleIsGood(t *testing.T) {
	file := filepath.Join("docs", "examples", "replicas.yaml")
	env := []string{"PORTAL_TOKEN=token", "TOLLGATE_REDIS_URL=rediss://tollgate:PASSWORD@redis.example.internal:6380/0"}
	if o := (command{args: []string{"check", "--config", file}, env: append(env, "TOLLGATE_HANDLE_KEYS="+handleKey("k1"))}).run(t); o.code != 0 {
		t.Errorf("exit code %d\n%s", o.code, o.stderr)
	}
	if o := (command{args: []string{"check", "--config", file}, env: append(env, "TOLLGATE_HANDLE_KEYS=BASE64")}).run(t); o.code != exitFailed || !strings.Contains(o.stderr, "TOLLGATE_HANDLE_KEYS: key number 1") {
		t.Errorf("with a bad key: exit code %d\n%s", o.code, o.stderr)
	}
	if o := (command{args: []string{"check", "--config", file}}).run(t); o.code == 0 || !strings.Contains(o.stderr, "TOLLGATE_REDIS_URL") {
		t.Errorf("without the environment: exit code %d\n%s", o.code, o.stderr)
	}
	text := readText(t, file)
	for _, part := range append(env[1:], "${PORTAL_TOKEN}", "${TOLLGATE_REDIS_URL}", "TOLLGATE_HANDLE_KEYS=k1:BASE64") {
		if _, value, found := strings.Cut(part, "="); found {
			part = value
		}
		if !strings.Contains(text, part) {
			t.Errorf("the file does not show %s", part)
		}
	}
}

// TestThePortalGuidesExampleIsGood holds what Portal teams copy against the
// parser, and that it shows what the guide says of it.
func TestThePortalGuidesExampleIsGood(t *testing.T) {
	example := jsonBlock.FindStringSubmatch(readText(t, "docs", "portal.md"))
	if example == nil {
		t.Fatal("the guide shows no answer")
	}
	for _, finding := range registry.LintPortal([]byte(example[1])) {
		t.Errorf("%s %s %s", finding.Level, finding.Pointer, finding.Text)
	}
	declaration, _ := registry.ParsePortal([]byte(example[1]))
	if declaration == nil {
		t.Fatal("the guide's answer is refused")
	}
	want := []registry.Route{
		{Key: "claims", Services: []registry.Service{
			{
				Key: "insurance-processing", NamePrefix: "processing.", Enabled: true,
				ManifestURL: "http://tool-processing.example.internal:8080/tool-manifest", BaseEndpoint: "http://tool-processing.example.internal:8080/mcp",
			},
			{Key: "postcodes", Enabled: true, ManifestURL: "https://postcodes.example.internal/tool-manifest", BaseEndpoint: "https://postcodes.example.internal/mcp"},
		}},
		{Key: "planned", Services: []registry.Service{}},
	}
	if diff := cmp.Diff(want, declaration.Routes); diff != "" {
		t.Errorf("the guide's answer means something else (-want +got):\n%s", diff)
	}
}

var (
	fieldRow       = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (yes|no) \\|")
	serviceMembers = regexp.MustCompile(`serviceMembers = \[\]string\{([^}]*)\}`)
	quotedName     = regexp.MustCompile(`"([A-Za-z]+)"`)
)

// TestThePortalGuideNamesEveryField compares the guide's table with the fields
// of its example and with those the parser reads, and tries which are required.
func TestThePortalGuideNamesEveryField(t *testing.T) {
	guide := readText(t, "docs", "portal.md")
	example := jsonBlock.FindStringSubmatch(guide)[1]
	required := map[string]string{}
	var documented []string
	for _, row := range fieldRow.FindAllStringSubmatch(guide, -1) {
		documented = append(documented, row[1])
		required[row[1]] = row[2]
	}
	parsed := []string{"registryRevision", "routes", "routeKey", "toolServices"}
	source := serviceMembers.FindStringSubmatch(readText(t, "registry", "portal_wire.go"))
	if source == nil {
		t.Fatal("the parser's list of a service's members is not where it was")
	}
	for _, name := range quotedName.FindAllStringSubmatch(source[1], -1) {
		parsed = append(parsed, name[1])
	}
	if diff := cmp.Diff(parsed, documented); diff != "" {
		t.Errorf("the guide's table differs from what is parsed (-parsed +documented):\n%s", diff)
	}
	for _, name := range documented {
		key := `"` + name + `"`
		if !strings.Contains(example, key+":") {
			t.Errorf("the example does not show %s", name)
		}
		// Another name is as good as none.
		findings := registry.LintPortal([]byte(strings.Replace(example, key, `"x-unknown"`, 1)))
		refused := slices.ContainsFunc(findings, func(f registry.Finding) bool { return f.Level == registry.Breach })
		if got := map[bool]string{true: "yes", false: "no"}[refused]; got != required[name] {
			t.Errorf("required: the guide says %q of %s, but without it: %v", required[name], name, findings)
		}
		// The parser knows the name: it warns of one that differs in case only.
		miscased := registry.LintPortal([]byte(strings.Replace(example, key, strings.ToUpper(key), 1)))
		if len(miscased) == 0 {
			t.Errorf("the parser does not know %s", name)
		}
	}
}

var (
	wireReason  = regexp.MustCompile(`(?m)^\t[a-zA-Z]+:\s+\{.*"([a-z_]+)"\}`)
	relayReason = regexp.MustCompile(`reason: "([a-z_]+)"`)
	guardReason = regexp.MustCompile(`refuse\(w, "([a-z_]+)"`)
)

// refusalReasons are the words of data.reason that the gateway has.
func refusalReasons(t *testing.T) (reasons []string) {
	t.Helper()
	for _, m := range wireReason.FindAllStringSubmatch(readText(t, "server", "errors.go"), -1) {
		reasons = append(reasons, m[1])
	}
	for _, m := range guardReason.FindAllStringSubmatch(readText(t, "transport", "guard.go"), -1) {
		reasons = append(reasons, m[1])
	}
	return append(reasons, constants(t, filepath.Join("transport", "auth"), "Reason")...)
}

// TestAgentViewNamesEveryReason finds words of data.reason that a program may
// meet and its author cannot look up.
func TestAgentViewNamesEveryReason(t *testing.T) {
	view, reasons := readText(t, "docs", "agent-view.md"), refusalReasons(t)
	relay, err := filepath.Glob(filepath.Join("relay", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range relay {
		for _, m := range relayReason.FindAllStringSubmatch(readText(t, file), -1) {
			reasons = append(reasons, m[1])
		}
	}
	for _, known := range []string{"internal_error", "route_removed", "canceled", "host_not_allowed", "origin_not_allowed", "gateway_unreachable", "token_expired", "budget_exhausted"} {
		if !slices.Contains(reasons, known) {
			t.Errorf("this test no longer finds the reason %s in the source", known)
		}
	}
	for _, reason := range reasons {
		if !strings.Contains(view, "`"+reason+"`") {
			t.Errorf("docs/agent-view.md does not name the reason %s", reason)
		}
	}
}
