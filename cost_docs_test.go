package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/config"
	"tollgate/cost"
	"tollgate/registry"
	"tollgate/server/upstream"
	"tollgate/transport"
)

var costPage = filepath.Join("docs", "cost.md")

// tableRows are the cells of the table in a text whose first column has that
// heading, row by row.
func tableRows(t *testing.T, text, heading string) (rows [][]string) {
	t.Helper()
	_, table, found := strings.Cut(text, "\n| "+heading+" |")
	if !found {
		t.Fatalf("there is no table that begins with %q", heading)
	}
	for i, line := range strings.Split(table, "\n") {
		if i < 2 { // the rest of the heading, and the rule below it
			continue
		}
		line, ok := strings.CutPrefix(line, "| ")
		if !ok {
			break
		}
		rows = append(rows, strings.Split(strings.TrimSuffix(strings.TrimSuffix(line, "|"), " "), " | "))
	}
	if len(rows) < 2 {
		t.Fatalf("the table that begins with %q has %d rows", heading, len(rows))
	}
	return rows
}

// leading is the whole number a cell begins with.
func leading(t *testing.T, cell string) int64 {
	t.Helper()
	first, _, _ := strings.Cut(cell, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(first, ",", ""), 10, 64)
	if err != nil {
		t.Fatalf("%q does not begin with a number", cell)
	}
	return n
}

// code is what stands between the first two backquotes of a cell.
func code(cell string) string {
	_, rest, _ := strings.Cut(cell, "`")
	text, _, _ := strings.Cut(rest, "`")
	return text
}

// inOneLine is a text as it reads, wherever its lines end.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func price(rows, nodeCalls int64) int64 {
	return (rows*(100+20*nodeCalls) + 99) / 100
}

// TestTheFormulaOfTheCostPage holds the table and the lines of arithmetic that Tool
// Service teams copy against the gateway's own formula.
func TestTheFormulaOfTheCostPage(t *testing.T) {
	page := section(t, readText(t, costPage), "## The formula")
	var calls [][2]int64
	for _, row := range tableRows(t, page, "rows") {
		rows, nodeCalls := leading(t, row[0]), leading(t, row[1])
		calls = append(calls, [2]int64{rows, nodeCalls})
		if got := cost.Of(rows, nodeCalls); got != leading(t, row[2]) {
			t.Errorf("%v, but it costs %d", row, got)
		}
	}
	for rows := range int64(40) {
		calls = append(calls, [2]int64{rows * rows, rows % 7})
	}
	want := make([]int64, len(calls))
	for i, c := range calls {
		if want[i] = cost.Of(c[0], c[1]); price(c[0], c[1]) != want[i] {
			t.Errorf("in Go, %v costs %d, want %d", c, price(c[0], c[1]), want[i])
		}
	}
	samples := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```(go|java|python|typescript)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		samples[m[1]] = m[2]
	}
	if !strings.Contains(readText(t, "cost_docs_test.go"), "\n"+samples["go"]) || samples["go"] == "" {
		t.Error("the page does not show the Go function as it is here")
	}
	expression := regexp.MustCompile(`return (.*)\n`)
	plain := func(language string) string {
		m := expression.FindStringSubmatch(samples[language])
		if m == nil {
			t.Fatalf("the page has no %s", language)
		}
		return strings.ReplaceAll(strings.TrimSuffix(m[1], ";"), " ", "")
	}
	if plain("java") != plain("go") {
		t.Errorf("Java computes %s, Go %s", plain("java"), plain("go"))
	}
	arguments, _ := json.Marshal(calls)
	untyped := strings.ReplaceAll(samples["typescript"], ": number", "")
	for program, script := range map[string]string{
		"python3": samples["python"] + "\nprint([price(r, n) for r, n in " + string(arguments) + "])",
		"node":    untyped + "\nconsole.log(JSON.stringify(" + string(arguments) + ".map(([r, n]) => price(r, n))))",
	} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip(program + " is not installed")
			}
			out, err := exec.CommandContext(t.Context(), program, map[string]string{"python3": "-c", "node": "-e"}[program], script).Output()
			var got []int64
			if err != nil || json.Unmarshal(out, &got) != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheHeadersOfTheCostPage reads each value of x-agent-cost as the gateway does.
func TestTheHeadersOfTheCostPage(t *testing.T) {
	for _, row := range tableRows(t, section(t, readText(t, costPage), "## Tell the price"), "`x-agent-cost`") {
		h := http.Header{}
		switch {
		case row[0] == "no header":
		case row[0] == "an empty one":
			h.Add("x-agent-cost", "")
		default:
			for _, value := range strings.Split(row[0], " and ") {
				h.Add("x-agent-cost", code(value))
			}
		}
		if got, _ := upstream.ParseCost(h); got != leading(t, row[1]) {
			t.Errorf("%v, but %v costs %d", row, h, got)
		}
	}
}

// TestTheEstimatesOfTheCostPage reads each declaration as the registry does, and
// estimates the call beside it.
func TestTheEstimatesOfTheCostPage(t *testing.T) {
	text := section(t, readText(t, costPage), "## The estimate")
	pageSize := cost.DefaultConfig().PageSize
	for _, row := range tableRows(t, text, "`_meta.cost`") {
		declared := ""
		if row[0] != "none" {
			declared = `,"cost":` + code(row[0])
		}
		manifest, findings := registry.ParseManifest([]byte(`{"bundleId":"s","tools":[{"name":"t","description":"d","inputSchema":{"type":"object"},`+
			`"_meta":{"version":"1"`+declared+`}}]}`), registry.ManifestRules{Service: "s"})
		if manifest == nil {
			t.Fatalf("%s is refused: %v", row[0], findings)
		}
		if got := cost.Rule(manifest.Tools[0].Cost).Reserve([]byte(code(row[1])), pageSize); got != leading(t, row[2]) {
			t.Errorf("%v, but %d is reserved", row, got)
		}
	}
	if !strings.Contains(inOneLine(text), "at most "+strconv.FormatInt(pageSize, 10)+" rows") {
		t.Errorf("the page does not say that a page is %d rows", pageSize)
	}
}

// TestTheTiersOfTheCostPage holds the table of tiers and the example that changes
// them.
func TestTheTiersOfTheCostPage(t *testing.T) {
	page := section(t, readText(t, costPage), "## Who pays")
	documented := map[string]cost.Tier{}
	for _, row := range tableRows(t, page, "tier") {
		documented[code(row[0])] = cost.Tier{Capacity: leading(t, row[1]), RefillPerSecond: leading(t, row[2]), Hourly: leading(t, row[3])}
	}
	if diff := cmp.Diff(cost.DefaultTiers(), documented); diff != "" {
		t.Errorf("the page shows other tiers (-defaults +page):\n%s", diff)
	}
	example := yamlBlock.FindStringSubmatch(page)
	if example == nil {
		t.Fatal("the page does not show how to change a tier")
	}
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, example[1])
	c, err := config.Load(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := cost.DefaultTiers()
	want["basic"] = cost.Tier{Capacity: 200000, RefillPerSecond: 500, Hourly: 500000}
	want["nightly"] = cost.Tier{Capacity: 20000000, RefillPerSecond: 10000, Hourly: 20000000}
	if diff := cmp.Diff(want, c.Cost.Tiers); diff != "" {
		t.Errorf("the example configures something else (-want +got):\n%s", diff)
	}
}

var (
	admittedStep = regexp.MustCompile(`with the estimate (\d+) is let through$`)
	settledStep  = regexp.MustCompile(`^it cost (\d+)$`)
	refusedStep  = regexp.MustCompile(`with the estimate (\d+) is refused$`)
)

// TestTheAccountOfTheCostPage makes the steps of the table on an account.
func TestTheAccountOfTheCostPage(t *testing.T) {
	const now = 1_800_000_000_000_000
	var account cost.Ledger
	limits := cost.Limits{Tier: cost.Tier{Capacity: 1000, RefillPerSecond: 1, Hourly: 2000}}
	last := ""
	for _, row := range tableRows(t, section(t, readText(t, costPage), "## Two limits, one decision"), "what happens") {
		reserve := func(estimate string, admitted bool) {
			last = cost.NewID()
			d := account.Reserve(now, cost.Request{Payer: cost.Payer{Principal: "key:42", Limits: limits}, ID: last, Estimate: leading(t, estimate), Lease: time.Minute})
			if d.Admitted != admitted {
				t.Errorf("%v, but the answer is %+v", row, d)
			}
		}
		if m := admittedStep.FindStringSubmatch(row[0]); m != nil {
			reserve(m[1], true)
		} else if m := refusedStep.FindStringSubmatch(row[0]); m != nil {
			reserve(m[1], false)
		} else if m := settledStep.FindStringSubmatch(row[0]); m != nil {
			account.Settle(now, cost.Settlement{Payer: cost.Payer{Limits: limits}, ID: last, Actual: leading(t, m[1])})
		} else if row[0] != "nothing has happened" {
			t.Fatalf("what is %q?", row[0])
		}
		b := account.Peek(now, limits)
		if b.BurstRemaining != leading(t, row[1]) || limits.Hourly-b.HourRemaining != leading(t, row[2]) {
			t.Errorf("%v, but %d are in the bucket, and %d are used", row, b.BurstRemaining, limits.Hourly-b.HourRemaining)
		}
	}
}

// TestTheCostPageSaysWhoIsRefused holds the table of cost.enforce.
func TestTheCostPageSaysWhoIsRefused(t *testing.T) {
	said := map[bool]string{true: "is refused", false: "passes"}
	for _, row := range tableRows(t, section(t, readText(t, costPage), "## Who is refused"), "`cost.enforce`") {
		e := cost.Enforcement(code(row[0]))
		c := cost.DefaultConfig()
		if strings.Contains(row[0], "(default)") != (c.Enforce == e) {
			t.Errorf("the default is %s", c.Enforce)
		}
		if c.Enforce = e; c.Validate() != nil {
			t.Errorf("there is no %s", e)
		}
		if row[1] != said[e.Refuses(cost.Anonymous)] || row[2] != said[e.Refuses("key:42")] {
			t.Errorf("%v is not so", row)
		}
	}
}

var namedKey = regexp.MustCompile("`((?:cost|auth|upstream|http|registry|redis)\\.[A-Za-z.]+)")

// TestTheBudgetPagesNameKeysThatExist looks up every configuration key they name, and
// the defaults that the page about cost gives with them.
func TestTheBudgetPagesNameKeysThatExist(t *testing.T) {
	reference := readText(t, "docs", "configuration.md")
	page := inOneLine(readText(t, costPage))
	for _, key := range namedKey.FindAllStringSubmatch(page+readText(t, authenticationPage), -1) {
		if !strings.Contains(reference, "| `"+key[1]+"` |") {
			t.Errorf("docs/configuration.md has no %s", key[1])
		}
	}
	up, public := upstream.DefaultConfig(), transport.DefaultConfig()
	for _, said := range []string{
		"`upstream.maxInFlightPerService`, for each process (" + strconv.Itoa(up.MaxInFlightPerService) + ")",
		"`upstream.maxResponseBytes` (" + strconv.FormatInt(up.MaxResponseBytes>>20, 10) + " MiB)",
		"`http.maxRequestBytes` (" + strconv.Itoa(int(public.HTTP.MaxRequestBytes)>>20) + " MiB)",
	} {
		if !strings.Contains(page, said) {
			t.Errorf("the page does not say %s", said)
		}
	}
	for said, meant := range map[string]time.Duration{"Each question has 50 ms and": budgetTimeout, "a shutdown waits a second for": settleAtLast} {
		if known := map[time.Duration]string{50 * time.Millisecond: "50 ms", time.Second: "a second"}[meant]; known == "" || !strings.Contains(said, known) || !strings.Contains(page, said) {
			t.Errorf("the page says %q, and it is %v", said, meant)
		}
	}
	if c := cost.DefaultConfig(); c.MinCharge != 0 || c.MaxInFlight != 0 || c.RequestsPerMinute != 0 {
		t.Error("the page says that these three are off by default")
	}
}

// TestTheOptionalLimitsOfTheCostPage: a refusal names them as the page says.
func TestTheOptionalLimitsOfTheCostPage(t *testing.T) {
	const now = 1_800_000_000_000_000
	tier := cost.DefaultTiers()[cost.BasicTier]
	for name, limits := range map[string]cost.Limits{
		"in_flight": {Tier: tier, MaxInFlight: 1},
		"requests":  {Tier: tier, RequestsPerMinute: 1},
	} {
		var account cost.Ledger
		request := cost.Request{Payer: cost.Payer{Principal: "key:42", Limits: limits}, ID: "a", Estimate: 1, Lease: time.Minute}
		account.Reserve(now, request)
		request.ID = "b"
		d := account.Reserve(now, request)
		if !slices.Equal(d.Violated, []cost.Limit{cost.Limit(name)}) {
			t.Errorf("%s: %+v", name, d)
		}
		if name == "in_flight" && d.Wait != time.Second {
			t.Errorf("the page says to wait 1 s, and the answer %v", d.Wait)
		}
	}
	page := readText(t, costPage)
	for _, word := range constants(t, "cost", "Limit") {
		if !strings.Contains(section(t, page, "## A refusal"), "`"+word+"`") {
			t.Errorf("the page does not name %s", word)
		}
	}
}

// TestTheReportingServiceCountsAsTheCostPageSays calls the demo's tools and compares
// what they charge with the formula and the page's node calls.
func TestTheReportingServiceCountsAsTheCostPageSays(t *testing.T) {
	calls := map[string]struct {
		arguments string
		units     int64 // operating units asked
	}{
		"telemetry_projects":       {`{"limit":3}`, 0},
		"telemetry_tags":           {`{"project":"ALD","limit":7}`, 0},
		"telemetry_current_values": {`{"tags":["ALD.GT1.BRG03.VIBX","CAL.PV2.INV07.PAC"]}`, 2},
		"telemetry_history":        {`{"tag":"DUN.HY2.LOAD","from":"2020-02-01","to":"2020-02-08"}`, 1},
		"telemetry_time_series":    {`{"tags":["ALD.GT1.BRG03.VIBX","CAL.PV2.INV07.PAC"],"from":"2023-01-01T00:00:00Z","to":"2023-01-02T00:00:00Z","limit":11}`, 2},
	}
	g := serve(t, command{args: []string{"--fixtures"}})
	for _, row := range tableRows(t, section(t, readText(t, costPage), "## The formula"), "tool") {
		for _, tool := range strings.Split(row[0], ", ") {
			name := code(tool)
			call, ok := calls[name]
			if !ok {
				t.Fatalf("no call of %s here", name)
			}
			delete(calls, name)
			nodeCalls := leading(t, row[1])
			if strings.HasSuffix(row[1], "per operating unit") {
				nodeCalls *= call.units
			}
			a := g.modern(t, "plant", "tools/call", name, `"name":"`+name+`","arguments":`+call.arguments)
			var answered struct {
				Result struct {
					Meta struct {
						Cost struct{ Charged int64 } `json:"tollgate/cost"`
					} `json:"_meta"`
					StructuredContent struct{ Rows []any }
				}
			}
			if err := json.Unmarshal([]byte(a.body), &answered); err != nil || len(answered.Result.StructuredContent.Rows) == 0 {
				t.Fatalf("%s: %d %s", name, a.status, a.body)
			}
			rows := int64(len(answered.Result.StructuredContent.Rows))
			if want := cost.Of(rows, nodeCalls); answered.Result.Meta.Cost.Charged != want {
				t.Errorf("%s: %d rows are charged %d, by the page %d", name, rows, answered.Result.Meta.Cost.Charged, want)
			}
		}
	}
	for name := range calls {
		t.Errorf("the page does not say how %s counts", name)
	}
}

// TestTheCommandsOfTheCostPage runs its commands, and those of the guide, against the
// example service.
func TestTheCommandsOfTheCostPage(t *testing.T) {
	for _, tool := range []string{"sha256sum", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	own := startOwnService(t)
	for page, least := range map[string]int{costPage: 2, filepath.Join("docs", "tool-service-guide.md"): 1} {
		blocks := shellBlocks(t, page)
		if len(blocks) < least {
			t.Errorf("%s has %d commands", page, len(blocks))
		}
		for _, block := range blocks {
			if strings.Contains(block.lines, "/mcp/tables") {
				continue // a question: TestTheGuidesQuestionCanBeTried
			}
			lines := strings.ReplaceAll(block.lines, "./tollgate", binary)
			lines = strings.ReplaceAll(lines, "docs/examples/tollgate.yaml", own.config)
			if out := shell(t, lines); out != block.output || out == "" {
				t.Errorf("%s shows\n%s\nbut this prints\n%s\n%s", page, block.output, out, block.lines)
			}
		}
	}
}
