package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// An http2Farewell tells a server's HTTP/2 connections to go, and nothing else:
// http.Server.Shutdown, which does that, too, also closes idle HTTP/1 connections in the
// face of requests under way. For that, the connections belong to a second server, which
// has no listener: its Shutdown tells them.
type http2Farewell struct{ server http.Server }

// newHTTP2Farewell takes charge of the HTTP/2 connections of a server that does not
// serve yet.
func newHTTP2Farewell(s *http.Server) *http2Farewell {
	f := &http2Farewell{http.Server{ReadTimeout: s.ReadTimeout, IdleTimeout: s.IdleTimeout}}
	_ = f.server.Serve(noListener{}) // sets TLSNextProto before it accepts
	s.TLSNextProto = f.server.TLSNextProto
	return f
}

// say sends GOAWAY on the connections that are open now. Those say which requests are
// still taken, and end when they have no more. It may be called again, for others.
func (f *http2Farewell) say() {
	_ = f.server.Shutdown(context.Background()) // waits for nothing: it has neither listeners nor connections of its own
}

// noListener accepts nothing.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, errors.New("no listener") }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }
