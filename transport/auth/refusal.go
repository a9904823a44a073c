package auth

import (
	"net/http"
	"time"
)

// Reason is a word for why somebody is refused. The set is fixed.
type Reason string

// The reasons. Those that begin with token are about access tokens whose issuer
// has signed them, except TokenMalformed and TokenSignature.
const (
	Unauthenticated      Reason = "unauthenticated"       // no credential that could be one
	CredentialsAmbiguous Reason = "credentials_ambiguous" // more than one
	KeyNotValid          Reason = "key_not_valid"         // no such API key
	RouteNotFound        Reason = "route_not_found"       // the API key may not use the route
	TokenMalformed       Reason = "token_malformed"       // not a signed JWT with the usual claims
	TokenSignature       Reason = "token_signature"       // signed with no key of the issuer
	TokenIssuer          Reason = "token_issuer"
	TokenAudience        Reason = "token_audience"
	TokenExpired         Reason = "token_expired"
	TokenNotYetValid     Reason = "token_not_yet_valid"
	TokenPrincipal       Reason = "token_principal"     // does not say who calls
	IssuerUnavailable    Reason = "issuer_unavailable"  // the token cannot be judged now
	PrincipalNotValid    Reason = "principal_not_valid" // the proxy's header cannot be used
)

// Refusal is how to answer a caller who is not admitted. It holds nothing the
// caller has sent, except the routeKey in WWWAuthenticate.
type Refusal struct {
	// Status is the HTTP status:
	//
	//   - 401: who calls is not known. WWWAuthenticate is set.
	//   - 404: answer exactly as for a route that does not exist, at the same point of
	//     the request: that the route exists is not the caller's to know.
	//   - 400: the request contradicts itself. Another credential would not help.
	//   - 503: a token cannot be judged while its issuer gives no keys. A client
	//     that was told 401 would throw it away and ask the same issuer for another.
	Status int

	Reason Reason
	Text   string // a sentence for the caller

	WWWAuthenticate string        // the header's value; "" is none
	RetryAfter      time.Duration // whole seconds; 0 is none
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

// refusals are what each reason means on the wire.
var refusals = map[Reason]struct {
	status int
	text   string
}{
	Unauthenticated:      {401, "Authentication is required."}, // Authenticator.wanted says what with
	CredentialsAmbiguous: {400, "The request has more than one credential: send either Authorization or x-api-key, and once."},
	KeyNotValid:          {401, "The API key is not valid."},
	RouteNotFound:        {404, "There is no such route."},
	TokenMalformed:       {401, "The credential is neither an API key nor an access token that can be read."},
	TokenSignature:       {401, "The access token is not signed with a key of its issuer."},
	TokenIssuer:          {401, "The access token was issued by another issuer."},
	TokenAudience:        {401, "The access token was issued for another resource."},
	TokenExpired:         {401, "The access token has expired."},
	TokenNotYetValid:     {401, "The access token is not valid yet."},
	TokenPrincipal:       {401, "The access token does not say who calls: the claim this gateway needs is missing or cannot be used."},
	IssuerUnavailable:    {503, "The access token cannot be checked now: this gateway cannot get the keys of its issuer. Keep the token and try again."},
	PrincipalNotValid:    {400, "The header with the caller's identity is repeated or cannot be used."},
}

// wanted is the sentence for callers who show no credential: it names what this
// gateway takes, for a caller would look in vain for an issuer that is not there.
func wanted(c Config) string {
	switch {
	case c.OAuth.Issuer == "":
		return "Authentication is required: send an API key as Authorization: Bearer or as x-api-key."
	case c.KeysFile == "":
		return "Authentication is required: send an access token as Authorization: Bearer."
	}
	return "Authentication is required: send an API key or an access token as Authorization: Bearer, or an API key as x-api-key."
}

// refuse is the refusal for a reason, without a challenge.
func refuse(reason Reason) *Refusal {
	r := &Refusal{Status: refusals[reason].status, Reason: reason, Text: refusals[reason].text}
	if r.Status == http.StatusServiceUnavailable {
		r.RetryAfter = retryAfter
	}
	return r
}

// retryAfter is what callers are told to wait for an issuer. It is less than the
// pauses of an outage become, so that they come back soon after its end.
const retryAfter = 5 * time.Second

// challenge adds what tells a client where to get a token (RFC 9728 section 5.1).
// An error code stands there only if a token was presented (RFC 6750 section 3.1);
// x-api-key is no token in that sense. No scope is asked for: there is none.
func (a *Authenticator) challenge(r *Refusal, route string, presented bool) *Refusal {
	code := ""
	switch {
	case r.Status == http.StatusUnauthorized && presented:
		code = "invalid_token"
	case r.Reason == CredentialsAmbiguous:
		code = "invalid_request"
	case r.Status != http.StatusUnauthorized:
		return r
	}
	value := "Bearer"
	separator := " "
	if a.metadata != nil && validRoute(route) {
		value += separator + `resource_metadata="` + a.metadata.url(route) + `"`
		separator = ", "
	}
	if code != "" {
		value += separator + `error="` + code + `"`
	}
	r.WWWAuthenticate = value
	return r
}
