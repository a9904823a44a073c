package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"tollgate/cost"
	"tollgate/registry"
)

// Caller is who calls, and who pays for it.
type Caller struct {
	// Principal is whose budget a call is charged to, and whose handles it may use:
	// "key:…", "oauth:…", "proxy:…" or anonymous.
	Principal string

	User string // whom the principal acts for; "" when not known
	Tier string // the name of its budget; "" and one that does not exist are basic
}

// anonymous is a caller nobody knows.
func anonymous() Caller { return Caller{Principal: cost.Anonymous} }

// hash is what the log calls the caller: 12 hexadecimal digits of the principal's
// SHA-256. It tells callers apart, and who knows one finds its lines.
func (c Caller) hash() string {
	sum := sha256.Sum256([]byte(c.Principal))
	return hex.EncodeToString(sum[:6])
}

// Authenticator finds out who calls. Implementations are safe for concurrent use.
type Authenticator interface {
	// Authenticate finds out who sends a request to a route, which need not exist.
	// The error is a *[Refusal].
	Authenticate(*http.Request, registry.RouteKey) (Caller, error)
}

// Refusal is how a caller is answered who is not admitted.
type Refusal struct {
	// Status is the HTTP status: 401 for a caller who is not known; 400 for a
	// request that contradicts itself; 503 when it cannot be found out now; 404 for a
	// caller who must not know that the route exists, and is answered exactly as if
	// it did not.
	Status int

	Reason string // a word of a closed set, for data.reason and metrics
	Text   string // a sentence for the caller; nothing the caller has sent

	WWWAuthenticate string        // the header's value; "" is none
	RetryAfter      time.Duration // 0 is none
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

// failure is its row of the wire table.
func (r *Refusal) failure() *failure {
	f := &failure{kind: unauthenticated, word: r.Reason, text: r.Text, retry: r.RetryAfter}
	switch r.Status {
	case http.StatusNotFound:
		return noRoute(nil)
	case http.StatusServiceUnavailable:
		f.kind = authUnavailable
	case http.StatusBadRequest:
		f.kind = ambiguousCaller
	}
	if r.WWWAuthenticate != "" {
		f.header = http.Header{"Www-Authenticate": {r.WWWAuthenticate}}
	}
	return f
}

// authenticate finds out who sends a request over HTTP. A caller who must not know
// that the route exists is hidden: the request is read and checked like any other,
// until it is answered as those to routes that do not exist are.
func (s *Server) authenticate(r *http.Request, key registry.RouteKey) (caller Caller, hidden bool, err error) {
	if s.auth == nil {
		return anonymous(), false, nil
	}
	caller, err = s.auth.Authenticate(r, key)
	if err == nil {
		return caller, false, nil
	}
	if f := asFailure(err); f.kind != routeNotFound {
		return Caller{}, false, f
	}
	return Caller{}, true, nil
}

// admitted asks anew whether the sender of a request is admitted.
func (s *Server) admitted(r *http.Request, key registry.RouteKey) error {
	if s.auth == nil {
		return nil
	}
	_, err := s.auth.Authenticate(r, key)
	return err
}

// stillAdmitted reports whether a caller who was admitted may stay, by the answer to
// asking anew. Only one that says that he may not ends what he has: that it cannot be
// found out now does not.
func stillAdmitted(err error) bool {
	if err == nil {
		return true
	}
	switch asFailure(err).kind {
	case unauthenticated, ambiguousCaller, routeNotFound:
		return false
	}
	return true
}

// Peer is the client at the other end of frames.
type Peer struct {
	// Header is the caller's header for every call of the session.
	Header http.Header

	// Authenticate finds out who the caller is; it is asked with every request, so
	// that a key that is withdrawn ends the session's rights. The error is as that
	// of an [Authenticator]. Nil: the caller is anonymous.
	Authenticate func() (Caller, error)
}

func (p Peer) caller() (Caller, error) {
	if p.Authenticate == nil {
		return anonymous(), nil
	}
	return p.Authenticate()
}
