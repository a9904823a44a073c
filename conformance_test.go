package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// revisions says of how many scenarios of the official suite a revision of the
// protocol consists, and how many pass. Fewer must never pass again; whoever makes
// more pass writes it down here.
var revisions = []struct {
	revision         string
	passes, scored   int // of the scenarios that the revision requires
	passesUnscored   []string
	reportedUnscored int // scenarios that are run and do not count
}{
	{"2026-07-28", 23, 37, []string{"json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"}, 13},
	{"2025-11-25", 11, 30, []string{"json-schema-2020-12"}, 3},
}

// TestConformance runs the official suite against a gateway with the demo's route
// conformance, and holds its verdicts against the baselines and against
// docs/conformance.md.
func TestConformance(t *testing.T) {
	suite := newSuite(t)
	gateway := suite.serve(t)
	verdicts := map[string]map[string]verdict{} // by revision and scenario
	baselines := map[string][]known{}
	for _, c := range revisions {
		t.Run(c.revision, func(t *testing.T) {
			scored, unscored := suite.scenarios(t, c.revision)
			baseline := readBaseline(t, c.revision)
			seen := suite.run(t, gateway.URL+"/mcp/conformance", c.revision)
			verdicts[c.revision], baselines[c.revision] = seen, baseline
			checkBaseline(t, baseline, seen)

			passes, passesUnscored := passing(t, scored, seen), passing(t, unscored, seen)
			for _, name := range slices.Concat(scored, unscored) {
				excused := slices.ContainsFunc(baseline, func(k known) bool { return k.scenario == name })
				if seen[name].passes() == excused {
					t.Errorf("%s passes: %v, is in the baseline: %v\n%s", name, !excused, excused, seen[name].faults())
				}
			}
			if len(passes) != c.passes || len(scored) != c.scored || len(unscored) != c.reportedUnscored {
				t.Errorf("%d of %d scored scenarios pass, and %d are not scored; want %d of %d, and %d", len(passes), len(scored), len(unscored), c.passes, c.scored, c.reportedUnscored)
			}
			if diff := gocmp.Diff(c.passesUnscored, passesUnscored); diff != "" {
				t.Errorf("other scenarios pass that are not scored (-want +got):\n%s", diff)
			}
			t.Logf("conformance: %s: %d of %d scored scenarios pass; not scored: %d of %d (%s)", c.revision, len(passes), len(scored),
				len(passesUnscored), len(unscored), strings.Join(passesUnscored, ", "))
		})
	}
	if !t.Failed() {
		checkConformanceGuide(t, suite, verdicts, baselines)
	}
}

// suite is the installed conformance suite.
type suite struct {
	dir, node, program string
}

func newSuite(t *testing.T) suite {
	t.Helper()
	dir, err := filepath.Abs("conformance")
	if err != nil {
		t.Fatal(err)
	}
	s := suite{dir: dir, node: filepath.Join(dir, "node_modules", ".bin", "node"), program: filepath.Join(dir, "node_modules", ".bin", "conformance")}
	for _, file := range []string{s.node, s.program} {
		if _, err := os.Stat(file); err != nil {
			t.Skip("the conformance suite is not installed: run npm ci in conformance")
		}
	}
	return s
}

// serve starts a gateway as an operator would for clients that run in a browser at
// the gateway's own address, and for a list that is looked at on each request.
func (s suite) serve(t *testing.T) *gateway {
	t.Helper()
	address := freeAddr(t) // it has to be known before: it is in the configuration
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	text := fmt.Sprintf("listen: %s\nmanagement: { listen: %q }\nhttp: { allowedOrigins: [%q] }\nregistry: { manifest: { refreshTTL: 0s } }\n", address, "", "http://"+address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := spawn(t, command{args: []string{"serve", "--fixtures", "--config", file}})
	g.URL = g.address(t, "listening")
	g.stderr.await(t, g.exited, loadedLine)
	return g
}

// output runs the suite's command line and returns what it prints.
func (s suite) output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.node, append([]string{s.program}, args...)...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), err
}

var (
	serverScenarios = regexp.MustCompile(`(?ms)^Server scenarios .*?:\n(.*?)\n\n`)
	scoredScenario  = regexp.MustCompile(`(?m)^  - (\S+)$`)
	unscoredServer  = regexp.MustCompile(`(?m)^    - (\S+) \[server\]$`)
)

// scenarios names the scenarios for servers that a revision consists of, in the
// suite's order, and those that are run and do not count.
func (s suite) scenarios(t *testing.T, revision string) (scored, unscored []string) {
	t.Helper()
	text, err := s.output(t, "list", "--requirements", revision)
	section := serverScenarios.FindStringSubmatch(text)
	if err != nil || section == nil {
		t.Fatalf("the suite does not list its scenarios: %v\n%s", err, text)
	}
	for _, m := range scoredScenario.FindAllStringSubmatch(section[1]+"\n", -1) {
		scored = append(scored, m[1])
	}
	for _, m := range unscoredServer.FindAllStringSubmatch(text, -1) {
		unscored = append(unscored, m[1])
	}
	return scored, unscored
}

// verdict is what the suite found in one scenario.
type verdict []struct {
	ID, Status, ErrorMessage string
}

// passes reports whether something was found good and nothing bad: a warning is bad.
func (v verdict) passes() bool {
	return v.faults() == "" && slices.ContainsFunc(v, func(c struct{ ID, Status, ErrorMessage string }) bool { return c.Status == "SUCCESS" })
}

// faults are the checks that fail or warn, a line each.
func (v verdict) faults() string {
	var b strings.Builder
	for _, c := range v {
		if c.Status == "FAILURE" || c.Status == "WARNING" {
			fmt.Fprintf(&b, "%s %s: %s\n", c.Status, c.ID, c.ErrorMessage)
		}
	}
	return b.String()
}

// run runs a revision's scenarios. The suite judges the baseline, too: it refuses
// one that does not excuse a failure or that excuses what passes.
func (s suite) run(t *testing.T, url, revision string) map[string]verdict {
	t.Helper()
	results := t.TempDir()
	text, err := s.output(t, "server", "--url", url, "--requirements", revision, "--output-dir", results, "--expected-failures", baselineFile(revision))
	if err != nil {
		_, summary, _ := strings.Cut(text, "=== SUMMARY ===")
		t.Errorf("the suite: %v\n%s", err, summary)
	}
	directory := regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT[\d-]+Z$`)
	files, err := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]verdict{}
	for _, file := range files {
		name := directory.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		var checks verdict
		if err := json.Unmarshal([]byte(readText(t, file)), &checks); err != nil || name == nil {
			t.Fatalf("%s: %v", file, err)
		}
		verdicts[name[1]] = checks
	}
	return verdicts
}

// passing are those of the scenarios that pass. Each must have been run.
func passing(t *testing.T, names []string, seen map[string]verdict) (pass []string) {
	t.Helper()
	for _, name := range names {
		v, ran := seen[name]
		if !ran {
			t.Errorf("%s was not run", name)
		}
		if v.passes() {
			pass = append(pass, name)
		}
	}
	return pass
}

// known is one entry of a baseline.
type known struct {
	scenario string
	check    string // "" = the scenario as a whole
	reason   string
}

func baselineFile(revision string) string { return "baseline-" + revision + ".yaml" }

var baselineEntry = regexp.MustCompile(`^  - ([a-z0-9-]+)(?::([a-z0-9-]+))? # (\S.*)$`)

// readBaseline reads what of a revision does not pass. The suite reads the same
// file as YAML and sees no reasons.
func readBaseline(t *testing.T, revision string) (entries []known) {
	t.Helper()
	for line := range strings.Lines(readText(t, "conformance", baselineFile(revision))) {
		line = strings.TrimSuffix(line, "\n")
		m := baselineEntry.FindStringSubmatch(line)
		switch {
		case m != nil:
			entries = append(entries, known{m[1], m[2], m[3]})
		case !strings.HasPrefix(line, "#") && line != "server:":
			t.Errorf("%s: an entry needs the form \"  - scenario # reason\": %s", baselineFile(revision), line)
		}
	}
	return entries
}

// checkBaseline holds that the file has only what the suite has and what fails.
func checkBaseline(t *testing.T, baseline []known, seen map[string]verdict) {
	t.Helper()
	for i, k := range baseline {
		v, ran := seen[k.scenario]
		switch {
		case !ran:
			t.Errorf("%s is in the baseline and not among the revision's scenarios", k.scenario)
		case v.passes():
			t.Errorf("%s is in the baseline and passes", k.scenario)
		case k.check != "" && !strings.Contains(v.faults(), " "+k.check+": "):
			t.Errorf("%s:%s is in the baseline and does not fail", k.scenario, k.check)
		case slices.ContainsFunc(baseline[:i], func(e known) bool { return e.scenario == k.scenario && e.check == k.check }):
			t.Errorf("%s is in the baseline twice", k.scenario)
		}
	}
}

// checkConformanceGuide holds that docs/conformance.md has the tables of what
// passes and of what does not, as it is.
func checkConformanceGuide(t *testing.T, s suite, verdicts map[string]map[string]verdict, baselines map[string][]known) {
	t.Helper()
	modern, legacy := revisions[0].revision, revisions[1].revision
	var totals, passes, reasons strings.Builder
	shown, given := map[string]bool{}, map[string]bool{}
	for _, c := range revisions {
		fmt.Fprintf(&totals, "| %s | %d of %d | %d of %d |\n", c.revision, c.passes, c.scored, len(c.passesUnscored), c.reportedUnscored)
		scored, unscored := s.scenarios(t, c.revision)
		for _, name := range slices.Concat(scored, unscored) {
			if !shown[name] && (verdicts[modern][name].passes() || verdicts[legacy][name].passes()) {
				fmt.Fprintf(&passes, "| `%s` | %s | %s |\n", name, outcomeOf(verdicts[modern], name, revisions[0].passesUnscored), outcomeOf(verdicts[legacy], name, revisions[1].passesUnscored))
			}
			shown[name] = true
		}
		for _, k := range baselines[c.revision] {
			if !given[k.reason] {
				fmt.Fprintf(&reasons, "| %s | %s | %s |\n", k.reason, because(baselines[modern], k.reason), because(baselines[legacy], k.reason))
			}
			given[k.reason] = true
		}
	}
	guide := readText(t, "docs", "conformance.md")
	for title, table := range map[string]string{"totals": totals.String(), "what passes": passes.String(), "what does not, and why": reasons.String()} {
		if !strings.Contains(guide, "---|\n"+table) || strings.Contains(guide, table+"|") {
			t.Errorf("docs/conformance.md needs this table of %s:\n%s", title, table)
		}
	}
}

// because names the entries of a baseline that have a reason.
func because(baseline []known, reason string) string {
	var names []string
	for _, k := range baseline {
		switch {
		case k.reason != reason:
		case k.check == "":
			names = append(names, "`"+k.scenario+"`")
		default:
			names = append(names, "`"+k.check+"` of `"+k.scenario+"`")
		}
	}
	return cmp.Or(strings.Join(names, ", "), "—")
}

// outcomeOf is a scenario's outcome in a table: "—" when the revision has none of
// that name. unscored are those that pass and do not count.
func outcomeOf(seen map[string]verdict, name string, unscored []string) string {
	v, ran := seen[name]
	switch {
	case !ran:
		return "—"
	case v.passes() && slices.Contains(unscored, name):
		return "passes, not scored"
	case v.passes():
		return "passes"
	}
	return "does not pass"
}
