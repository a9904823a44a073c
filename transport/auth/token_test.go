package auth_test

import (
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tollgate/transport/auth"
)

func TestAccessTokensOfEveryAlgorithm(t *testing.T) {
	private := rsaKey(t, 2048)
	keys := []signer{
		{"ed", jose.EdDSA, edKey(t)},
		{"e2", jose.ES256, ecKey(t, elliptic.P256())}, {"e3", jose.ES384, ecKey(t, elliptic.P384())}, {"e5", jose.ES512, ecKey(t, elliptic.P521())},
		{"r2", jose.RS256, private}, {"r3", jose.RS384, private}, {"r5", jose.RS512, private},
		{"p2", jose.PS256, private}, {"p3", jose.PS384, private}, {"p5", jose.PS512, private},
	}
	i := startIssuer(t, keys...)
	g := newGate(t, i, nil)
	for _, key := range keys {
		got, refusal := g.bearer(t, key.sign(t, i.claims("sid", "s-"+key.id)))
		if want := (auth.Caller{Principal: "oauth:s-" + key.id}); refusal != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", key.algorithm, got, refusal, want)
		}
	}
	if asked, fetched := i.counts(); asked != 1 || fetched != 1 {
		t.Errorf("the issuer was asked %d and %d times, want once: keys are kept", asked, fetched)
	}
}

func TestAccessTokensThatAreGood(t *testing.T) {
	key := es256(t, "k1")
	i := startIssuer(t, key)
	g := newGate(t, i, nil)
	now := time.Now().Unix()
	for name, claims := range map[string]map[string]any{
		"several audiences":      i.claims("aud", []string{"https://other.example", publicURL + "/mcp/claims"}),
		"expired within leeway":  i.claims("exp", now-30),
		"begins within leeway":   i.claims("nbf", now+30),
		"fractions of a second":  i.claims("exp", float64(now)+600.25, "nbf", float64(now)-0.5),
		"no nbf, no iat, no sub": i.claims("nbf", nil, "iat", nil, "sub", nil),
		"longest sid":            i.claims("sid", "session-1"+strings.Repeat("~", 247)),
	} {
		got, refusal := g.bearer(t, key.sign(t, claims))
		if refusal != nil || !strings.HasPrefix(got.Principal, "oauth:session-1") || got.Tier != "" || got.User != "" {
			t.Errorf("%s: got %+v, %v", name, got, refusal)
		}
	}
	lower := request("authorization", "bEARER  "+key.sign(t, i.claims()))
	if _, refusal := g.call(t, lower, "claims"); refusal != nil {
		t.Errorf("the scheme's case and blanks matter: %v", refusal)
	}
}

// A refreshed access token has the same sid, and so the same budget.
func TestAnotherTokenOfASessionIsTheSameCaller(t *testing.T) {
	key := es256(t, "k1")
	i := startIssuer(t, key)
	g := newGate(t, i, nil)
	first, _ := g.bearer(t, key.sign(t, i.claims()))
	second, _ := g.bearer(t, key.sign(t, i.claims("exp", time.Now().Unix()+900, "jti", "other")))
	if first != second || first.Principal != "oauth:session-1" {
		t.Errorf("got %+v and %+v", first, second)
	}
}

func TestAccessTokensThatAreRefused(t *testing.T) {
	public := rsaKey(t, 2048)
	key := signer{"r", jose.RS256, public}
	foreign := signer{"r", jose.RS256, rsaKey(t, 2048)}
	ec := es256(t, "e")
	unknown := es256(t, "unknown")
	i := startIssuer(t, key, ec)
	g := newGate(t, i, nil)
	now := time.Now().Unix()
	good, err := json.Marshal(i.claims("x", canary))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public.Public())
	if err != nil {
		t.Fatal(err)
	}
	jwk, err := json.Marshal(key.jwk())
	if err != nil {
		t.Fatal(err)
	}
	hs256 := func(secret []byte) func([]byte) []byte {
		return func(input []byte) []byte {
			h := hmac.New(sha256.New, secret)
			h.Write(input)
			return h.Sum(nil)
		}
	}
	unsigned := func([]byte) []byte { return nil }
	changed := func(changes ...any) string { return key.sign(t, i.claims(append([]any{"x", canary}, changes...)...)) }
	valid := changed()
	header, payload, _ := strings.Cut(valid, ".")
	payload, signature, _ := strings.Cut(payload, ".")
	encrypter, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.RSA_OAEP, Key: public.Public(), KeyID: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := encrypter.Encrypt(good)
	if err != nil {
		t.Fatal(err)
	}
	jwe, err := encrypted.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name  string
		token string
		want  auth.Reason
	}{
		{"expired", changed("exp", now-120), auth.TokenExpired},
		{"no expiry", changed("exp", nil), auth.TokenExpired},
		{"expiry as text", changed("exp", canary), auth.TokenExpired},
		{"expiry out of range", key.signBytes(t, []byte(strings.Replace(string(good), `"exp":`, `"exp":-1e300,"old":`, 1))), auth.TokenExpired},
		{"not yet valid", changed("nbf", now+120), auth.TokenNotYetValid},
		{"begins as text", changed("nbf", canary), auth.TokenNotYetValid},
		{"audience of another route", changed("aud", publicURL+"/mcp/lookup"), auth.TokenAudience},
		{"audience is the gateway", changed("aud", publicURL), auth.TokenAudience},
		{"audience with a slash more", changed("aud", publicURL+"/mcp/claims/"), auth.TokenAudience},
		{"audience of a client", changed("aud", canary), auth.TokenAudience},
		{"no audience", changed("aud", nil), auth.TokenAudience},
		{"audience in another case only", changed("aud", nil, "AUD", publicURL+"/mcp/claims"), auth.TokenAudience},
		{"audience is no text", changed("aud", []any{1, nil, map[string]any{}}), auth.TokenAudience},
		{"issuer", changed("iss", "https://"+canary+".example"), auth.TokenIssuer},
		{"issuer with a slash more", changed("iss", i.url+"/"), auth.TokenIssuer},
		{"no issuer", changed("iss", nil), auth.TokenIssuer},
		{"no sid", changed("sid", nil), auth.TokenPrincipal},
		{"empty sid", changed("sid", ""), auth.TokenPrincipal},
		{"sid is a number", changed("sid", 42), auth.TokenPrincipal},
		{"sid is a list", changed("sid", []string{canary}), auth.TokenPrincipal},
		{"sid is null", key.signBytes(t, []byte(strings.Replace(string(good), `"sid":"session-1"`, `"sid":null`, 1))), auth.TokenPrincipal},
		{"sid in another case only", changed("sid", nil, "SID", canary), auth.TokenPrincipal},
		{"sid with a blank", changed("sid", "a "+canary), auth.TokenPrincipal},
		{"sid with a line", changed("sid", "a\n"+canary), auth.TokenPrincipal},
		{"sid beyond ASCII", changed("sid", "ü"+canary), auth.TokenPrincipal},
		{"sid too long", changed("sid", strings.Repeat("s", 257)), auth.TokenPrincipal},
		{"claims twice", key.signBytes(t, []byte(strings.Replace(string(good), `{`, `{"sid":"`+canary+`",`, 1))), auth.TokenMalformed},
		{"claims are a list", key.signBytes(t, []byte(`["`+canary+`"]`)), auth.TokenMalformed},
		{"claims are no JSON", key.signBytes(t, []byte(canary)), auth.TokenMalformed},
		{"no claims", key.signBytes(t, nil), auth.TokenSignature},

		{"alg none", forge(`{"alg":"none","typ":"JWT"}`, good, unsigned), auth.TokenMalformed},
		{"alg none, with the key's id", forge(`{"alg":"none","kid":"r"}`, good, unsigned), auth.TokenMalformed},
		{"alg None", forge(`{"alg":"None","kid":"r"}`, good, unsigned), auth.TokenMalformed},
		{"alg empty", forge(`{"alg":"","kid":"r"}`, good, unsigned), auth.TokenMalformed},
		{"no alg", forge(`{"kid":"r"}`, good, unsigned), auth.TokenMalformed},
		{"RS256 without signature", header + "." + payload + ".", auth.TokenSignature},
		{"HS256 by the public key as PEM", forge(`{"alg":"HS256","kid":"r"}`, good, hs256(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))), auth.TokenMalformed},
		{"HS256 by the public key as DER", forge(`{"alg":"HS256","kid":"r"}`, good, hs256(der)), auth.TokenMalformed},
		{"HS256 by the public key as JWK", forge(`{"alg":"HS256","kid":"r"}`, good, hs256(jwk)), auth.TokenMalformed},
		{"HS256 labelled RS256", forge(`{"alg":"RS256","kid":"r"}`, good, hs256(der)), auth.TokenSignature},
		{"ES256 labelled RS256", forge(`{"alg":"RS256","kid":"e"}`, good, unsigned), auth.TokenSignature},
		{"a foreign key with the same id", foreign.sign(t, i.claims("x", canary)), auth.TokenSignature},
		{"a foreign key that the header brings along", forge(`{"alg":"ES256","kid":"r","jwk":`+marshal(t, unknown.jwk())+`}`, good, unsigned), auth.TokenSignature},
		{"a key nobody knows", unknown.sign(t, i.claims("x", canary)), auth.TokenSignature},
		{"another algorithm than the key's", signer{"r", jose.PS256, public}.sign(t, i.claims()), auth.TokenSignature},
		{"claims changed", header + "." + payload[:len(payload)-4] + "AAAA." + signature, auth.TokenSignature},
		{"a critical extension", forge(`{"alg":"RS256","kid":"r","crit":["`+canary+`"],"`+canary+`":1}`, good, unsigned), auth.TokenMalformed},
		{"encrypted", jwe, auth.TokenMalformed},
		{"huge", key.sign(t, i.claims("x", strings.Repeat(canary, 4000))), auth.TokenMalformed},
		{"garbage", canary, auth.TokenMalformed},
		{"three parts of garbage", canary + "." + canary + "." + canary, auth.TokenMalformed},
		{"dots", "..", auth.TokenMalformed},
		{"JSON serialization", `{"payload":"` + payload + `","protected":"` + header + `","signature":"` + signature + `"}`, auth.TokenMalformed},
		{"two tokens", valid + "," + valid, auth.TokenMalformed},
		{"with padding", header + "." + payload + "." + signature + "==", auth.TokenMalformed},
		{"not ASCII", valid + "ü" + canary, auth.TokenMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, refusal := g.bearer(t, test.token)
			if refusal == nil {
				t.Fatal("the token is accepted")
			}
			if refusal.Reason != test.want || refusal.Status != 401 {
				t.Errorf("got %d %s, want 401 %s", refusal.Status, refusal.Reason, test.want)
			}
			const want = `Bearer resource_metadata="https://tools.example/.well-known/oauth-protected-resource/mcp/claims", error="invalid_token"`
			if refusal.WWWAuthenticate != want {
				t.Errorf("WWW-Authenticate is %s\nwant %s", refusal.WWWAuthenticate, want)
			}
		})
	}
	if _, refusal := g.bearer(t, key.sign(t, i.claims())); refusal != nil {
		t.Errorf("after all that, a good token is refused: %v", refusal)
	}
	if asked, _ := i.counts(); asked != 1 {
		t.Errorf("the issuer was asked %d times, want once", asked)
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAConfiguredAudienceIsGoodForEveryRoute(t *testing.T) {
	key := es256(t, "k1")
	i := startIssuer(t, key)
	g := newGate(t, i, func(o *auth.Options) { o.Config.OAuth.Audience = "api://tools" })
	for _, route := range []string{"claims", "lookup"} {
		r := request("Authorization", "Bearer "+key.sign(t, i.claims("aud", "api://tools")))
		if _, refusal := g.call(t, r, route); refusal != nil {
			t.Errorf("%s: %v", route, refusal)
		}
	}
	if _, refusal := g.bearer(t, key.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenAudience {
		t.Errorf("the route as audience: got %v, want it refused", refusal)
	}
}

func TestThePrincipalClaimCanBeAnother(t *testing.T) {
	key := es256(t, "k1")
	i := startIssuer(t, key)
	g := newGate(t, i, func(o *auth.Options) { o.Config.OAuth.PrincipalClaim = "https://example/connection" })
	got, refusal := g.bearer(t, key.sign(t, i.claims("https://example/connection", "key:42")))
	if refusal != nil || got.Principal != "oauth:key:42" {
		t.Errorf("got %+v, %v; a claim must not be able to be an API key", got, refusal)
	}
	if _, refusal := g.bearer(t, key.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenPrincipal {
		t.Errorf("sid instead: got %v, want it refused", refusal)
	}
}

// What an issuer publishes besides its signing keys is not trusted to sign.
func TestOnlyPublicSigningKeysCount(t *testing.T) {
	good := es256(t, "good")
	private := rsaKey(t, 2048)
	small := signer{"small", jose.RS256, rsaKey(t, 1024)}
	encrypts := es256(t, "enc")
	secret := []byte(strings.Repeat("s", 32))
	i := startIssuer(t)
	enc := encrypts.jwk()
	enc.Use = "enc"
	wraps, verifies := es256(t, "wraps"), es256(t, "verifies")
	i.published = []any{
		map[string]any{"kty": "future", "kid": "future"}, map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "broken", "x": "!"}, 7, nil,
		jose.JSONWebKey{Key: secret, KeyID: "oct"}, enc, small.jwk(),
		jose.JSONWebKey{Key: private, KeyID: "leaked", Algorithm: "RS256"},
		withOperations(t, wraps, "encrypt", "wrapKey"), withOperations(t, verifies, "encrypt", "verify"), good.jwk(),
	}
	g := newGate(t, i, nil)
	if _, refusal := g.bearer(t, good.sign(t, i.claims())); refusal != nil {
		t.Errorf("a good key beside others: %v", refusal)
	}
	if _, refusal := g.bearer(t, verifies.sign(t, i.claims())); refusal != nil {
		t.Errorf("a key whose key_ops have verify: %v", refusal)
	}
	payload, err := json.Marshal(i.claims())
	if err != nil {
		t.Fatal(err)
	}
	h := func(input []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(input)
		return mac.Sum(nil)
	}
	for name, token := range map[string]string{
		"for encryption":       encrypts.sign(t, i.claims()),
		"key_ops of no verify": wraps.sign(t, i.claims()),
		"1024 bits":            small.sign(t, i.claims()),
		"private":              signer{"leaked", jose.RS256, private}.sign(t, i.claims()),
		"symmetric":            forge(`{"alg":"HS256","kid":"oct"}`, payload, h),
	} {
		if _, refusal := g.bearer(t, token); refusal == nil || refusal.Status != 401 {
			t.Errorf("%s: got %v, want 401", name, refusal)
		}
	}
}

// withOperations is the key as published with key_ops.
func withOperations(t *testing.T, s signer, operations ...string) map[string]any {
	var key map[string]any
	if err := json.Unmarshal([]byte(marshal(t, s.jwk())), &key); err != nil {
		t.Fatal(err)
	}
	key["key_ops"] = operations
	return key
}

// Some issuers have one key and no ids.
func TestTokensWithoutKeyID(t *testing.T) {
	key := es256(t, "")
	i := startIssuer(t, signer{"other", jose.EdDSA, edKey(t)}, es256(t, "more"), key)
	g := newGate(t, i, nil)
	if _, refusal := g.bearer(t, key.sign(t, i.claims())); refusal != nil {
		t.Error(refusal)
	}
	if _, refusal := g.bearer(t, es256(t, "").sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
		t.Errorf("a key of somebody else: got %v", refusal)
	}
}
