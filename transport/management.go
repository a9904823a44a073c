package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"tollgate/jsonwire"
)

// ManagementOptions are what ListenManagement needs beyond its context.
type ManagementOptions struct {
	// Listen is the address, host:port.
	Listen string

	// AllowedHosts are further Host values admitted on a loopback connection;
	// those of HTTPConfig.
	AllowedHosts []string

	// Handler is what is served, behind the checks ListenManagement describes.
	Handler http.Handler

	// Logger receives what net/http has to say about connections. Nil discards.
	Logger *slog.Logger
}

// Management is the operator's listener. It shares neither connections nor
// places nor the drain with the public one: a probe is answered however much is
// going on there, and until the last call has left.
type Management struct {
	s     *server
	ended chan struct{} // closed when nothing is accepted any more
}

// ListenManagement opens the listener and serves o.Handler on it until Close.
// Headers, bodies and answers have the bounds of time and size of the public
// listener (see Serve).
//
// On a loopback connection only loopback Host names, the host of o.Listen and
// o.AllowedHosts are admitted, as by Guard. Whatever the connection, a request
// that changes something must not come from a web page: none belongs to this
// listener, so one with an Origin header, or with a Sec-Fetch-Site header other
// than "none", is refused; http.allowedOrigins is about MCP and counts for
// nothing here. A refusal is HTTP 403 with a JSON object whose error says why.
func ListenManagement(ctx context.Context, o ManagementOptions) (*Management, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, err // says "listen" and the address
	}
	return serveManagement(l, o), nil
}

func serveManagement(l net.Listener, o ManagementOptions) *Management {
	guarded := &managementGuard{newHostSet(o.Listen, o.AllowedHosts), o.Handler}
	m := &Management{newServer(ServeOptions{Handler: guarded, Logger: o.Logger}, l, nil), make(chan struct{})}
	go func() {
		defer close(m.ended)
		if err := m.s.accept(); !errors.Is(err, http.ErrServerClosed) {
			m.s.o.Logger.Error("management listener broke; health, status and metrics are gone", "error", err)
		}
	}()
	return m
}

// Addr returns the address of the listener, which tells the port if port 0 was
// asked for.
func (m *Management) Addr() net.Addr { return m.s.listener.Addr() }

// Close ends the listener and its connections. Answers under way get a moment
// and no more: nothing here is worth holding the exit for. Again, it does nothing.
func (m *Management) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastChance)
	defer cancel()
	if m.s.http.Shutdown(ctx) != nil {
		m.s.http.Close()
	}
	<-m.ended
}

// managementGuard admits requests to the management listener.
type managementGuard struct {
	hosts hostSet
	next  http.Handler
}

func (g *managementGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case isLoopbackConn(r) && !g.hosts.admit(r.Host):
		forbid(w, fmt.Sprintf("Host %q is not allowed on a loopback address: call localhost or 127.0.0.1, or add the name to http.allowedHosts", clip(hostName(r.Host))))
	case changes(r) && fromWebPage(r):
		forbid(w, "no web page may ask for that")
	default:
		g.next.ServeHTTP(w, r)
	}
}

// changes reports whether the request may do more than read.
func changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// fromWebPage reports whether a browser says that a page sends the request. That
// Origin equals Host, or Sec-Fetch-Site is same-origin, proves nothing: of a
// rebound name both are true.
func fromWebPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return len(r.Header["Origin"]) > 0 || site != "" && site != "none"
}

// forbid answers 403 in the form of the management listener's errors.
func forbid(w http.ResponseWriter, message string) {
	body := jsonwire.AppendString([]byte(`{"error":`), message)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write(append(body, "}\n"...)) // the caller may be gone; there is nobody else to tell
}
