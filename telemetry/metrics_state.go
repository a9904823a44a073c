package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tollgate/registry"
)

// What is a state is not kept here but asked for at each scrape.
var (
	readyDesc            = desc("tollgate_ready", "1 when the process should get requests.")
	upstreamInFlightDesc = desc("tollgate_upstream_in_flight", "Calls a Tool Service has in flight; absent when it has none.", "service")
	portalStatusDesc     = desc("tollgate_portal_status", "1 for how the Portal is doing; absent with static routes.", "status")
	bundleStatusDesc     = desc("tollgate_bundle_status", "1 for how a route's service is doing.", "route", "service", "status")
	routeToolsDesc       = desc("tollgate_route_tools", "Tools in a route's list.", "route")
	routeSnapshotDesc    = desc("tollgate_route_snapshot", "1 when a route has a list to serve.", "route")
	routeRefusedDesc     = desc("tollgate_route_refused", "1 when a route's newest manifests or declaration are not in use.", "route")
	routeAgeDesc         = desc("tollgate_route_snapshot_age_seconds",
		"Time since the service of a route that was fetched longest ago was fetched; absent while one never was.", "route")
	redisUpDesc       = desc("tollgate_redis_up", "1 when Redis accepts what the gateway writes; absent when none is configured.")
	redisFailuresDesc = desc("tollgate_redis_failures", "Failures of Redis since its last success.")
	issuerUpDesc      = desc("tollgate_issuer_up", "1 when the OAuth issuer gave keys when it was last asked; absent while nobody has asked, and without one.")
	apiKeysDesc       = desc("tollgate_api_keys", "API keys in use; absent without a file of them.")
	keysFileOKDesc    = desc("tollgate_api_keys_file_ok", "0 while the file of API keys is gone or has a mistake, so that nothing is added or revoked; absent without one.")
	spansDroppedDesc  = desc("tollgate_spans_dropped_total", "Spans that were dropped instead of reaching the collector; absent without one.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector gathers everything of Metrics in the order that lets a scrape first
// drop what is not declared any more.
type collector struct{ m *Metrics }

func (c collector) counted() []prometheus.Collector {
	m := c.m
	return append([]prometheus.Collector{
		m.refused, m.inFlight, m.calls, m.callDuration, m.upstreamDuration, m.costMissing, m.handles,
		m.checks, m.checkFailures, m.checkDuration,
	}, m.budgets.all()...)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, counted := range c.counted() {
		counted.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{
		readyDesc, upstreamInFlightDesc, portalStatusDesc, bundleStatusDesc, routeToolsDesc, routeSnapshotDesc,
		routeRefusedDesc, routeAgeDesc, redisUpDesc, redisFailuresDesc, apiKeysDesc, keysFileOKDesc, issuerUpDesc, spansDroppedDesc,
		budgetStoreUpDesc, budgetLocalDesc, budgetWaitingDesc, budgetDroppedDesc, budgetRetriesDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	o := c.m.options
	var status registry.Status
	if o.Status != nil {
		scrape := c.m.nextScrape()
		status = o.Status()
		c.m.dropUndeclared(status, scrape)
	}
	for _, counted := range c.counted() {
		counted.Collect(ch)
	}
	states{ch}.status(status, time.Now())
	states{ch}.process(o, status)
}

func (m *Metrics) nextScrape() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scrape++
	return m.scrape
}

// dropUndeclared drops the series of routes and services that status does not
// know. Series made since the scrape began may be of something newer.
func (m *Metrics) dropUndeclared(status registry.Status, scrape int) {
	type use struct {
		route   registry.RouteKey
		service registry.ServiceKey
	}
	// The route "" stands for calls that found no route, the service "" for
	// unknown tools and the Portal.
	routes := map[registry.RouteKey]bool{"": true}
	services := map[registry.ServiceKey]bool{"": true}
	uses := make(map[use]bool)
	for _, route := range status.Routes {
		routes[route.Key] = true
		for _, bundle := range route.Bundles {
			services[bundle.ID] = true
			uses[use{route.Key, bundle.ID}] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, route := range m.routes {
		if !routes[key] && route.born < scrape {
			m.dropRoute(key)
			continue
		}
		for service, series := range route.services {
			if service != "" && !uses[use{key, service}] && series.born < scrape {
				m.dropService(key, service)
			}
		}
	}
	for key, series := range m.failed {
		if !services[key.service] && series.born < scrape {
			delete(m.failed, key)
			m.checkFailures.DeleteLabelValues(originOf(key.service), string(key.service), string(key.kind))
		}
	}
}

// states sends metrics that are a state.
type states struct{ ch chan<- prometheus.Metric }

func (s states) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (s states) counter(d *prometheus.Desc, value uint64) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
}

func (s states) flag(d *prometheus.Desc, on bool, labels ...string) {
	value := 0.0
	if on {
		value = 1
	}
	s.gauge(d, value, labels...)
}

// process sends what is asked of others than the registry.
func (s states) process(o MetricsOptions, status registry.Status) {
	if o.Ready != nil {
		s.flag(readyDesc, o.Ready(status))
	}
	if o.InFlight != nil {
		for service, calls := range o.InFlight() {
			s.gauge(upstreamInFlightDesc, float64(calls), string(service))
		}
	}
	if o.Redis != nil {
		up, failures := o.Redis()
		s.flag(redisUpDesc, up)
		s.gauge(redisFailuresDesc, float64(failures))
	}
	if o.Keys != nil {
		keys, faulty := o.Keys()
		s.gauge(apiKeysDesc, float64(keys))
		s.flag(keysFileOKDesc, !faulty)
	}
	if o.Budgets != nil {
		s.budgets(o.Budgets())
	}
	if o.Issuer != nil {
		if up, asked := o.Issuer(); asked {
			s.flag(issuerUpDesc, up)
		}
	}
	if o.Dropped != nil {
		if spans, traced := o.Dropped(); traced {
			s.counter(spansDroppedDesc, spans)
		}
	}
}

// status sends how routes and origins are doing.
func (s states) status(status registry.Status, now time.Time) {
	if status.Portal != nil {
		s.gauge(portalStatusDesc, 1, string(status.Portal.Condition))
	}
	for _, route := range status.Routes {
		key := string(route.Key)
		s.gauge(routeToolsDesc, float64(route.Tools), key)
		s.flag(routeSnapshotDesc, route.ContentHash != "", key)
		s.flag(routeRefusedDesc, route.RefusedReason != nil, key)
		if at, ok := oldestFetch(route); ok {
			s.gauge(routeAgeDesc, max(0, now.Sub(at).Seconds()), key)
		}
		for _, bundle := range route.Bundles {
			s.gauge(bundleStatusDesc, 1, key, string(bundle.ID), string(bundle.Condition))
		}
	}
}

// oldestFetch is when the enabled service of a route that was fetched longest
// ago was fetched. ok is false when one never was, or none is enabled.
func oldestFetch(route registry.RouteStatus) (oldest time.Time, ok bool) {
	for _, bundle := range route.Bundles {
		switch at := bundle.LastSuccessAt; {
		case bundle.Condition == registry.Disabled:
		case at == nil:
			return time.Time{}, false
		case !ok || at.Before(oldest):
			oldest, ok = *at, true
		}
	}
	return oldest, ok
}
