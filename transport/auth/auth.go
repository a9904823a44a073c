package auth

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// Caller is who calls.
type Caller struct {
	// Principal is key:<id>, oauth:<principal claim>, proxy:<value> or anonymous. The
	// part before the colon keeps them apart: no caller can choose it. At most 262
	// visible ASCII characters.
	Principal string

	// User is whose API key it is, as the keys file says; "" when nobody says.
	User string

	// Tier names the budget, as the keys file has it; it may be one that does not
	// exist. "" is none in particular.
	Tier string
}

// The principals: each kind has a beginning of its own.
const (
	anonymous      = "anonymous" // a caller of whom nothing is known
	keyPrincipal   = "key:"
	tokenPrincipal = "oauth:"
	proxyPrincipal = "proxy:"
)

// KeyID returns the id of the API key a principal stands for; ok is false for the
// principals of other callers.
func KeyID(principal string) (id string, ok bool) { return strings.CutPrefix(principal, keyPrincipal) }

// Options are what an [Authenticator] needs.
type Options struct {
	// Config must be valid.
	Config Config

	// Name is what the gateway is called for people who are asked to let a client
	// use it (resource_name). "" is Tollgate.
	Name string

	// Transport carries requests to the issuer; nil is http.DefaultTransport. It
	// must not follow redirects, which a http.RoundTripper does not.
	Transport http.RoundTripper

	// Logger hears of an issuer that does not answer; nil is silence.
	Logger *slog.Logger

	// Routes reports whether a routeKey is one the log may name: callers write into
	// the path whatever they like, a key by mistake for one. Nil: it names none.
	Routes func(route string) bool
}

// Authenticator finds out who calls. Its methods may be called concurrently. It has
// no goroutines and needs no closing.
type Authenticator struct {
	config   Config
	wanted   string // what those without a credential are told
	log      *slog.Logger
	routes   func(string) bool
	header   string // TrustedPrincipalHeader, canonical
	keys     atomic.Pointer[keyTable]
	tokens   *tokens // nil: no OAuth
	metadata *metadata
}

// New makes an Authenticator without API keys, until [Authenticator.SetKeys]. It asks
// nobody: the issuer may be away. The error is that of [Config.Validate].
func New(o Options) (*Authenticator, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	if o.Name == "" {
		o.Name = "Tollgate"
	}
	if o.Routes == nil {
		o.Routes = func(string) bool { return false }
	}
	a := &Authenticator{
		config: o.Config, wanted: wanted(o.Config), log: o.Logger, routes: o.Routes,
		header: http.CanonicalHeaderKey(o.Config.TrustedPrincipalHeader),
	}
	a.SetKeys(nil)
	if o.Config.OAuth.Issuer != "" {
		public, err := url.Parse(o.Config.PublicURL)
		if err != nil {
			return nil, err // cannot be: Validate has parsed it
		}
		a.metadata = &metadata{public: public, issuer: o.Config.OAuth.Issuer, name: o.Name}
		a.tokens = &tokens{
			config: o.Config.OAuth,
			public: o.Config.PublicURL,
			keys:   newIssuerKeys(o.Config.OAuth.Issuer, o.Transport, o.Logger),
		}
	}
	return a, nil
}

// SetKeys replaces all API keys, from the next request on. Keys that [CheckKeys]
// refuses may be left out.
func (a *Authenticator) SetKeys(keys []Key) {
	table := newKeyTable(keys)
	a.keys.Store(&table)
}

// Authenticate finds out who sends a request to a route. The error is a *[Refusal].
// route is the routeKey as decoded from the path; whether it exists is of no
// matter. It may take as long as the issuer takes to answer, at most 5 s,
// and ends with the request.
func (a *Authenticator) Authenticate(r *http.Request, route string) (Caller, error) {
	caller, refusal := a.identify(r, route)
	if refusal != nil {
		a.tell(r.Context(), refusal, route)
		return Caller{}, refusal
	}
	return caller, nil
}

func (a *Authenticator) identify(r *http.Request, route string) (Caller, *Refusal) {
	if a.config.Mode == None {
		return a.proxied(r.Header)
	}
	c, refusal := readCredential(r.Header)
	if refusal != nil {
		if refusal.Reason == Unauthenticated {
			refusal.Text = a.wanted
		}
		return Caller{}, a.challenge(refusal, route, false)
	}
	var caller Caller
	if byKey := strings.HasPrefix(c.value, keyPrefix) || !c.bearer || a.tokens == nil; byKey {
		caller, refusal = a.byKey(c.value, route)
	} else {
		caller, refusal = a.tokens.verify(r.Context(), c.value, route)
	}
	if refusal != nil {
		return Caller{}, a.challenge(refusal, route, c.bearer)
	}
	return caller, nil
}

// tell has the log say of one caller what the metrics only count, for who looks for
// the cause. It names what the gateway wants, and nothing the caller has sent.
func (a *Authenticator) tell(ctx context.Context, refusal *Refusal, route string) {
	if !a.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []any{"reason", string(refusal.Reason)}
	if a.routes(route) {
		attrs = append(attrs, "route", route)
		if a.tokens != nil {
			attrs = append(attrs, "audience", a.tokens.audience(route))
		}
	}
	a.log.Debug("caller not let in", attrs...)
}

// AuthenticateKey finds out who has an API key that did not come over HTTP. With
// mode none everybody is anonymous. The error is a *[Refusal].
func (a *Authenticator) AuthenticateKey(key, route string) (Caller, error) {
	if a.config.Mode == None {
		return Caller{Principal: anonymous}, nil
	}
	if key == "" {
		refusal := refuse(Unauthenticated)
		refusal.Text = a.wanted
		return Caller{}, refusal
	}
	caller, refusal := a.byKey(key, route)
	if refusal != nil {
		return Caller{}, refusal
	}
	return caller, nil
}

func (a *Authenticator) byKey(key, route string) (Caller, *Refusal) {
	entry := (*a.keys.Load()).find(key)
	switch {
	case entry == nil:
		return Caller{}, refuse(KeyNotValid)
	case !entry.allows(route):
		return Caller{}, refuse(RouteNotFound)
	}
	return entry.caller, nil
}

// maxPrincipal bounds what others say of who calls, in bytes.
const maxPrincipal = 256

// proxied is who the proxy says calls. Without the header it is nobody in
// particular. A header that is there and cannot be used is refused: were it
// anonymous, whoever gets a second line past the proxy would have no budget.
func (a *Authenticator) proxied(h http.Header) (Caller, *Refusal) {
	if a.header == "" {
		return Caller{Principal: anonymous}, nil
	}
	switch values := h[a.header]; {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return Caller{Principal: anonymous}, nil
	case len(values) > 1 || !visible(values[0]) || len(values[0]) > maxPrincipal || strings.Contains(values[0], ","):
		return Caller{}, refuse(PrincipalNotValid)
	default:
		return Caller{Principal: proxyPrincipal + values[0]}, nil
	}
}
