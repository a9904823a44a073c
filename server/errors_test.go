package server

import (
	"testing"
	"time"

	"tollgate/registry"
)

// A caller of a route without a list hears what kind of trouble it is, and when, if
// ever, to come back.
func TestUnavailableTexts(t *testing.T) {
	for reason, want := range map[registry.UnavailableReason]string{
		registry.NeverLoaded:        "registry unavailable: no tool list was ever loaded for this route; try again in 5 s",
		registry.RefusedMerge:       "registry unavailable: the manifests of this route's services cannot be merged into one tool list; the gateway's log says why; try again in 5 s",
		registry.InvalidDeclaration: "registry unavailable: the declaration of this route is invalid; the gateway's log says why; try again in 5 s",
		registry.UnkeptStates:       "registry unavailable: tools of this route keep state, which this gateway is not set up for; only its operator can change that",
	} {
		f := asFailure(&registry.UnavailableError{Reason: reason, RetryAfter: 4500 * time.Millisecond})
		if f.text != want || f.reason() != "registry_unavailable" {
			t.Errorf("%q is told as %q", reason, f.text)
		}
	}
}
