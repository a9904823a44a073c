package registry

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// FailureKind names why a fetch did not count, in one word for status views,
// metrics and logs. Answers with another status than 200 have the kind
// "status_" and the status, such as status_503.
type FailureKind string

const (
	FailedConnect   FailureKind = "connect"          // no connection: name look-up, refused, TLS, or not within connectTimeout
	FailedTimeout   FailureKind = "timeout"          // connected, but no whole answer within readTimeout
	FailedProtocol  FailureKind = "protocol"         // the connection broke, or what came over it is not HTTP
	FailedTooLarge  FailureKind = "too_large"        // more than maxBytes, decoded
	FailedEncoding  FailureKind = "encoding"         // a content coding other than gzip, or broken gzip
	InvalidManifest FailureKind = "invalid_manifest" // a manifest with breaches
	InvalidRegistry FailureKind = "invalid_registry" // a Portal answer that is refused as a whole
	FailedInternal  FailureKind = "internal"         // a bug in the gateway; the log has the stack

	HandleKeysMissing FailureKind = "handle_keys_missing" // a manifest with an enabled tool of signed state, and no keys to sign it with
	NoStateStore      FailureKind = "no_state_store"      // a manifest with an enabled tool of stored state, and no store to keep it in
)

// Failure says why a fetch did not count. It is immutable.
type Failure struct {
	Kind     FailureKind
	Detail   string    // for the operator's log: may name hosts, never holds URLs, headers or tokens
	Findings []Finding // what is wrong with the document, for InvalidManifest, InvalidRegistry, HandleKeysMissing and NoStateStore
}

// Error returns kind and detail in one line.
func (f *Failure) Error() string {
	if f.Detail == "" {
		return string(f.Kind)
	}
	return string(f.Kind) + ": " + f.Detail
}

// refused reports whether the origin answered with a status that does not count.
// An origin may stumble over the condition itself, so that its tag is dropped
// and the next fetch is unconditional.
func (f *Failure) refused() bool { return strings.HasPrefix(string(f.Kind), "status_") }

// unkept reports whether it is the gateway that lacks something: it cannot keep the
// state of tools.
func (k FailureKind) unkept() bool { return k == HandleKeysMissing || k == NoStateStore }

// level is that of the log line which tells of a failure. Where the gateway itself
// lacks what it needs, nobody else's patience or work will end it.
func (k FailureKind) level(otherwise slog.Level) slog.Level {
	if k.unkept() {
		return slog.LevelError
	}
	return otherwise
}

// invalid is the failure of a document with breaches.
func invalid(kind FailureKind, findings []Finding) *Failure {
	const shown = 3
	var detail []string
	breaches := 0
	for _, f := range findings {
		if f.Level != Breach {
			continue
		}
		if breaches++; breaches <= shown {
			detail = append(detail, strings.TrimSpace(f.Pointer+" "+f.Text))
		}
	}
	if breaches > shown {
		detail = append(detail, fmt.Sprintf("and %d more", breaches-shown))
	}
	return &Failure{Kind: kind, Detail: strings.Join(detail, "; "), Findings: findings}
}

// fetcher gets documents from origins.
type fetcher struct {
	transport http.RoundTripper
	connect   time.Duration // bound to have a connection
	read      time.Duration // bound from there to the last byte
}

// target is one document to get.
type target struct {
	url      string
	token    string // sent as a bearer token unless empty
	maxBytes int    // bound of the decoded document
	etag     string // of the document that is known; "" = the whole document is wanted
}

// document is what a fetch brought.
type document struct {
	data        []byte // decoded; nil when notModified
	etag        string // that belongs to data; "" = none
	notModified bool   // the origin says that the document known by target.etag is its newest
}

// statusNotModified is the failure of a 304 that confirms nothing: nobody asked
// for it, or it speaks of another tag than the one sent.
const statusNotModified FailureKind = "status_304"

var (
	errNoConnection = errors.New("no connection within connectTimeout")
	errNoAnswer     = errors.New("no whole answer within readTimeout")
)

// get fetches t once. It follows no redirect, believes nothing but a 200, or a
// 304 about the tag it sent, and decodes gzip although it asks for no coding.
// The request carries what get puts there and nothing of any caller. When ctx
// ends, the failure says nothing about the origin.
func (f *fetcher) get(ctx context.Context, t target) (document, *Failure) {
	ctx, bounds := f.bound(ctx)
	defer bounds.release()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return document{}, &Failure{Kind: FailedInternal, Detail: "the declared address is not a URL"}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "tollgate")
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	if t.etag != "" {
		req.Header.Set("If-None-Match", t.etag)
		// Some services send a body with a 304. On a connection that is used again,
		// it would be taken for the beginning of the next answer, a tool's perhaps.
		req.Close = true
	}
	// Not http.Client: the transport alone follows no redirect, keeps no cookie
	// and puts no URL into its errors.
	resp, err := f.transport.RoundTrip(req)
	if err != nil {
		return document{}, bounds.failure(ctx, err)
	}
	defer resp.Body.Close()
	bounds.connected() // an answer shows it, if the transport did not tell

	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		// It has no body. What comes instead of none is not read.
		if !confirms(resp.Header, t.etag) {
			return document{}, &Failure{Kind: statusNotModified, Detail: "not about an ETag that was sent"}
		}
		return document{notModified: true}, nil
	default:
		return document{}, &Failure{
			Kind:   FailureKind(fmt.Sprintf("status_%d", resp.StatusCode)),
			Detail: http.StatusText(resp.StatusCode),
		}
	}
	data, failure := readBody(resp, t.maxBytes)
	if failure != nil && ctx.Err() != nil { // whatever the readers made of it
		failure = bounds.failure(ctx, ctx.Err())
	}
	return document{data: data, etag: etagIn(resp.Header)}, failure
}

// readBody reads and decodes the whole body of resp, but never more than one
// byte beyond limit: the one byte that tells "too large" from "just fits".
func readBody(resp *http.Response, limit int) ([]byte, *Failure) {
	body, broken := io.Reader(resp.Body), FailedProtocol
	// A transport that decoded the body itself has removed the header.
	switch strings.ToLower(strings.TrimSpace(strings.Join(resp.Header.Values("Content-Encoding"), ","))) {
	case "", "identity":
	case "gzip", "x-gzip":
		unzipped, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, &Failure{Kind: FailedEncoding, Detail: "announced as gzip: " + Cause(err)}
		}
		body, broken = unzipped, FailedEncoding
	default:
		return nil, &Failure{Kind: FailedEncoding, Detail: "of the content codings only gzip is decoded"}
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	if len(data) > limit {
		return nil, &Failure{Kind: FailedTooLarge, Detail: fmt.Sprintf("more than %d bytes", limit)}
	}
	if err != nil {
		return nil, &Failure{Kind: broken, Detail: Cause(err)}
	}
	return data, nil
}

// fetchBounds are the two time bounds of one fetch.
type fetchBounds struct {
	cancel  context.CancelCauseFunc
	connect *time.Timer
	read    *time.Timer
	readFor time.Duration
	hasConn atomic.Bool
}

// bound returns a context that ends when the fetch takes too long to connect,
// or to be answered after that.
func (f *fetcher) bound(ctx context.Context) (context.Context, *fetchBounds) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &fetchBounds{cancel: cancel, readFor: f.read}
	b.connect = time.AfterFunc(f.connect, func() { cancel(errNoConnection) })
	b.read = time.AfterFunc(f.connect+f.read, func() { cancel(errNoAnswer) })
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { b.connected() },
	}), b
}

// connected ends the first bound and starts the second; only the first call
// counts, so that a transport that tries a second connection gains no time.
func (b *fetchBounds) connected() {
	b.hasConn.Store(true)
	if b.connect.Stop() {
		b.read.Reset(b.readFor)
	}
}

func (b *fetchBounds) release() {
	b.connect.Stop()
	b.read.Stop()
	b.cancel(nil)
}

// failure says what err means for a fetch within b.
func (b *fetchBounds) failure(ctx context.Context, err error) *Failure {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errNoConnection):
		return &Failure{Kind: FailedConnect, Detail: cause.Error()}
	case errors.Is(cause, errNoAnswer):
		return &Failure{Kind: FailedTimeout, Detail: cause.Error()}
	}
	kind := FailedConnect
	if b.hasConn.Load() {
		kind = FailedProtocol
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			kind = FailedTimeout
		}
	}
	return &Failure{Kind: kind, Detail: Cause(err)}
}
