package registry

import (
	"errors"
	"time"
)

// TEMPORARY: dropped when the registry engine is merged.

var ErrRouteNotFound = errors.New("route not found")

type UnavailableError struct{ RetryAfter time.Duration }

func (e *UnavailableError) Error() string { return "registry unavailable" }

