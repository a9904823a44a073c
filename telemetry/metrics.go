package telemetry

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tollgate/registry"
	"tollgate/server"
)

// MetricsOptions say what Metrics report besides what they hear. A function that
// is nil leaves its metrics out. Each is called once per scrape, must be safe
// for concurrent use, and waits for nobody; only Redis and Budgets may ask Redis,
// for which the scrape then waits.
type MetricsOptions struct {
	Version, Commit string // of the build

	Status   func() registry.Status                    // how routes and origins are doing
	Ready    func(registry.Status) bool                // whether the process, of which Status said this, should get requests
	InFlight func() map[registry.ServiceKey]int        // calls per Tool Service right now
	Redis    func() (up bool, consecutiveFailures int) // nil: none is configured
	Budgets  func() BudgetState                        // nil: calls are not metered
	Issuer   func() (up, asked bool)                   // nil: there is no OAuth issuer. asked: it has been asked for its keys
	Keys     func() (keys int, faulty bool)            // nil: there is no file of API keys
	Dropped  func() (spans uint64, traced bool)        // spans no collector will get; traced is false when there are no traces
}

// Buckets of the histograms, in seconds. They reach from an answer of a local
// service to the default of registry.maxToolTimeout.
var durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// Metrics are the gateway's Prometheus metrics. They are a server.Observer. All
// methods are safe for concurrent use.
//
// Routes and services label metrics only while they are declared: the number of
// series follows the declarations, whatever callers ask for.
type Metrics struct {
	options  MetricsOptions
	gatherer *prometheus.Registry

	refused          *prometheus.CounterVec
	inFlight         prometheus.Gauge
	calls            *prometheus.CounterVec
	callDuration     *prometheus.HistogramVec
	upstreamDuration *prometheus.HistogramVec
	costMissing      *prometheus.CounterVec
	handles          *prometheus.CounterVec
	budgets          *budgetMetrics // nil: calls are not metered

	checks        *prometheus.CounterVec
	checkFailures *prometheus.CounterVec
	checkDuration *prometheus.HistogramVec

	// mu guards which series there are; their values guard themselves.
	mu     sync.RWMutex
	scrape int // counts scrapes, so that one drops nothing younger than what it saw
	routes map[registry.RouteKey]*routeSeries
	failed map[failureKey]*failureSeries
}

// routeSeries are the series of one route's calls.
type routeSeries struct {
	born     int // the scrape before it
	duration prometheus.Observer
	services map[registry.ServiceKey]*serviceSeries
}

// serviceSeries are the series of one service's calls on one route; the service
// "" stands for unknown tools.
type serviceSeries struct {
	born        int
	upstream    prometheus.Observer
	costMissing prometheus.Counter
	budget      *budgetSeries // nil: calls are not metered
	outcomes    map[string]prometheus.Counter
}

type failureKey struct {
	service registry.ServiceKey // "" = the Portal
	kind    registry.FailureKind
}

type failureSeries struct {
	born  int
	count prometheus.Counter
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// NewMetrics makes Metrics with a registry of their own.
func NewMetrics(o MetricsOptions) *Metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: durationBuckets}, labels)
	}
	m := &Metrics{
		options:  o,
		gatherer: prometheus.NewRegistry(),
		refused:  counter("tollgate_requests_refused_total", "HTTP requests answered with an error before they became a call, by reason.", "reason"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tollgate_calls_in_flight", Help: "Tool calls in the gateway now."}),
		calls: counter("tollgate_calls_total", "Tool calls, by how they ended. The service is empty when the tool is not known.",
			"route", "service", "outcome"),
		callDuration: histogram("tollgate_call_duration_seconds", "Time of a whole tool call in the gateway.", "route"),
		upstreamDuration: histogram("tollgate_upstream_duration_seconds", "Time of a forwarded call's part in the Tool Service.",
			"route", "service"),
		costMissing: counter("tollgate_cost_header_missing_total", "Successful answers of Tool Services whose x-agent-cost is missing or malformed.",
			"route", "service"),
		handles: counter("tollgate_handles_total", "Operations on states behind handles, by how they ended.",
			"mode", "operation", "outcome"),
		checks: counter("tollgate_registry_checks_total", "Finished checks of origins, by result.", "origin", "result"),
		checkFailures: counter("tollgate_registry_check_failures_total", "Failed checks of origins, by kind. The service is empty for the Portal.",
			"origin", "service", "kind"),
		checkDuration: histogram("tollgate_registry_check_duration_seconds", "Time of a check of an origin.", "origin"),
		routes:        make(map[registry.RouteKey]*routeSeries),
		failed:        make(map[failureKey]*failureSeries),
	}
	if o.Budgets != nil {
		m.budgets = newBudgetMetrics()
	}
	for _, e := range server.HandleEvents() {
		m.handles.WithLabelValues(string(e.Mode), e.Operation, e.Outcome) // from the start: an alert sees the first failure, too
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tollgate_build_info", Help: "Always 1; the labels tell the build.",
		ConstLabels: prometheus.Labels{"version": o.Version, "commit": o.Commit, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.gatherer.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, collector{m},
	)
	return m
}

// Handler answers scrapes. What cannot be gathered fails the scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{})
}

// RequestRefused implements server.Observer.
func (m *Metrics) RequestRefused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// CallStarted implements server.Observer.
func (m *Metrics) CallStarted() { m.inFlight.Inc() }

// CallEnded implements server.Observer.
func (m *Metrics) CallEnded(e server.CallEvent) {
	m.inFlight.Dec()
	m.handled(e.HandleIn)
	m.handled(e.HandleOut)
	m.budgets.exhaust(e.Budget)
	if !m.count(e) {
		m.mu.Lock()
		m.addCall(e)
		m.mu.Unlock()
		m.count(e)
	}
}

// handled counts an operation on a state, if there was one.
func (m *Metrics) handled(e server.HandleEvent) {
	if e.Operation != "" {
		m.handles.WithLabelValues(string(e.Mode), e.Operation, e.Outcome).Inc()
	}
}

// count counts a call; false when it has no series yet. The lock is held while
// it counts, so that nothing is counted in series that were dropped.
func (m *Metrics) count(e server.CallEvent) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	route := m.routes[e.Route]
	if route == nil {
		return false
	}
	service := route.services[e.Service]
	if service == nil {
		return false
	}
	calls := service.outcomes[e.Outcome]
	if calls == nil {
		return false
	}
	calls.Inc()
	route.duration.Observe(e.Total.Seconds())
	if e.Forwarded {
		service.upstream.Observe(e.Upstream.Seconds())
	}
	if e.CostMissing {
		service.costMissing.Inc()
	}
	service.budget.count(e.Budget)
	return true
}

// addCall makes the series of a call that are not there. The lock is held.
func (m *Metrics) addCall(e server.CallEvent) {
	route := m.routes[e.Route]
	if route == nil {
		route = &routeSeries{
			born:     m.scrape,
			duration: m.callDuration.WithLabelValues(string(e.Route)),
			services: make(map[registry.ServiceKey]*serviceSeries),
		}
		m.routes[e.Route] = route
	}
	service := route.services[e.Service]
	if service == nil {
		service = &serviceSeries{born: m.scrape, outcomes: make(map[string]prometheus.Counter)}
		if e.Service != "" {
			service.upstream = m.upstreamDuration.WithLabelValues(string(e.Route), string(e.Service))
			service.costMissing = m.costMissing.WithLabelValues(string(e.Route), string(e.Service))
			service.budget = m.budgets.of(e.Route, e.Service)
		}
		route.services[e.Service] = service
	}
	if service.outcomes[e.Outcome] == nil {
		service.outcomes[e.Outcome] = m.calls.WithLabelValues(string(e.Route), string(e.Service), e.Outcome)
	}
}

// ForgetRoute drops the series of a route that was removed. A call that ends
// later brings some back, until the next scrape.
func (m *Metrics) ForgetRoute(key registry.RouteKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropRoute(key)
}

// dropRoute drops all series of a route. The lock is held.
func (m *Metrics) dropRoute(key registry.RouteKey) {
	route := m.routes[key]
	if route == nil {
		return
	}
	for service := range route.services {
		m.dropService(key, service)
	}
	m.callDuration.DeleteLabelValues(string(key))
	delete(m.routes, key)
}

// dropService drops the series of a service on a route. The lock is held.
func (m *Metrics) dropService(route registry.RouteKey, key registry.ServiceKey) {
	services := m.routes[route].services
	for outcome := range services[key].outcomes {
		m.calls.DeleteLabelValues(string(route), string(key), outcome)
	}
	m.upstreamDuration.DeleteLabelValues(string(route), string(key))
	m.costMissing.DeleteLabelValues(string(route), string(key))
	m.budgets.drop(route, key)
	delete(services, key)
}

// Checked counts a finished check of an origin; it is made for the registry's
// OnCheck.
func (m *Metrics) Checked(c registry.Check) {
	origin := originOf(c.Service)
	m.checks.WithLabelValues(origin, string(c.Result)).Inc()
	m.checkDuration.WithLabelValues(origin).Observe(c.Elapsed.Seconds())
	if c.Kind == "" {
		return
	}
	key := failureKey{c.Service, boundedKind(c.Kind)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed[key] == nil {
		m.failed[key] = &failureSeries{m.scrape, m.checkFailures.WithLabelValues(origin, string(key.service), string(key.kind))}
	}
	m.failed[key].count.Inc()
}

func originOf(service registry.ServiceKey) string {
	if service == "" {
		return "portal"
	}
	return "manifest"
}

// boundedKind folds the statuses HTTP has no name for: an origin could send any.
func boundedKind(kind registry.FailureKind) registry.FailureKind {
	status, ok := strings.CutPrefix(string(kind), "status_")
	if !ok {
		return kind
	}
	if code, err := strconv.Atoi(status); err != nil || http.StatusText(code) == "" {
		return "status_other"
	}
	return kind
}
