package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 120 * time.Second

	// maxHeaderBytes leaves room for tokens, encrypted identity headers and
	// Mcp-Param-* copies of arguments; the standard library would read 1 MiB.
	maxHeaderBytes = 64 << 10

	// lastChance is how long an idle connection stays open after the listener
	// has closed, or after the end of a request from before. A request already on
	// its way over it is then answered, with "Connection: close", instead of
	// meeting a closed socket.
	lastChance = 500 * time.Millisecond

	// headerChance is how long the header of a request (and a TLS handshake before
	// it) may take that has begun by then.
	headerChance = time.Second
)

// ErrCut is what Serve returns, wrapped, when it left with calls still in
// flight: the drain time was over, or a second signal came.
var ErrCut = errors.New("connections were cut with calls in flight")

// ServeOptions are what Serve needs beyond its context.
type ServeOptions struct {
	Config  Config       // must be valid
	Handler http.Handler // what is served, Guard included

	// Signals ask the server to leave, usually filled by signal.Notify. The first
	// value starts the drain: os.Interrupt skips Config.Shutdown.Delay, any other
	// signal observes it. A second value ends everything at once. May be nil.
	Signals <-chan os.Signal

	// Opened is called once when the listener is open, before anything is accepted
	// on it, for what has to be there before the first request. Its error ends
	// Serve. May be nil.
	Opened func() error

	// Ready is called once when connections are accepted, with the listener's
	// address (which tells the port if port 0 was configured). May be nil.
	Ready func(net.Addr)

	// Draining is called once, at the first moment of the drain: from now on the
	// gateway does what it is asked, and wants to be asked no more. May be nil.
	Draining func()

	// CloseStreams is called once when the listener has closed. It should end
	// streams that stay open by design, and those that still begin, and return
	// without waiting for calls. May be nil.
	CloseStreams func()

	// Logger receives the steps of the drain and what net/http has to say about
	// connections. Nil discards.
	Logger *slog.Logger
}

// Serve opens the listener of o.Config, serves o.Handler on it and returns when
// the drain is over. Leaving begins with a signal, or with the end of ctx, which
// acts like an interrupt:
//
//  1. For Shutdown.Delay everything is served as before, but each answer says
//     "Connection: close", so that clients move to another replica by themselves.
//  2. The listener closes, and CloseStreams is called.
//  3. Calls get up to Shutdown.Drain. Idle connections get a moment for a request
//     already under way, and a request that has arrived in part a few seconds for
//     its rest. Then all are closed. HTTP/2 connections are told to go (GOAWAY, RFC
//     9113 section 6.8), and take no calls after that.
//
// A body has 30 s to arrive, from the end of the header on; then reading it ends
// with a time-out. An answer given before the body has been read ends the
// connection (over HTTP/1). A client has 30 s for each 64 KiB of an answer, event
// streams excepted: one that stops reading loses the connection.
//
// It returns nil when every call was answered, an error that wraps ErrCut when
// some were not, and another error when it could not open the listener or the
// listener broke. The end of ctx does not cancel calls in flight.
func Serve(ctx context.Context, o ServeOptions) error {
	s, err := listen(ctx, o)
	if err != nil {
		return err
	}
	if o.Opened != nil {
		if err := o.Opened(); err != nil {
			s.listener.Close()
			return err
		}
	}
	return s.run(ctx)
}

// server is one listener with its HTTP server.
type server struct {
	o        ServeOptions
	http     *http.Server
	http2    *http2Farewell
	listener net.Listener
	conns    *connSet
	bodies   bodySet
	stopped  chan error // what ended accepting
	draining atomic.Bool
	inFlight atomic.Int64 // requests in the handler
}

// listen opens the listener and reads the certificate, so that whatever is wrong
// with the configuration shows before anyone is told that the server is ready.
func listen(ctx context.Context, o ServeOptions) (*server, error) {
	var tlsConfig *tls.Config
	if files := o.Config.HTTP.TLS; files.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("http.tls: %w", err)
		}
		tlsConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Config.Listen)
	if err != nil {
		return nil, err // says "listen" and the address
	}
	return newServer(o, l, tlsConfig), nil
}

// newServer prepares to serve on l. A nil tlsConfig means plain HTTP.
func newServer(o ServeOptions, l net.Listener, tlsConfig *tls.Config) *server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &server{o: o, conns: newConnSet(), stopped: make(chan error, 1)}
	s.listener = &connListener{Listener: l, set: s.conns}
	s.http = &http.Server{
		Handler:           s.handle(o.Handler),
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readHeaderTimeout, // see bodySet.track
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.conns.stateChanged,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),

		// net/http would answer "OPTIONS *" before anyone looked at Host and Origin.
		DisableGeneralOptionsHandler: true,
	}
	s.http2 = newHTTP2Farewell(s.http)
	return s
}

// run serves until it has been asked to leave and has left.
func (s *server) run(ctx context.Context) error {
	defer s.http.Close()
	go func() { s.stopped <- s.accept() }()
	if s.o.Ready != nil {
		s.o.Ready(s.listener.Addr())
	}
	delay := s.o.Config.Shutdown.Delay
	select {
	case err := <-s.stopped:
		return fmt.Errorf("listener: %w", err)
	case <-ctx.Done():
		delay = 0
	case sig := <-s.o.Signals:
		if sig == os.Interrupt {
			delay = 0
		}
	}
	return s.leave(delay)
}

// accept serves until the listener closes. It returns the error that ended it.
func (s *server) accept() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// handle counts requests, limits the time that bodies and answers may take, and
// says when a connection ends with an answer.
func (s *server) handle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.inFlight.Add(1)
		defer s.inFlight.Add(-1)
		x := &served{w: responseWriter{ResponseWriter: w, s: s}}
		if r.ContentLength != 0 {
			s.bodies.track(&x.body, w, r)
			defer x.body.abandon()
			x.w.body = &x.body
			x.r = *r
			x.r.Body = &x.body
			r = &x.r
		}
		next.ServeHTTP(&x.w, r)
		x.w.finish()
	})
}

// served is what there is of a request beside net/http's own, in one piece of
// memory. A request without a body stays net/http's. One with a body is a copy:
// net/http recognises the types of its own bodies when it ends a request.
type served struct {
	w    responseWriter
	r    http.Request
	body body
}

// leave is the drain. Its first line is the moment from which the gateway is not
// ready for new work, while it still does all of it. It does not use
// http.Server.Shutdown while requests may still arrive: Shutdown closes idle
// connections in the face of requests under way and drops requests it has just
// read.
func (s *server) leave(delay time.Duration) error {
	s.draining.Store(true)
	if s.o.Draining != nil {
		s.o.Draining()
	}
	s.o.Logger.Info("draining", "delay", delay)
	select {
	case <-time.After(delay):
	case <-s.o.Signals:
		return s.cut("second signal")
	}

	s.listener.Close()
	<-s.stopped // now every connection there will ever be is in s.conns
	if s.o.CloseStreams != nil {
		s.o.CloseStreams()
	}
	drain := s.o.Config.Shutdown.Drain
	s.o.Logger.Info("listener closed, waiting for calls in flight", "calls", s.inFlight.Load(), "atMost", drain)
	over := time.After(drain)
	s.bodies.hurry()
	s.http2.say() // or they would take calls for as long as an HTTP/1 call lasts
	gone := s.conns.closeIdle()
	select {
	case <-gone:
	case <-over:
		return s.cut("drain time over")
	case <-s.o.Signals:
		return s.cut("second signal")
	}
	return s.leaveMultiplexed(over)
}

// leaveMultiplexed waits for the HTTP/2 connections.
func (s *server) leaveMultiplexed(over <-chan time.Time) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.http2.say() // to those whose handshake was not over before
	done := make(chan error, 1)
	go func() { done <- s.http.Shutdown(ctx) }()
	select {
	case <-done:
		s.o.Logger.Info("drained")
		return nil
	case <-over:
		return s.cut("drain time over")
	case <-s.o.Signals:
		return s.cut("second signal")
	}
}

// cut closes whatever is open and says why.
func (s *server) cut(why string) error {
	calls := s.inFlight.Load()
	s.http.Close()
	if calls == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", why, ErrCut)
}
