package registry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parsed is an accepted manifest with these tools, as a Registry keeps it.
func parsed(t testing.TB, service string, tools ...string) *resting {
	t.Helper()
	return parsedRaw(t, manifestOf(service, tools...))
}

func parsedRaw(t testing.TB, document string) *resting {
	t.Helper()
	return rest(accepted(t, document), true)
}

func accepted(t testing.TB, document string) *Manifest {
	t.Helper()
	m, findings := ParseManifest([]byte(document), ManifestRules{})
	if m == nil {
		t.Fatalf("the test's manifest is invalid: %v", findings)
	}
	return m
}

func declared(key, prefix string) Service {
	return Service{Key: ServiceKey(key), BaseEndpoint: "http://" + key + ".test/mcp", NamePrefix: prefix, Enabled: true}
}

var testLimits = mergeLimits{maxTools: 4, defaultTimeout: 10 * time.Second, maxTimeout: 30 * time.Second}

func TestMerge(t *testing.T) {
	list := func(service string, tools ...string) *resting { return parsed(t, service, tools...) }
	a, b, c := declared("a", ""), declared("b", ""), declared("c", "")
	tests := map[string]struct {
		parts   []part
		want    string // tools
		held    bool
		refused string // contained in the reason; "" = not refused
	}{
		"sorted by service, then name, bytewise": {
			parts: []part{{service: b, newest: list("b", "B", "a.x", "a-x")}, {service: a, newest: list("a", "z")}},
			want:  "z B a-x a.x",
		},
		"no services make an empty list": {want: ""},
		"a missing service holds the first list": {
			parts: []part{{service: a, newest: list("a", "x")}, {service: b}},
			held:  true, refused: "service b never had a manifest",
		},
		"a missing service holds everybody's previous": {
			parts: []part{{service: a, newest: list("a", "new"), previous: list("a", "old")}, {service: b}},
			want:  "old", held: true, refused: "service b",
		},
		"the changed one loses a collision": {
			parts: []part{{service: a, newest: list("a", "x"), previous: list("a", "x")}, {service: b, newest: list("b", "x"), previous: list("b", "y")}},
			want:  "x y", refused: `tool "x" is in services a and b; kept at the previous manifest here: b`,
		},
		"the changed one loses, whatever its key": {
			parts: []part{{service: a, newest: list("a", "y"), previous: list("a", "x")}, {service: b, newest: list("b", "y"), previous: list("b", "y")}},
			want:  "x y", refused: "here: a",
		},
		"both changed: both lose": {
			parts: []part{{service: a, newest: list("a", "n"), previous: list("a", "x")}, {service: b, newest: list("b", "n"), previous: list("b", "y")}},
			want:  "x y", refused: "here: a, b",
		},
		"the others update meanwhile": {
			parts: []part{
				{service: a, newest: list("a", "x"), previous: list("a", "x")},
				{service: b, newest: list("b", "x"), previous: list("b", "y")},
				{service: c, newest: list("c", "z2"), previous: list("c", "z1")},
			},
			want: "x y z2", refused: "here: b",
		},
		"who had the name goes on changing": {
			parts: []part{{service: a, newest: list("a", "x", "x2"), previous: list("a", "x")}, {service: b, newest: list("b", "x"), previous: list("b", "y")}},
			want:  "x x2 y", refused: "here: b",
		},
		"a new service that collides holds the route": {
			parts: []part{{service: a, newest: list("a", "x2", "x"), previous: list("a", "x")}, {service: b, newest: list("b", "x")}},
			want:  "x", held: true, refused: `tool "x" is in services a and b; the list is not replaced`,
		},
		"three at fault are named in order": {
			parts: []part{
				{service: a, newest: list("a", "m"), previous: list("a", "x")},
				{service: b, newest: list("b", "n"), previous: list("b", "y")},
				{service: c, newest: list("c", "m", "n"), previous: list("c", "z")},
			},
			want: "x y z", refused: "here: a, b, c",
		},
		"a name handed over in one step": {
			parts: []part{{service: a, newest: list("a", "x"), previous: list("a", "moved")}, {service: b, newest: list("b", "moved"), previous: list("b", "y")}},
			want:  "x moved",
		},
		"falling back may collide again": {
			// a may not have z (c's), and with a's moved kept b may not have it.
			parts: []part{
				{service: a, newest: list("a", "z"), previous: list("a", "moved")},
				{service: b, newest: list("b", "moved"), previous: list("b", "y")},
				{service: c, newest: list("c", "z"), previous: list("c", "z")},
			},
			want: "moved y z", refused: "here: a",
		},
		"at the limit": {
			parts: []part{{service: a, newest: list("a", "1", "2", "3", "4")}},
			want:  "1 2 3 4",
		},
		"over the limit at first": {
			parts: []part{{service: a, newest: list("a", "1", "2", "3")}, {service: b, newest: list("b", "4", "5")}},
			held:  true, refused: "5 tools are more than the 4 a route may have",
		},
		"who grew falls back, who changed without growing does not": {
			parts: []part{
				{service: a, newest: list("a", "1", "2"), previous: list("a", "1", "3")},
				{service: b, newest: list("b", "4", "5", "6"), previous: list("b", "4")},
			},
			want: "1 2 4", refused: "here: b",
		},
		"who grew most falls back, and there is room for the others": {
			parts: []part{
				{service: a, newest: list("a", "1", "2"), previous: list("a", "1")},
				{service: b, newest: list("b", "4", "5", "6"), previous: list("b", "4")},
			},
			want: "1 2 4", refused: "here: b",
		},
		"who grew alike falls back alike": {
			parts: []part{
				{service: a, newest: list("a", "1", "2", "3"), previous: list("a", "1")},
				{service: b, newest: list("b", "4", "5", "6"), previous: list("b", "4")},
			},
			want: "1 4", refused: "here: a, b",
		},
		"who grew less falls back, too, when there is still no room": {
			parts: []part{
				{service: a, newest: list("a", "1", "2", "3"), previous: list("a", "1", "2")},
				{service: b, newest: list("b", "4", "5", "6", "7"), previous: list("b", "4", "5")},
			},
			want: "1 2 4 5", refused: "here: a",
		},
		"a name outside the prefix": {
			parts: []part{
				{service: declared("a", "a."), newest: list("a", "b.x"), previous: list("a", "a.x")},
				{service: b, newest: list("b", "y2"), previous: list("b", "y")},
			},
			want: "a.x y2", refused: "service a has tool names outside its prefix",
		},
		"a sibling's prefix": {
			parts: []part{{service: a, siblings: []string{"b."}, newest: list("a", "b.x"), previous: list("a", "x")}},
			want:  "x", refused: "service a",
		},
		"a name outside the prefix, nothing before": {
			parts: []part{{service: declared("a", "a."), newest: list("a", "b.x")}},
			held:  true, refused: "the list is not replaced",
		},
		"the prefix changed under a served manifest": {
			parts: []part{{service: declared("a", "new."), newest: list("a", "old.x"), previous: list("a", "old.x")}},
			want:  "old.x", refused: "here: a",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for range 5 { // in any order
				rand.Shuffle(len(test.parts), func(i, j int) { test.parts[i], test.parts[j] = test.parts[j], test.parts[i] })
				got := merge(test.parts, testLimits)
				if tools := names(NewSnapshot("r", got.tools)); tools != test.want {
					t.Errorf("tools are %q, want %q", tools, test.want)
				}
				if got.held != test.held {
					t.Errorf("held is %v", got.held)
				}
				if !strings.Contains(got.refused, test.refused) || (test.refused == "") != (got.refused == "") {
					t.Errorf("refused: %q, want %q", got.refused, test.refused)
				}
			}
		})
	}
}

func TestMergeDropsDisabledToolsFirst(t *testing.T) {
	tool := func(name, meta string) string {
		return fmt.Sprintf(`{"name":%q,"description":"x","inputSchema":{"type":"object"},"_meta":{"version":"1"%s}}`, name, meta)
	}
	off := parsedRaw(t, `{"bundleId":"a","tools":[`+tool("x", `,"enabled":false`)+","+tool("on", "")+`]}`)
	got := merge([]part{
		{service: declared("a", ""), newest: off},
		{service: declared("b", ""), newest: parsed(t, "b", "x", "1", "2")},
	}, testLimits) // x collides, and 5 are too many, only when the disabled one counts
	if names := names(NewSnapshot("r", got.tools)); names != "on 1 2 x" || got.refused != "" {
		t.Errorf("tools %q, refused %q", names, got.refused)
	}
}

func TestMergeCutsTimeouts(t *testing.T) {
	for declared, want := range map[time.Duration]time.Duration{
		0:                10 * time.Second,
		time.Millisecond: time.Millisecond,
		20 * time.Second: 20 * time.Second,
		31 * time.Second: 30 * time.Second,
	} {
		if got := testLimits.deadline(declared); got != want {
			t.Errorf("a declared %v becomes %v, want %v", declared, got, want)
		}
	}
	short := mergeLimits{defaultTimeout: 10 * time.Second, maxTimeout: 5 * time.Second}
	if got := short.deadline(0); got != 5*time.Second {
		t.Errorf("the default becomes %v under a maximum of 5s", got)
	}
}

func TestMergeManyClashesInOneShortReason(t *testing.T) {
	var tools []string
	for i := range 100 {
		tools = append(tools, fmt.Sprintf("tool%02d", i))
	}
	rand.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
	got := merge([]part{
		{service: declared("a", ""), newest: parsed(t, "a", tools...), previous: parsed(t, "a", tools...)},
		{service: declared("b", ""), newest: parsed(t, "b", tools...), previous: parsed(t, "b", "x")},
	}, mergeLimits{maxTools: 200, maxTimeout: 1})
	want := `tool "tool00" is in services a and b, tool "tool01" is in services a and b, tool "tool02" is in services a and b, and 97 more; kept at the previous manifest here: b`
	if got.refused != want {
		t.Errorf("refused: %s", got.refused)
	}
}

// TestMergeNeverMixes checks on random manifests what holds for every merge:
// names are unique, the bound is kept, every service is served from its newest
// or its previous manifest, and the order of the parts does not matter.
func TestMergeNeverMixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pool := []string{"p", "q", "r", "s", "t", "u", "v"}
	limits := mergeLimits{maxTools: 6, defaultTimeout: 1, maxTimeout: 1}
	some := func(service string) *resting {
		rng.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		return parsed(t, service, pool[:rng.IntN(4)]...)
	}
	previous := make(map[ServiceKey]*resting) // as a route would carry it on
	for step := range 2000 {
		var parts []part
		for _, key := range []string{"a", "b", "c", "d"} {
			p := part{service: declared(key, ""), newest: previous[ServiceKey(key)], previous: previous[ServiceKey(key)]}
			if rng.IntN(2) == 0 {
				p.newest = some(key)
			}
			parts = append(parts, p)
		}
		got := merge(parts, limits)
		slices.Reverse(parts)
		again := merge(parts, limits)
		if diff := cmp.Diff(names(NewSnapshot("r", got.tools)), names(NewSnapshot("r", again.tools))); diff != "" || got.refused != again.refused {
			t.Fatalf("step %d: the order of parts matters\n%s", step, diff)
		}
		seen := make(map[ToolName]bool)
		for _, tool := range got.tools {
			if seen[tool.Name] {
				t.Fatalf("step %d: %s is there twice", step, tool.Name)
			}
			seen[tool.Name] = true
		}
		if len(seen) > limits.maxTools {
			t.Fatalf("step %d: %d tools", step, len(seen))
		}
		for _, p := range parts {
			if used := got.used[p.service.Key]; used != p.newest && used != p.previous {
				t.Fatalf("step %d: service %s is served from elsewhere", step, p.service.Key)
			}
		}
		if got.refused == "" && got.held {
			t.Fatalf("step %d: held without a reason", step)
		}
		if !got.held {
			previous = got.used
		}
	}
}

func TestToolURL(t *testing.T) {
	for _, test := range []struct{ base, name, path, want string }{
		{"http://h.test/mcp", "a.search", "", "http://h.test/mcp/a.search"},
		{"http://h.test/mcp", "a/b/c", "", "http://h.test/mcp/a/b/c"},
		{"http://h.test", "search", "", "http://h.test/search"},
		{"http://h.test:8080/x/y", "search", "v2/find", "http://h.test:8080/x/y/v2/find"},
		{"http://h.test/mcp", "search", "with space", "http://h.test/mcp/with%20space"},
		{"http://h.test/mcp", "search", "with%20space", "http://h.test/mcp/with%20space"},
		{"http://h.test/mcp", "search", "a;v=1,b:c@d", "http://h.test/mcp/a;v=1,b:c@d"},
		{"http://h.test/mcp", "search", "größe", "http://h.test/mcp/gr%C3%B6%C3%9Fe"},
		{"http://h.test/mcp", "search", "100%", "http://h.test/mcp/100%25"},
	} {
		if got := toolURL(test.base, &Tool{Name: ToolName(test.name), Path: test.path}); got != test.want {
			t.Errorf("%s + %s %s is %s, want %s", test.base, test.name, test.path, got, test.want)
		}
	}
}

func TestPrefixesOfTools(t *testing.T) {
	tools := parsed(t, "a", "a.x", "b.x", "A.x").tools
	outside := "on this route every name of the service must start with "
	stolen := "names that start with "
	for _, test := range []struct {
		what string
		got  []Finding
		text string   // every finding has it
		at   []string // pointers
	}{
		{"prefix a.", checkPrefix(tools, "a."), outside + `"a."`, []string{"/tools/1/name", "/tools/2/name"}},
		{"no prefix", checkPrefix(tools, ""), "", nil},
		{"siblings", checkSiblings(tools, []string{"", "b.", "c."}), stolen + `"b." belong to another service`, []string{"/tools/1/name"}},
		{"no siblings", checkSiblings(tools, nil), "", nil},
	} {
		var at []string
		for _, f := range test.got {
			at = append(at, f.Pointer)
			if f.Level != Breach || !strings.Contains(f.Text, test.text) {
				t.Errorf("%s: %v, want a breach that says %s", test.what, f, test.text)
			}
		}
		if diff := cmp.Diff(test.at, at); diff != "" {
			t.Errorf("%s: breaches (-want +got)\n%s", test.what, diff)
		}
	}
}
