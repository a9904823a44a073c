// Package telemetry tells the operator's monitoring what the gateway does.
//
//   - [Metrics] counts and measures for Prometheus. It hears of calls as a
//     server.Observer and of checks from the registry, and asks for everything
//     that is a state when it is scraped.
//   - [Tracing] sends spans to an OpenTelemetry collector, off unless [Config]
//     names one. Who starts spans knows the OpenTelemetry API only.
//
// Neither ever holds up a call. No label, attribute or log line has arguments,
// results, header values or addresses with credentials in it.
package telemetry
