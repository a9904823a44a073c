package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// exposed are the metrics of a running gateway that has seen everything there is
// to count.
func exposed(t *testing.T) map[string]metric {
	t.Helper()
	a := watched(t).management(t, http.MethodGet, "/metrics")
	if a.status != http.StatusOK {
		t.Fatalf("/metrics answers %d %s", a.status, a.body)
	}
	file, _ := apiKeys(t, apiKeyEntry("42"))
	b := guarded(t, requires(file, "")).management(t, http.MethodGet, "/metrics")
	metrics := parseMetrics(b.body) // those of a gateway with API keys
	maps.Copy(metrics, parseMetrics(a.body))
	metrics[issuerUp] = exposedOfAnIssuer(t)
	return metrics
}

const issuerUp = "tollgate_issuer_up"

// exposedOfAnIssuer is what /metrics has of an OAuth issuer once it was asked.
func exposedOfAnIssuer(t *testing.T) metric {
	t.Helper()
	g := guarded(t, requires("", "http://127.0.0.1:1"))
	g.list(t, true, "plant", bearer(ecIssuerKey(t, "k1").sign(t, map[string]any{"iss": "http://127.0.0.1:1"}))...)
	m, ok := parseMetrics(g.management(t, http.MethodGet, "/metrics").body)[issuerUp]
	if !ok {
		t.Fatalf("there is no %s", issuerUp)
	}
	return m
}

// labelValues are the values a label of a metric can have; nil is any.
func labelValues(t *testing.T) func(metric, label string) []string {
	t.Helper()
	known := map[string][]string{
		"status":    constants(t, "registry", "Condition"),
		"kind":      constants(t, "registry", "FailureKind"),
		"origin":    {"portal", "manifest"},
		"result":    constants(t, "registry", "CheckResult"),
		"outcome":   outcomes(t),
		"mode":      constants(t, "registry", "StateMode"),
		"operation": {"create", "open", "update"},
		"limit":     constants(t, "cost", "Limit"),
		"enforced":  {"true", "false"},
		"reason":    refusalReasons(t),
	}
	handled := append(constants(t, filepath.Join("server", "handle"), "Kind"), "ok", "unchanged")
	return func(metric, label string) []string {
		if metric == "tollgate_handles_total" && label == "outcome" {
			return handled // words of its own; a few are those of calls, too
		}
		return known[label]
	}
}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string      `yaml:"name"`
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	decodeYAML(t, readText(t, "docs", "deploy", "prometheus-alerts.yaml"), &file)
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// decodeYAML decodes strictly.
func decodeYAML(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalWithOptions([]byte(text), into, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
}

var labelInTemplate = regexp.MustCompile(`\{\{ *\$labels\.([a-z_]+)|\{\{ *([a-z_]+) *\}\}`)

// checkTemplate finds labels in a text for which the query's result has none.
func checkTemplate(t *testing.T, where, text string, labels []string) {
	t.Helper()
	for _, m := range labelInTemplate.FindAllStringSubmatch(text, -1) {
		if label := m[1] + m[2]; !slices.Contains(labels, label) {
			t.Errorf("%s shows the label %s, but its query's result has %v", where, label, labels)
		}
	}
}

// runbookBase is what the reader of the rules puts another address in for.
const runbookBase = "https://git.example.internal/tollgate/"

// TestAlertsUseWhatExists holds the rules against the metrics of a gateway, and
// what they tell their reader against the documents.
func TestAlertsUseWhatExists(t *testing.T) {
	metrics, values := exposed(t), labelValues(t)
	rules := alertRules(t)
	if !strings.Contains(readText(t, "docs", "deploy", "README.md"), "s|"+runbookBase+"|") {
		t.Errorf("the README does not say what to do about %s", runbookBase)
	}
	if len(rules) < 10 {
		t.Errorf("found %d rules; there are more", len(rules))
	}
	for _, rule := range rules {
		labels, err := checkQuery(rule.Expr, metrics, values)
		if err != nil {
			t.Errorf("%s: %v\nin: %s", rule.Alert, err, rule.Expr)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s has the severity %q", rule.Alert, rule.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if rule.Annotations[name] == "" {
				t.Errorf("%s has no %s", rule.Alert, name)
			}
			checkTemplate(t, rule.Alert+": "+name, rule.Annotations[name], labels)
		}
		url := rule.Annotations["runbook_url"]
		path, ok := strings.CutPrefix(url, runbookBase)
		file, anchor, _ := strings.Cut(path, "#")
		if !ok || !slices.Contains([]string{"docs/operations.md", "docs/operations-reference.md"}, file) || !slices.Contains(anchors(t, file), anchor) {
			t.Errorf("%s has the runbook_url %q, which is no section of the documents on operations", rule.Alert, url)
		}
	}
}

// dashboard is the part of a Grafana dashboard the test reads.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
			Definition string
		}
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ UID string }
		GridPos    struct{ H, W, X, Y int }
		Targets    []struct{ RefID, Expr, LegendFormat string }
	}
}

var variableQuery = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// TestTheDashboardUsesWhatExists holds every query of the dashboard, its
// variables' included, against the metrics of a gateway.
func TestTheDashboardUsesWhatExists(t *testing.T) {
	metrics, values := exposed(t), labelValues(t)
	var d dashboard
	if err := json.Unmarshal([]byte(readText(t, "docs", "deploy", "grafana-dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type == "datasource" {
			continue
		}
		m := variableQuery.FindStringSubmatch(v.Definition)
		if m == nil || !slices.Contains(append(slices.Clone(metrics[m[1]].labels), addedByPrometheus...), m[2]) || metrics[m[1]].kind == "" {
			t.Errorf("the variable %s asks for %q, which does not exist", v.Name, v.Definition)
		}
	}
	if !variables["datasource"] {
		t.Error("the dashboard lets nobody choose the data source")
	}
	ids, queries := map[int]bool{}, 0
	var rows []string
	for _, panel := range d.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type == "row" {
			rows = append(rows, panel.Title)
			continue
		}
		if panel.Datasource.UID != "${datasource}" || len(panel.Targets) == 0 || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("%s: no query, not of the chosen data source, or beyond the edge", panel.Title)
		}
		for _, target := range panel.Targets {
			queries++
			labels, err := checkQuery(target.Expr, metrics, values)
			if err != nil {
				t.Errorf("%s: %v\nin: %s", panel.Title, err, target.Expr)
			}
			checkTemplate(t, panel.Title, target.LegendFormat, labels)
			for _, m := range dollarName.FindAllStringSubmatch(target.Expr, -1) {
				if !variables[m[1]] {
					t.Errorf("%s uses the variable %s, which is not there", panel.Title, m[1])
				}
			}
		}
	}
	want := []string{"Is it serving", "Calls", "Latency: total and Tool Service", "Origins and lists", "Budgets and callers", "Redis", "Process"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if queries < 20 {
		t.Errorf("found %d queries; there are more", queries)
	}
}

var dollarName = regexp.MustCompile(`\$(\w+)`)

var metricRow = regexp.MustCompile("(?m)^\\| `(tollgate_[a-z_]+)` \\| ([a-z]+) \\|(.*?)\\| .+ \\|$")

var codeName = regexp.MustCompile("`([a-z_]+)`")

// TestOperationsNamesEveryMetric compares the table with what a gateway exposes:
// names, types and labels.
func TestOperationsNamesEveryMetric(t *testing.T) {
	documented := map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(operations(t), -1) {
		var labels []string
		for _, m := range codeName.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, m[1])
		}
		slices.Sort(labels)
		documented[row[1]] = fmt.Sprintf("%s %v", row[2], labels)
	}
	real := map[string]string{}
	for name, m := range exposed(t) {
		if strings.HasPrefix(name, "tollgate_") {
			real[name] = fmt.Sprintf("%s %v", m.kind, m.labels)
		}
	}
	if diff := cmp.Diff(real, documented); diff != "" {
		t.Errorf("docs/operations-reference.md differs from /metrics (-metrics +documented):\n%s", diff)
	}
}

// TestDocumentsNameMetricsThatExist finds misspelt and outdated metrics in
// running text, and in queries that the documents show.
func TestDocumentsNameMetricsThatExist(t *testing.T) {
	metrics, values := exposed(t), labelValues(t)
	documents, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	mention := regexp.MustCompile("`((?:tollgate|go|process)_[a-z_]+(?:\\{[^}`]*\\})?)`")
	queryLine := regexp.MustCompile(`(?m)^(?:sum|max|min|histogram_quantile|tollgate_\w+)\b.*$`)
	for _, document := range documents {
		text := readText(t, document)
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			name, _, matched := strings.Cut(m[1], "{")
			if _, ok := metrics[name]; !ok {
				t.Errorf("%s names the metric %s, which does not exist", document, name)
			} else if matched {
				if _, err := checkQuery(m[1], metrics, values); err != nil && metrics[name].kind != "counter" {
					t.Errorf("%s: %s: %v", document, m[1], err)
				}
			}
		}
		for _, query := range queryLine.FindAllString(text, -1) {
			if _, err := checkQuery(query, metrics, values); err != nil {
				t.Errorf("%s: %v\nin: %s", document, err, query)
			}
		}
	}
}

// TestTheQueryCheckFindsMistakes tries what the checks above rely on.
func TestTheQueryCheckFindsMistakes(t *testing.T) {
	metrics := map[string]metric{
		"g": {"gauge", []string{"route", "status"}}, "c_total": {"counter", []string{"route"}}, "h_seconds": {"histogram", []string{"route"}},
		"other": {"gauge", []string{"status"}},
	}
	values := func(metric, label string) []string {
		return map[string][]string{"g.status": {"good", "bad"}, "other.status": {"fine"}}[metric+"."+label]
	}
	good := map[string][]string{
		`g{status=~"good|bad", route="$route"} == 1`:                                {"instance", "job", "route", "status"},
		`sum by (route) (rate(c_total[5m])) / sum by (route) (g) > 0.5`:             {"route"},
		`histogram_quantile(0.99, sum by (le, route) (rate(h_seconds_bucket[5m])))`: {"route"},
		`g > 5 and on (route) sum by (route) (rate(c_total[$__rate_interval])) > 0`: {"instance", "job", "route", "status"},
		`topk(10, max by (route) (g)) or vector(0)`:                                 {"route"},
		`sum(rate(h_seconds_sum[5m])) - sum(rate(h_seconds_count[5m]))`:             nil,
		`c_total unless c_total offset 1h`:                                          {"instance", "job", "route"},
		`sum(other{status="fine"})`:                                                 nil,
		`absent(g)`:                                                                 nil,
		`changes(g[30m]) > 2`:                                                       {"instance", "job", "route", "status"},
		`count_over_time(g[30m])`:                                                   {"instance", "job", "route", "status"},
		`time() - g`:                                                                {"instance", "job", "route", "status"},
		`count by (route) (g == 1) + (2 * 3)`:                                       {"route"},
	}
	for query, want := range good {
		if labels, err := checkQuery(query, metrics, values); err != nil || !slices.Equal(labels, want) {
			t.Errorf("%s: labels %v, error %v", query, labels, err)
		}
	}
	for _, query := range []string{
		``, `g == `, `sum by (route (g)`, `sum(g))`, `g{status="good"`, `g{status}`, `g{status="good";}`,
		`nothing`, `g{nothing="x"}`, `g{status="ugly"}`, `g{status="fine"}`, `sum by (nothing) (g)`, `g and on (nothing) g`,
		`c_total`, `sum(c_total)`, `rate(g[5m])`, `rate(c_total)`, `h_seconds`, `g[5m]`, `what(g)`, `changes(g)`, `changes(c_total[5m])`, `changes(g[5m]) and other`,
		`histogram_quantile(0.9, sum by (route) (rate(h_seconds_bucket[5m])))`,
		`sum by (route) (g) / sum(g)`, `topk(sum(g))`,
	} {
		if labels, err := checkQuery(query, metrics, values); err == nil {
			t.Errorf("%q passes, with the labels %v", query, labels)
		}
	}
}
