package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A metric is a family as /metrics exposes it: its type, and every label any of
// its series has.
type metric struct {
	kind   string // counter, gauge, histogram, …
	labels []string
}

// addedByPrometheus are the labels a series gets when it is scraped.
var addedByPrometheus = []string{"instance", "job"}

// promQL reads one expression and follows the labels through it: it finds what
// Prometheus would refuse, and what it would accept and answer with nothing. It
// knows the part of the language that the files of docs/deploy use.
type promQL struct {
	metrics map[string]metric
	values  func(metric, label string) []string // the values a label may have; nil = any
	tokens  []string
	at      int
}

// vector is what an expression evaluates to.
type vector struct {
	scalar  bool
	ranged  bool     // selected over a time: v[5m]
	counter bool     // grows until the process ends; no use but in rate and increase
	labels  []string // sorted
}

var promToken = regexp.MustCompile(`\s*(?:([0-9]+(?:\.[0-9]+)?(?:ms|[smhdwy])?\b|[a-zA-Z_:$][a-zA-Z0-9_:]*|"[^"\\]*"|'[^'\\]*'|=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],])|(\S))`)

// checkQuery returns the labels of an expression's result, or what is wrong
// with it.
func checkQuery(query string, metrics map[string]metric, values func(metric, label string) []string) (labels []string, err error) {
	q := &promQL{metrics: metrics, values: values}
	for _, m := range promToken.FindAllStringSubmatch(query, -1) {
		if m[2] != "" {
			return nil, fmt.Errorf("unexpected %q", m[2])
		}
		if m[1] != "" {
			q.tokens = append(q.tokens, m[1])
		}
	}
	defer func() {
		if p := recover(); p != nil {
			failed, ok := p.(queryError)
			if !ok {
				panic(p)
			}
			err = failed
		}
	}()
	v := q.expression(0)
	if q.at < len(q.tokens) {
		q.fail("unexpected %q", q.peek())
	}
	if v.ranged || v.counter {
		q.fail("a range or a bare counter is no result")
	}
	return v.labels, nil
}

type queryError struct{ error }

func (q *promQL) fail(format string, args ...any) { panic(queryError{fmt.Errorf(format, args...)}) }

func (q *promQL) peek() string {
	if q.at < len(q.tokens) {
		return q.tokens[q.at]
	}
	return ""
}

func (q *promQL) next() string {
	token := q.peek()
	q.at++
	return token
}

func (q *promQL) accept(token string) bool {
	if q.peek() == token {
		q.at++
		return true
	}
	return false
}

func (q *promQL) expect(token string) {
	if !q.accept(token) {
		q.fail("%q where %q is needed", q.peek(), token)
	}
}

var precedence = map[string]int{
	"or": 1, "and": 2, "unless": 2,
	"==": 3, "!=": 3, ">": 3, "<": 3, ">=": 3, "<=": 3,
	"+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}

// expression reads operators that bind tighter than limit.
func (q *promQL) expression(limit int) vector {
	left := q.operand()
	for {
		op := q.peek()
		p := precedence[op]
		if p <= limit {
			return left
		}
		q.at++
		var on []string
		matched := q.accept("on")
		if matched {
			on = q.names()
		}
		left = q.combine(op, left, q.expression(p), matched, on)
	}
}

// combine is what a binary operator does to labels. Operands that differ in them
// match nothing. Whether a counter is there or not is worth asking; its value is
// not.
func (q *promQL) combine(op string, left, right vector, matched bool, on []string) vector {
	presence := op == "unless" && left.counter && right.counter
	if left.ranged || right.ranged || !presence && (left.counter || right.counter) {
		q.fail("%s on a range, or on a counter without rate or increase", op)
	}
	left.counter = false
	switch {
	case left.scalar && right.scalar:
		return vector{scalar: true}
	case right.scalar:
		return left
	case left.scalar:
		return right
	case matched:
		q.contains(left, on, op)
		q.contains(right, on, op)
	case op != "or" && !slices.Equal(left.labels, right.labels):
		q.fail("%s between %v and %v matches nothing", op, left.labels, right.labels)
	}
	return left
}

func (q *promQL) contains(v vector, labels []string, where string) {
	for _, label := range labels {
		if !slices.Contains(v.labels, label) {
			q.fail("%s needs the label %s, which is not among %v", where, label, v.labels)
		}
	}
}

func (q *promQL) operand() vector {
	token := q.next()
	switch {
	case token == "":
		q.fail("it ends too early")
	case token == "(":
		v := q.expression(0)
		q.expect(")")
		return v
	case token[0] >= '0' && token[0] <= '9':
		return vector{scalar: true}
	case slices.Contains([]string{"sum", "min", "max", "avg", "count", "topk", "bottomk"}, token):
		return q.aggregation(token)
	case q.peek() == "(":
		return q.function(token)
	}
	return q.selector(token)
}

// names is a list of labels in parentheses.
func (q *promQL) names() (names []string) {
	q.expect("(")
	for !q.accept(")") {
		names = append(names, q.next())
		if q.peek() != ")" {
			q.expect(",")
		}
		if q.peek() == "" {
			q.fail("a list of labels has no end")
		}
	}
	return slices.Sorted(slices.Values(names))
}

func (q *promQL) aggregation(name string) vector {
	var by []string
	if q.accept("by") {
		by = q.names()
	}
	args := q.arguments()
	ranked := name == "topk" || name == "bottomk"
	if want := map[bool]int{false: 1, true: 2}[ranked]; len(args) != want {
		q.fail("%s has %d arguments", name, len(args))
	}
	v := args[len(args)-1]
	if v.scalar || v.ranged || v.counter {
		q.fail("%s needs a vector, and counters need rate or increase first", name)
	}
	q.contains(v, by, name)
	if ranked && by == nil {
		return v
	}
	return vector{labels: by}
}

func (q *promQL) arguments() (args []vector) {
	q.expect("(")
	for !q.accept(")") {
		args = append(args, q.expression(0))
		if q.peek() != ")" {
			q.expect(",")
		}
	}
	return args
}

func (q *promQL) function(name string) vector {
	args := q.arguments()
	if name == "time" && len(args) == 0 {
		return vector{scalar: true}
	}
	if len(args) == 0 {
		q.fail("%s without arguments", name)
	}
	last := args[len(args)-1]
	switch name {
	case "rate", "increase":
		if !last.ranged || !last.counter {
			q.fail("%s needs a counter over a time", name)
		}
		return vector{labels: last.labels}
	case "changes", "count_over_time":
		if !last.ranged || last.counter {
			q.fail("%s needs a gauge over a time", name)
		}
		return vector{labels: last.labels}
	case "histogram_quantile":
		q.contains(last, []string{"le"}, name)
		without := slices.DeleteFunc(slices.Clone(last.labels), func(l string) bool { return l == "le" })
		return vector{labels: without}
	case "absent", "vector":
		return vector{}
	}
	q.fail("%s is no function this test knows", name)
	return vector{}
}

func (q *promQL) selector(name string) vector {
	m, ok := q.metrics[name]
	counter := m.kind == "counter"
	if base, part := histogramPart(name); !ok && q.metrics[base].kind == "histogram" {
		m, ok, counter = q.metrics[base], true, true
		if part == "bucket" {
			m.labels = append(slices.Clone(m.labels), "le")
		}
	} else if m.kind == "histogram" {
		q.fail("%s is a histogram: its series end in _bucket, _sum and _count", name)
	}
	if !ok {
		q.fail("there is no metric %s", name)
	}
	v := vector{counter: counter, labels: slices.Sorted(slices.Values(append(slices.Clone(m.labels), addedByPrometheus...)))}
	if q.accept("{") {
		q.matchers(name, v)
	}
	if q.accept("[") {
		q.next() // the time
		q.expect("]")
		v.ranged = true
	}
	if q.accept("offset") {
		if age := q.next(); age == "" || age[0] < '0' || age[0] > '9' {
			q.fail("offset %s is no time", age)
		}
	}
	return v
}

func histogramPart(name string) (base, part string) {
	for _, part := range []string{"bucket", "sum", "count"} {
		if base, ok := strings.CutSuffix(name, "_"+part); ok {
			return base, part
		}
	}
	return name, ""
}

func (q *promQL) matchers(metric string, v vector) {
	for !q.accept("}") {
		label, op, value := q.next(), q.next(), q.next()
		q.contains(v, []string{label}, "a matcher")
		if !slices.Contains([]string{"=", "!=", "=~", "!~"}, op) || len(value) < 2 || value[0] != '"' && value[0] != '\'' {
			q.fail("%s%s%s is no matcher", label, op, value)
		}
		q.checkValues(metric, label, strings.Split(value[1:len(value)-1], "|"))
		if q.peek() != "}" {
			q.expect(",")
		}
	}
}

// checkValues finds values that no series ever has. A dashboard's variable
// stands for any.
func (q *promQL) checkValues(metric, label string, values []string) {
	known := q.values(metric, label)
	for _, value := range values {
		if known != nil && !strings.HasPrefix(value, "$") && !slices.Contains(known, value) {
			q.fail("the label %s of %s is never %q; it may be one of %v", label, metric, value, known)
		}
	}
}

var exposition = regexp.MustCompile(`(?m)^(?:# TYPE (\S+) (\S+)|([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+)$`)

var labelPair = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)

// parseMetrics reads Prometheus' text format.
func parseMetrics(text string) map[string]metric {
	kinds, labels := map[string]string{}, map[string]map[string]bool{}
	for _, m := range exposition.FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			kinds[m[1]], labels[m[1]] = m[2], map[string]bool{}
			continue
		}
		family := m[3]
		if base, _ := histogramPart(family); kinds[base] == "histogram" || kinds[base] == "summary" {
			family = base
		}
		for _, pair := range labelPair.FindAllStringSubmatch(m[4], -1) {
			if pair[1] != "le" && pair[1] != "quantile" && labels[family] != nil {
				labels[family][pair[1]] = true
			}
		}
	}
	metrics := map[string]metric{}
	for name, kind := range kinds {
		metrics[name] = metric{kind, slices.Sorted(maps.Keys(labels[name]))}
	}
	return metrics
}
