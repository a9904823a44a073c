// Package management is the operator's side of the gateway, on a listener of its
// own: health, the registry's view, metrics and log level.
package management
