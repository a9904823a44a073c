package main

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// arrows says which packages of this module each package may import, and why
// nothing else. A new package needs a line here: decide its place first.
var arrows = map[string]struct {
	may      []string
	tests    bool     // the package's tests are bound by the rule, too
	testsMay []string // what they may import beside that
	reason   string
}{
	"": {
		may:    []string{"config", "cost", "fixtures", "jsonwire", "keyring", "loglimit", "redisconn", "registry", "relay", "server", "server/handle", "server/management", "server/upstream", "telemetry", "transport", "transport/auth"},
		reason: "main assembles the parts and has no behaviour of its own",
	},
	"clienttest": {
		tests:    true,
		testsMay: []string{"freeport"},
		reason:   "clients nobody here wrote see the gateway as a process; what they need of its code they could not have",
	},
	"config": {
		may:    []string{"cost", "redisconn", "registry", "server/handle", "server/upstream", "telemetry", "transport", "transport/auth"},
		reason: "config turns YAML into the structs their owners document; it knows no way to run anything",
	},
	"cost": {
		may:    []string{"jsonwire", "loglimit"},
		reason: "a budget is arithmetic on numbers and a clock; what can be known of tools, callers and stores without importing them keeps it exact and comparable between stores",
	},
	"docs/examples/tool-service": {
		tests:  true,
		reason: "the example is to be copied into somebody else's repository, where there is nothing of ours",
	},
	"fixtures": {
		may:    []string{"freeport"},
		tests:  true,
		reason: "the demo Portal and Tool Services are an independent witness of the wire: code shared with the gateway would share its mistakes; how a server comes back on its port is no part of the wire",
	},
	"fixtures/loadtest": {
		may:    []string{"fixtures", "fixtures/loadtest/agent", "fixtures/loadtest/balancer", "fixtures/loadtest/capture", "fixtures/loadtest/lab", "fixtures/loadtest/load", "fixtures/loadtest/sessionserver"},
		reason: "the load test drives any MCP endpoint, and this gateway as a process only",
	},
	"fixtures/loadtest/agent": {
		may:    []string{"fixtures/loadtest/load"},
		tests:  true,
		reason: "an agent that is to judge any MCP server knows the protocol from its specification only",
	},
	"fixtures/loadtest/balancer": {
		tests:    true,
		testsMay: []string{"freeport"},
		reason:   "a load balancer knows addresses, and nothing of what stands behind them",
	},
	"fixtures/loadtest/capture": {
		may:    []string{"fixtures/loadtest/agent", "fixtures/loadtest/load"},
		reason: "what is written down is what the agent of the load test sends, not a retelling of it, under the kinds that the load counts",
	},
	"fixtures/loadtest/lab": {
		may:    []string{"fixtures/loadtest/agent", "fixtures/loadtest/balancer", "fixtures/loadtest/load", "fixtures/loadtest/report", "freeport"},
		reason: "the lab runs servers as processes and sees of them what their users see",
	},
	"fixtures/loadtest/load": {
		tests:  true,
		reason: "a generator that knew what it calls could be kind to it",
	},
	"fixtures/loadtest/report": {
		may:    []string{"fixtures/loadtest/load"},
		tests:  true,
		reason: "a report shows figures; how they came about is the lab's business",
	},
	"fixtures/loadtest/sessionserver": {
		tests:  true,
		reason: "what people migrate from has nothing of what they migrate to",
	},
	"freeport": {
		tests:  true,
		reason: "whoever starts servers asks it, so it can depend on none of them",
	},
	"jsonwire": {
		reason: "every package reads JSON through it, so it can depend on none of them",
	},
	"keyring": {
		may:    []string{"config", "transport/auth"},
		reason: "the keyring keeps up with a file and hands on its keys; what a key opens, and what a tier is, is told it by whoever makes it",
	},
	"loglimit": {
		reason: "how often a line may be told is arithmetic on numbers and a clock; what it tells is its owner's business",
	},
	"redisconn": {
		may:    []string{"loglimit"},
		reason: "a connection does not know what is kept behind it; who keeps something there sees an interface of its own",
	},
	"redistest": {
		may:    []string{"freeport"},
		reason: "tests of any package start a Redis with it, so it can depend on no more",
	},
	"registry": {
		may:    []string{"jsonwire", "loglimit", "registry/schema"},
		reason: "the registry knows origins and snapshots; who asks for a snapshot, and over which protocol, is not its business",
	},
	"registry/schema": {
		may:    []string{"jsonwire"},
		reason: "the guards around the schema validator must be testable without a registry",
	},
	"relay": {
		may:    []string{"jsonwire", "transport"},
		reason: "the relay hands lines to a remote gateway and must not run a local one by accident",
	},
	"server": {
		may:    []string{"cost", "jsonwire", "loglimit", "registry", "registry/schema", "server/handle", "server/upstream"},
		reason: "the server answers MCP from snapshots; listeners and framing reach it through interfaces, so that every door meets the same core",
	},
	"server/handle": {
		reason: "a handle is a few bytes and a key; what can be known of tools, callers and stores without importing them keeps it testable to the last byte",
	},
	"server/management": {
		may:    []string{"cost", "jsonwire", "registry", "server/handle"},
		reason: "the operator's view reads states and balances and asks for refreshes; it has no part in answering MCP",
	},
	"server/upstream": {
		may:    []string{"jsonwire", "registry", "registry/schema"},
		reason: "forwarding needs the types of the registry and its schemas only; were it to know the server, results could depend on the door a call came through",
	},
	"telemetry": {
		may:    []string{"registry", "server"},
		reason: "telemetry hears what happened; those it hears of know an interface and no library of it",
	},
	"transport": {
		may:    []string{"jsonwire"},
		reason: "transport is what is not MCP: it knows nothing of tools, so that a change of protocol does not touch listeners",
	},
	"transport/auth": {
		may:    []string{"jsonwire", "loglimit"},
		reason: "who calls is found out before anything is known of tools, budgets or listeners, and must not depend on them",
	},
}

// outside says which package alone may import a third-party module, and why.
var outside = map[string]struct {
	only   []string
	reason string
}{
	"github.com/alecthomas/kong":               {[]string{"", "fixtures/loadtest"}, "a command line is main's alone"},
	"github.com/goccy/go-yaml":                 {[]string{"config"}, "one reader of YAML means one kind of error message"},
	"github.com/lmittmann/tint":                {[]string{""}, "packages log through *slog.Logger and do not choose how it looks"},
	"github.com/modelcontextprotocol/go-sdk":   {[]string{"", "server"}, "the SDK's traps are fenced in by one package; main only calls its client for tools and call"},
	"github.com/santhosh-tekuri/jsonschema/v6": {[]string{"registry/schema"}, "the validator panics on hostile input unless its guards stand around it"},
	"github.com/coreos/go-oidc/v3":             {[]string{"transport/auth"}, "tokens are judged in one place, behind bounds on what an issuer may answer and how often it is asked"},
	"github.com/go-jose/go-jose/v4":            {[]string{"transport/auth"}, "signatures are verified in one place, with the algorithms that are allowed there"},
	"github.com/dlclark/regexp2/v2":            {[]string{"registry/schema"}, "a backtracking pattern engine is safe only behind a time bound"},
	"github.com/redis/go-redis/v9":             {[]string{"redisconn"}, "time-outs, breaker and the care for secrets in errors stand in one place"},
	"github.com/prometheus/client_golang":      {[]string{"telemetry"}, "metrics have their names and labels in one place"},
	"go.opentelemetry.io/otel":                 {[]string{"server", "server/upstream", "telemetry"}, "spans begin where a request comes in and where it goes out, and nowhere else"},
	"go.opentelemetry.io/otel/sdk":             {[]string{"telemetry"}, "who starts spans knows the API only; what becomes of them is decided once"},
	"go.opentelemetry.io/otel/exporters":       {[]string{"telemetry"}, "who starts spans knows the API only; what becomes of them is decided once"},
	"github.com/mark3labs/mcp-go":              {[]string{"fixtures/loadtest/sessionserver"}, "a library nobody here wrote serves tests, and the session-era server of the load lab"},
	"gonum.org/v1/plot":                        {[]string{"fixtures/loadtest/report"}, "plots of the load lab are drawn by a library that the gateway has no use for"},
	"github.com/google/go-cmp":                 {nil, "a comparison that panics on unexported fields serves tests only"},
	"k8s.io/api":                               {nil, "manifests are held against Kubernetes' own types by tests only: the gateway knows nothing of the cluster it runs in"},
	"k8s.io/apimachinery":                      {nil, "manifests are read as an API server reads them by tests only"},
	"pgregory.net/rapid":                       {nil, "random schedules and the search for the shortest failing one serve tests only"},
	"encoding/json/v2":                         {nil, "an experiment of the standard library; its results may change under us"},
}

// goPackage is the part of `go list -json` the test reads.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		packages = append(packages, p)
	}
}

func TestImportArrows(t *testing.T) {
	packages := listPackages(t)
	seen := map[string]bool{}
	for _, p := range packages {
		name := ours(p.ImportPath)
		seen[name] = true
		rule, ok := arrows[name]
		if !ok {
			t.Errorf("package %q has no rule in arrows: decide which packages it may import, and say why", name)
			continue
		}
		for _, imported := range p.Imports {
			if isOurs(imported) && !slices.Contains(rule.may, ours(imported)) {
				t.Errorf("package %q imports %q, but %s", name, ours(imported), rule.reason)
			}
			for module, limit := range outside {
				if within(imported, module) && !slices.Contains(limit.only, name) {
					t.Errorf("package %q imports %s, but %s", name, imported, limit.reason)
				}
			}
		}
		if rule.tests {
			for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
				may := slices.Contains(rule.may, ours(imported)) || slices.Contains(rule.testsMay, ours(imported))
				if isOurs(imported) && ours(imported) != name && !may {
					t.Errorf("a test of %q imports %q, but %s", name, ours(imported), rule.reason)
				}
			}
		}
	}
	for name := range arrows {
		if !seen[name] {
			t.Errorf("arrows has a rule for %q, which is no package of this module", name)
		}
	}
}

// TestTheLayoutHasEveryPackage looks for a row of CONTRIBUTING.md's layout for each
// package. An indented row is a directory below the row before that is not.
func TestTheLayoutHasEveryPackage(t *testing.T) {
	_, layout, _ := strings.Cut(readText(t, "CONTRIBUTING.md"), "## Layout\n\n```\n")
	layout, _, found := strings.Cut(layout, "\n```")
	if !found {
		t.Fatal("CONTRIBUTING.md has no layout")
	}
	rows, above := map[string]bool{}, ""
	for line := range strings.Lines(layout) {
		name, isDir := strings.CutSuffix(strings.Fields(line)[0], "/")
		if !isDir {
			rows[""] = rows[""] || strings.HasPrefix(name, "main.go")
			continue
		}
		if strings.HasPrefix(line, " ") {
			name = above + "/" + name
		} else {
			above = name
		}
		rows[name] = true
	}
	for name := range arrows {
		if !rows[name] {
			t.Errorf("the layout in CONTRIBUTING.md has no row for %q", name)
		}
	}
}

func isOurs(path string) bool { return within(path, "tollgate") }

// ours returns an import path below the module; "" is the module's root.
func ours(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, "tollgate"), "/")
}

// within reports whether an import path is module or lies below it.
func within(path, module string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}
