package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"tollgate/jsonwire"
)

// maxToken bounds an access token, in bytes.
const maxToken = 16 << 10

// leeway is by how much clocks may differ.
const leeway = time.Minute

// algorithms are the signatures a token may have: all that have a public key.
// none and HS256 are not among them, so that neither a token without signature nor
// one whose "secret" is the public key gets as far as a key. What discovery lists is
// about ID tokens; here each key says by its type, and by its alg if it has one,
// what it is good for.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// algorithmNames are the algorithms as the other library wants them.
var algorithmNames = func() (names []string) {
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}()

// tokens judges access tokens.
type tokens struct {
	config OAuthConfig
	public string // Config.PublicURL
	keys   *issuerKeys
}

// verify finds out who calls with an access token. The library decides on
// signature, issuer, audience and expiry; claims decides once more, by the exact
// names, and knows why not.
func (t *tokens) verify(ctx context.Context, token, route string) (Caller, *Refusal) {
	if !isCompactJWS(token) {
		return Caller{}, refuse(TokenMalformed)
	}
	audience := t.audience(route)
	now := time.Now()
	signature := &signature{keys: t.keys, fault: TokenMalformed}
	verifier := oidc.NewVerifier(t.config.Issuer, signature, &oidc.Config{
		ClientID:             audience,
		SupportedSigningAlgs: algorithmNames,
		Now:                  func() time.Time { return now.Add(-leeway) },
	})
	_, err := verifier.Verify(ctx, token)
	if signature.payload == nil {
		return Caller{}, refuse(signature.fault)
	}
	principal, fault := t.claims(signature.payload, audience, now)
	switch {
	case fault != "":
		return Caller{}, refuse(fault)
	case err != nil:
		return Caller{}, refuse(TokenMalformed)
	}
	return Caller{Principal: tokenPrincipal + principal}, nil
}

// audience is what a token for a route must have in aud.
func (t *tokens) audience(route string) string {
	if t.config.Audience != "" {
		return t.config.Audience
	}
	return t.public + "/mcp/" + route
}

// isCompactJWS reports whether token has the form of a signed JWT: three parts in
// the base64url alphabet. An encrypted one has five.
func isCompactJWS(token string) bool {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return false
	}
	for _, c := range []byte(token) {
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// signature verifies the signature of one token, and remembers what the library
// would only put into a text.
type signature struct {
	keys    *issuerKeys
	payload []byte // what is signed; nil: the signature has not been verified
	fault   Reason // why not
}

// VerifySignature is what the library calls.
func (s *signature) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	if !isAccessToken(token) {
		return nil, errNotAccess
	}
	header := signed.Signatures[0].Header
	candidates, asked, err := s.keys.find(ctx, header.KeyID, header.Algorithm)
	if errors.Is(err, errUnavailable) {
		s.fault = IssuerUnavailable
		return nil, err
	}
	s.fault = TokenSignature
	if s.payload = signedByOne(signed, candidates); s.payload == nil && err == nil {
		s.payload = signedByOne(signed, s.keys.renewed(ctx, header.KeyID, header.Algorithm, asked))
	}
	if s.payload == nil {
		return nil, errNoKey
	}
	return s.payload, nil
}

var errNotAccess = errors.New("a token of another type")

// isAccessToken reports whether a token's header has a type that access tokens have:
// at+jwt, or JWT or none, which is what most issuers write. An issuer signs other
// tokens with the same keys, and those that say so are refused (RFC 8725, section
// 3.11): a logout token has the issuer, an audience and the sid, too. A token with
// crit wants an extension understood, and none is here; the list cannot be empty
// (RFC 7515, section 4.1.11). The header is read once more, since the library takes a
// member that is null or empty for one that is not there.
func isAccessToken(token string) bool {
	encoded, _, _ := strings.Cut(token, ".")
	header, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || jsonwire.Check(header, jsonwire.ArgumentLimits) != nil {
		return false
	}
	if _, given := jsonwire.Get(header, "crit"); given {
		return false
	}
	value, given := jsonwire.Get(header, "typ")
	if !given {
		return true
	}
	name, _ := jsonwire.Text(value)
	name = strings.TrimPrefix(strings.ToLower(name), "application/")
	return name == "jwt" || name == "at+jwt"
}

// signedByOne returns what is signed, if it is by one of the keys.
func signedByOne(signed *jose.JSONWebSignature, keys []jose.JSONWebKey) []byte {
	for _, key := range keys {
		if payload, err := signed.Verify(key.Key); err == nil && len(payload) > 0 {
			return payload
		}
	}
	return nil
}

// claims reads who calls from a verified payload, or says why it is not good here.
func (t *tokens) claims(payload []byte, audience string, now time.Time) (principal string, fault Reason) {
	if jsonwire.Check(payload, jsonwire.ArgumentLimits) != nil || jsonwire.KindOf(payload) != jsonwire.KindObject {
		return "", TokenMalformed
	}
	if issuer, ok := textClaim(payload, "iss"); !ok || issuer != t.config.Issuer {
		return "", TokenIssuer
	}
	if !slices.Contains(audiences(payload), audience) {
		return "", TokenAudience
	}
	seconds := float64(now.UnixMilli()) / 1000
	if expiry, given, ok := timeClaim(payload, "exp"); !given || !ok || expiry+leeway.Seconds() < seconds {
		return "", TokenExpired
	}
	if start, given, ok := timeClaim(payload, "nbf"); given && (!ok || start-leeway.Seconds() > seconds) {
		return "", TokenNotYetValid
	}
	principal, ok := textClaim(payload, t.config.PrincipalClaim)
	if !ok || !visible(principal) || len(principal) > maxPrincipal {
		return "", TokenPrincipal
	}
	return principal, ""
}

// textClaim is the string a claim holds.
func textClaim(payload []byte, name string) (string, bool) {
	value, ok := jsonwire.Get(payload, name)
	if !ok {
		return "", false
	}
	return jsonwire.Text(value)
}

// audiences are the strings of the aud claim, which may be one or a list.
func audiences(payload []byte) []string {
	value, ok := jsonwire.Get(payload, "aud")
	if !ok {
		return nil
	}
	if one, ok := jsonwire.Text(value); ok {
		return []string{one}
	}
	elements, err := jsonwire.Elements(value)
	if err != nil {
		return nil
	}
	var list []string
	for _, element := range elements {
		if one, ok := jsonwire.Text(element); ok {
			list = append(list, one)
		}
	}
	return list
}

// timeClaim is a NumericDate (RFC 7519): seconds since 1970, with a fraction
// perhaps. ok is false if it is something else.
func timeClaim(payload []byte, name string) (seconds float64, given, ok bool) {
	value, given := jsonwire.Get(payload, name)
	if !given || jsonwire.KindOf(value) != jsonwire.KindNumber {
		return 0, given, false
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	return seconds, true, err == nil
}
