package registry

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// maxCause bounds what a log line says of one error, in bytes.
const maxCause = 256

// Cause is in words why an HTTP exchange failed: one short line that quotes
// nothing of what the other side sent. net/http does quote it, header lines
// included, and a peer that echoes what it was sent would put a token there.
// Texts are kept only of errors known to tell of addresses, certificates and
// system calls.
func Cause(err error) string {
	return visible(cut(causeOf(err), maxCause))
}

func causeOf(err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the address, which may carry credentials
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Op == "proxyconnect" {
			return "no connection through the proxy"
		}
		return op.Error()
	}
	if own := harmless(err); own != nil {
		return own.Error()
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "time-out"
	}
	text := strings.TrimPrefix(err.Error(), "net/http: HTTP/1.x transport connection broken: ")
	for _, p := range protocolErrors {
		if strings.HasPrefix(text, p.begin) {
			return p.words
		}
	}
	return "the connection broke, or the answer is not valid HTTP"
}

// harmless finds in err an error whose text is our side's, or nil.
func harmless(err error) error {
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, gzip.ErrHeader, gzip.ErrChecksum} {
		if errors.Is(err, known) {
			return known
		}
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*net.AddrError](err); ok {
		return e
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return e
	}
	if e, ok := errors.AsType[tls.AlertError](err); ok {
		return e
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return e
	}
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return e
	}
	if e, ok := errors.AsType[flate.CorruptInputError](err); ok {
		return e
	}
	return nil
}

// protocolErrors are what net/http and crypto/tls report as plain texts, by how
// those begin.
var protocolErrors = []struct{ begin, words string }{
	{"malformed HTTP response", "the answer is not HTTP"},
	{"malformed HTTP status code", "malformed status line"},
	{"malformed HTTP version", "malformed status line"},
	{"malformed MIME header", "malformed header line"},
	{"net/http: invalid header", "malformed header line"},
	{"bad Content-Length", "malformed Content-Length"},
	{"http: invalid Content-Length", "malformed Content-Length"},
	{"http: message cannot contain multiple Content-Length", "several Content-Length headers that differ"},
	{"unsupported transfer encoding", "unsupported transfer encoding"},
	{"too many transfer encodings", "unsupported transfer encoding"},
	{"net/http: server response headers exceeded", "the header is too large"},
	{"http: server gave HTTP response to HTTPS client", "plain HTTP came where HTTPS was asked for"},
	{"http: server closed idle connection", "the connection was closed while idle"},
	{"net/http: TLS handshake timeout", "TLS handshake timeout"},
	{"malformed chunked encoding", "malformed chunked encoding"},
	{"invalid byte in chunk length", "malformed chunked encoding"},
	{"http chunk length too large", "malformed chunked encoding"},
	{"empty hex number for chunk length", "malformed chunked encoding"},
	{"header line too long", "the header is too large"},
	{"tls: ", "no TLS connection: the handshake failed"},
	{"remote error: tls: ", "no TLS connection: the other side refused the handshake"},
	{"x509: ", "no TLS connection: the certificate is not valid"},
	{"http2: ", "HTTP/2 protocol error"},
	{"stream error: ", "HTTP/2 protocol error"},
	{"connection error: ", "HTTP/2 protocol error"},
}
