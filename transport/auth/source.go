package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// maxDocument bounds each answer of an issuer, in bytes.
	maxDocument = 1 << 20

	// minRSA is the least size of an RSA key in bits (RFC 7518, section 3.3).
	minRSA = 2048
)

// source is where an issuer's keys come from.
type source struct {
	issuer    string
	transport http.RoundTripper
}

// fault is why an issuer gave no keys. It holds nothing the issuer has said, but the
// name it gives itself.
type fault struct {
	kind   string // one of a fixed set
	status int    // of HTTP, if that is the fault
	says   string // whose document it is, if that is the fault and the name is an address that [urlFault] accepts
}

// The kinds of faults, as the log has them.
const (
	unreachable   = "unreachable"
	blocked       = "blocked" // the transport refuses the address: it is not one this gateway may call
	tooSlow       = "timeout"
	wrongStatus   = "status"
	redirected    = "redirect"
	tooLarge      = "too_large"
	notMetadata   = "not_metadata"   // no discovery document, or none with usable addresses
	anotherIssuer = "another_issuer" // a discovery document, but of somebody else
	notKeys       = "not_keys"       // no set of keys
	noUsableKey   = "no_usable_key"
)

// try is fetch with the time an issuer has for it.
func (s source) try(ctx context.Context) ([]jose.JSONWebKey, *fault) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	return s.fetch(ctx)
}

// fetch asks for the discovery document and the keys it leads to.
func (s source) fetch(ctx context.Context) ([]jose.JSONWebKey, *fault) {
	w := &witness{next: s.transport}
	client := &http.Client{
		Transport: w,
		// Keys from an address nobody configured are not this issuer's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), s.issuer)
	if err != nil {
		if mismatch, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
			f := &fault{kind: anotherIssuer}
			if urlFault(mismatch.Discovered) == "" {
				f.says = mismatch.Discovered // it is there for everybody to read
			}
			return nil, f
		}
		return nil, w.fault(ctx, notMetadata)
	}
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if provider.Claims(&document) != nil || !s.trusts(document.Keys) {
		return nil, &fault{kind: notMetadata}
	}
	return s.keys(ctx, client, w, document.Keys)
}

// trusts reports whether the keys may come from that address: over TLS, unless the
// issuer itself is a process of this machine.
func (s source) trusts(address string) bool {
	if len(address) > maxURL {
		return false
	}
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(s.issuer, "http://") && urlFault(address) == ""
}

func (s source) keys(ctx context.Context, client *http.Client, w *witness, address string) ([]jose.JSONWebKey, *fault) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &fault{kind: notMetadata}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, w.fault(ctx, notKeys)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, w.fault(ctx, notKeys)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, w.fault(ctx, notKeys)
	}
	return parseKeys(data)
}

// parseKeys reads the usable keys of a set. What cannot be used is skipped, as RFC
// 7517 section 5 wants it: an issuer may have keys for other purposes, and of kinds
// to come.
func parseKeys(data []byte) ([]jose.JSONWebKey, *fault) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, &fault{kind: notKeys}
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && usable(key) && verifies(raw) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, &fault{kind: noUsableKey}
	}
	return keys, nil
}

// usable reports whether a key is a public one that signs. A secret one in a public
// place is no key any more.
func usable(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return key.Valid()
	}
	return false
}

// verifies reports whether a key may be used to verify signatures, by its key_ops if
// it has them (RFC 7517, section 4.3). The library does not read them.
func verifies(raw []byte) bool {
	var key struct {
		Operations *[]string `json:"key_ops"`
	}
	if json.Unmarshal(raw, &key) != nil {
		return false
	}
	return key.Operations == nil || slices.Contains(*key.Operations, "verify")
}

// goodFor reports whether a key signs by the algorithm.
func goodFor(key jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return algorithm == curveAlgorithm(public.Curve.Params().BitSize)
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}

// curveAlgorithm is the one algorithm of a curve; "" if it has none.
func curveAlgorithm(bits int) string {
	switch bits {
	case 256:
		return string(jose.ES256)
	case 384:
		return string(jose.ES384)
	case 521:
		return string(jose.ES512)
	}
	return ""
}

// witness bounds what an issuer may answer, and remembers what went wrong: the
// library puts it into texts that quote the answer.
type witness struct {
	next   http.RoundTripper
	failed error // why there was no answer
	status int   // of the last answer
	body   *boundedBody
}

// RoundTrip is that of an http.RoundTripper.
func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	w.failed = err
	if err != nil {
		return nil, err
	}
	w.status = response.StatusCode
	w.body = &boundedBody{ReadCloser: response.Body, left: maxDocument}
	response.Body = w.body
	return response, nil
}

// fault is what went wrong, or otherwise if it is the content of the last answer.
func (w *witness) fault(ctx context.Context, otherwise string) *fault {
	switch {
	case ctx.Err() != nil:
		return &fault{kind: tooSlow}
	case w.failed != nil:
		if _, ok := errors.AsType[*net.AddrError](w.failed); ok {
			return &fault{kind: blocked}
		}
		return &fault{kind: unreachable}
	case w.status >= 300 && w.status < 400:
		return &fault{kind: redirected, status: w.status}
	case w.body != nil && w.body.left < 0:
		return &fault{kind: tooLarge}
	case w.status != http.StatusOK:
		return &fault{kind: wrongStatus, status: w.status}
	case w.body != nil && w.body.broke:
		return &fault{kind: unreachable}
	}
	return &fault{kind: otherwise}
}

// boundedBody ends with an error when more comes than may.
type boundedBody struct {
	io.ReadCloser
	left  int // negative: more came
	broke bool
}

var errTooLarge = errors.New("the answer is too large")

// Read reads at most one byte more than is left.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	if b.left < 0 {
		return n, errTooLarge
	}
	b.broke = err != nil && err != io.EOF
	return n, err
}
