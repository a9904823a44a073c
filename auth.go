package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"tollgate/keyring"
	"tollgate/registry"
	"tollgate/server"
	"tollgate/transport"
	"tollgate/transport/auth"
)

// openAuth makes what finds out who calls, and keeps it up with the file of API keys.
func (p *parts) openAuth(log *slog.Logger) (err error) {
	c := p.config.Auth
	p.auth, err = auth.New(auth.Options{
		Config:    c,
		Name:      p.config.Identity,
		Transport: p.upstream.Transport(hostOf(c.OAuth.Issuer)...),
		Logger:    log,
		Routes:    p.declares,
	})
	if err != nil {
		return err
	}
	p.keys, err = keyring.Open(keyring.Options{
		Path:     c.KeysFile,
		Known:    func(tier string) bool { _, known := p.config.Cost.Limits(tier); return known },
		OnChange: p.auth.SetKeys,
		Reload:   p.purpose.reload,
		Logger:   log,
	})
	return err
}

// declares reports whether there is a route of that key.
func (p *parts) declares(route string) bool {
	_, err := p.registry.Current(registry.RouteKey(route))
	return !errors.Is(err, registry.ErrRouteNotFound)
}

// keysGauge tells how the file of API keys is doing; nil when there is none.
func (p *parts) keysGauge() func() (keys int, faulty bool) {
	if p.config.Auth.KeysFile == "" {
		return nil
	}
	return func() (int, bool) { return p.keys.Len(), p.keys.Faulty() }
}

// hostOf is the host of an address, which the operator named and which therefore
// needs no second mention among the allowed hosts; nil for none.
func hostOf(address string) []string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return []string{u.Hostname()}
}

// cacheScope is whether a cache may serve one caller's list to another.
func (p *parts) cacheScope() string {
	if p.config.Auth.Mode == auth.None {
		return server.CachePublic
	}
	return server.CachePrivate
}

// authenticator is the transport's in the words of the server.
type authenticator struct{ *auth.Authenticator }

func (a authenticator) Authenticate(r *http.Request, key registry.RouteKey) (server.Caller, error) {
	return admitted(a.Authenticator.Authenticate(r, string(key)))
}

// admitted is a caller, or why there is none, in the words of the server.
func admitted(caller auth.Caller, err error) (server.Caller, error) {
	if refusal, ok := errors.AsType[*auth.Refusal](err); ok {
		return server.Caller{}, &server.Refusal{
			Status: refusal.Status, Reason: string(refusal.Reason), Text: refusal.Text,
			WWWAuthenticate: refusal.WWWAuthenticate, RetryAfter: refusal.RetryAfter,
		}
	}
	return server.Caller(caller), err
}

// keyVariable has the API key of whoever uses the gateway without HTTP.
const keyVariable = "TOLLGATE_API_KEY"

// apiKey is the value of keyVariable. One that still has a ${…} is none: a client's
// configuration was not filled in.
func apiKey() string {
	key := os.Getenv(keyVariable)
	if strings.Contains(key, "${") {
		return ""
	}
	return key
}

// errKeyless is why nobody without HTTP gets past a configuration.
var errKeyless = errors.New("auth.mode is required, and auth.keysFile is not set: without HTTP a caller can only show an API key")

// peer is whoever uses the gateway through this process alone: over standard input
// and output, or from the command line.
func (p *parts) peer(route string, header http.Header) server.Peer {
	key := apiKey()
	return server.Peer{Header: header, Authenticate: func() (server.Caller, error) {
		return admitted(p.auth.AuthenticateKey(key, route))
	}}
}

// checkKey says why the peer may not use the route.
func (p *parts) checkKey(route string) error {
	key := apiKey()
	_, err := p.auth.AuthenticateKey(key, route)
	refusal, ok := errors.AsType[*auth.Refusal](err)
	switch {
	case !ok:
		return nil
	case refusal.Reason == auth.RouteNotFound:
		return fmt.Errorf("route %s does not exist, or the API key in %s may not use it", route, keyVariable)
	case p.config.Auth.KeysFile == "":
		return errKeyless
	case key == "":
		return fmt.Errorf("auth.mode is required: set %s to an API key of %s", keyVariable, p.config.Auth.KeysFile)
	default:
		return fmt.Errorf("%s holds no API key of %s", keyVariable, p.config.Auth.KeysFile)
	}
}

// publicHandler is what agents reach: MCP behind the checks of the transport, and in
// front of them what tells clients where to log in, which is the same for everybody.
func (p *parts) publicHandler(settings transport.Config) http.Handler {
	mcp := transport.Guard(settings, p.config.Upstream.PassHeaders, p.server)
	if p.config.Auth.OAuth.Issuer == "" {
		return mcp
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, auth.WellKnown+"/") {
			p.auth.ServeMetadata(w, r)
			return
		}
		mcp.ServeHTTP(w, r)
	})
}
