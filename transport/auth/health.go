package auth

import (
	"context"
	"fmt"
	"time"
)

// IssuerStatus is what the last question to the issuer came to. The zero value is
// that of an issuer nobody has asked yet: it is asked when a token needs it.
type IssuerStatus struct {
	Asked bool
	Up    bool      // it gave keys
	Since time.Time // since when it has been so
	Kind  string    // why it gave none, as the log has it; "" if it did
}

// IssuerStatus tells how the issuer is, and asks nobody. ok is false if there is none.
func (a *Authenticator) IssuerStatus() (status IssuerStatus, ok bool) {
	if a.tokens == nil {
		return IssuerStatus{}, false
	}
	state := a.tokens.keys.state.Load()
	status = IssuerStatus{Asked: !state.since.IsZero(), Up: !state.asked.IsZero() && state.failures == 0, Since: state.since}
	if state.fault != nil {
		status.Kind = state.fault.kind
	}
	return status, true
}

// IssuerError is why an issuer gives no keys to check access tokens with.
type IssuerError struct {
	Kind string // as the log has it, such as status or another_issuer
	Text string // a clause for the operator
}

// Error is the kind and the text.
func (e *IssuerError) Error() string { return e.Kind + ": " + e.Text }

// CheckIssuer asks the issuer now, for 5 s at most, and keeps nothing of
// the answer. The error is an *[IssuerError]; without an issuer there is none.
func (a *Authenticator) CheckIssuer(ctx context.Context) error {
	if a.tokens == nil {
		return nil
	}
	if _, fault := a.tokens.keys.source.try(ctx); fault != nil {
		return &IssuerError{Kind: fault.kind, Text: fault.text()}
	}
	return nil
}

// attrs are a fault's attributes in the log.
func (f *fault) attrs() []any {
	attrs := []any{"kind", f.kind}
	if f.status != 0 {
		attrs = append(attrs, "status", f.status)
	}
	if f.says != "" {
		attrs = append(attrs, "documentIssuer", f.says)
	}
	return attrs
}

// text is what a fault means, and where to look.
func (f *fault) text() string {
	switch f.kind {
	case wrongStatus:
		return fmt.Sprintf("answered with HTTP status %d: there is no discovery document, or no keys, below auth.oauth.issuer", f.status)
	case redirected:
		return fmt.Sprintf("answered with HTTP status %d: redirects are not followed", f.status)
	case anotherIssuer:
		if f.says != "" {
			return "the discovery document is that of " + f.says + ", and auth.oauth.issuer must say so to the letter, a slash at the end included"
		}
	}
	return faultTexts[f.kind]
}

var faultTexts = map[string]string{
	unreachable:   "no connection: name look-up, refused, broken, or TLS (upstream.caFile)",
	blocked:       "no connection may go to the host of the discovery document's jwks_uri: it is another than the issuer's and not in upstream.allowedHosts, or link-local",
	tooSlow:       fmt.Sprintf("discovery document and keys did not come within %s", issuerTimeout),
	tooLarge:      fmt.Sprintf("an answer is larger than %d bytes", maxDocument),
	notMetadata:   "what is there is no discovery document, or one whose jwks_uri cannot be used",
	anotherIssuer: "the discovery document is that of another issuer, whose name is no address that could stand in auth.oauth.issuer",
	notKeys:       "what is at the discovery document's jwks_uri is no set of keys",
	noUsableKey:   "the issuer publishes no key that could sign access tokens",
}
