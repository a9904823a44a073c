package auth_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tollgate/transport/auth"
)

// canary is in everything a test sends that must not come back.
const canary = "cAnArY"

const publicURL = "https://tools.example"

// issuer is an authorization server: discovery, keys, and tokens signed with any key.
type issuer struct {
	url string

	mu        sync.Mutex
	discovery http.HandlerFunc // instead of its own answer
	jwks      http.HandlerFunc
	published []any // JSON Web Keys
	asked     int   // for discovery
	fetched   int   // the keys
}

// startIssuer starts one that publishes the keys.
func startIssuer(t testing.TB, keys ...signer) *issuer {
	t.Helper()
	i := &issuer{}
	i.publish(keys...)
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	var answer http.HandlerFunc
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		i.asked++
		if answer = i.discovery; answer == nil {
			answer = writes(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys", "id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}})
		}
	case "/keys":
		i.fetched++
		if answer = i.jwks; answer == nil {
			answer = writes(map[string]any{"keys": i.published})
		}
	default:
		answer = http.NotFound
	}
	i.mu.Unlock()
	answer(w, r)
}

// RoundTrip reaches the issuer without a network, for tests of time.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func writes(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
}

// answers replaces answers; nil is the issuer's own.
func (i *issuer) answers(discovery, jwks http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.discovery, i.jwks = discovery, jwks
}

func (i *issuer) publish(keys ...signer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.published = nil
	for _, k := range keys {
		i.published = append(i.published, k.jwk())
	}
}

func (i *issuer) counts() (asked, fetched int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked, i.fetched
}

// signer is a key of an issuer.
type signer struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

func (s signer) jwk() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.private.Public(), KeyID: s.id, Algorithm: string(s.algorithm), Use: "sig"}
}

// sign makes a token of claims.
func (s signer) sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return s.signBytes(t, payload)
}

func (s signer) signBytes(t testing.TB, payload []byte) string {
	t.Helper()
	signs, err := jose.NewSigner(jose.SigningKey{Algorithm: s.algorithm, Key: jose.JSONWebKey{Key: s.private, KeyID: s.id}}, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signs.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func rsaKey(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func ecKey(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func edKey(t testing.TB) crypto.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// es256 is a signer that is made fast.
func es256(t testing.TB, id string) signer { return signer{id, jose.ES256, ecKey(t, elliptic.P256())} }

// claims are those of a good token for the route claims, changed in pairs: a nil
// value takes the claim away.
func (i *issuer) claims(changes ...any) map[string]any {
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": i.url, "aud": publicURL + "/mcp/claims", "sub": "user-1", "sid": "session-1", "iat": now, "nbf": now, "exp": now + 600,
	}
	for n := 0; n < len(changes); n += 2 {
		if name := changes[n].(string); changes[n+1] == nil {
			delete(claims, name)
		} else {
			claims[name] = changes[n+1]
		}
	}
	return claims
}

// gate is an Authenticator with its log.
type gate struct {
	*auth.Authenticator
	log *logBuffer
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newGate makes one that accepts the issuer's tokens. Whatever it logs or answers is
// searched for the canary.
func newGate(t testing.TB, i *issuer, change func(*auth.Options)) gate {
	t.Helper()
	o := auth.Options{Config: auth.DefaultConfig()}
	o.Config.Mode = auth.Required
	o.Config.PublicURL = publicURL
	o.Config.OAuth.Issuer = i.url
	if change != nil {
		change(&o)
	}
	log := &logBuffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := auth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(log.String(), canary) {
			t.Errorf("the log shows what must stay secret:\n%s", log)
		}
	})
	return gate{a, log}
}

// request is one with headers given in pairs.
func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp/claims", nil)
	for n := 0; n < len(headers); n += 2 {
		r.Header.Add(headers[n], headers[n+1])
	}
	return r
}

// bearer asks for the route claims with a token.
func (g gate) bearer(t testing.TB, token string) (auth.Caller, *auth.Refusal) {
	t.Helper()
	return g.call(t, request("Authorization", "Bearer "+token), "claims")
}

func (g gate) call(t testing.TB, r *http.Request, route string) (auth.Caller, *auth.Refusal) {
	t.Helper()
	caller, err := g.Authenticate(r, route)
	if err == nil {
		return caller, nil
	}
	refusal, ok := err.(*auth.Refusal)
	if !ok {
		t.Fatalf("want a *Refusal, got %T", err)
	}
	checkRefusal(t, caller, refusal)
	return caller, refusal
}

// checkRefusal holds what every refusal has to obey.
func checkRefusal(t testing.TB, caller auth.Caller, r *auth.Refusal) {
	t.Helper()
	if caller != (auth.Caller{}) {
		t.Errorf("refused, and yet there is a caller: %+v", caller)
	}
	if shown := fmt.Sprintf("%+v %v", *r, r); strings.Contains(shown, canary) {
		t.Errorf("the refusal shows what the caller has sent: %s", shown)
	}
	if r.Reason == "" || !strings.HasSuffix(r.Text, ".") {
		t.Errorf("a refusal without a reason or a sentence: %+v", r)
	}
	if (r.Status == 401) != strings.HasPrefix(r.WWWAuthenticate, "Bearer") && r.Status != 400 {
		t.Errorf("status %d with WWW-Authenticate %q", r.Status, r.WWWAuthenticate)
	}
	if strings.ContainsAny(r.WWWAuthenticate, "\r\n") {
		t.Errorf("WWW-Authenticate is more than a line: %q", r.WWWAuthenticate)
	}
	if (r.Status == 503) != (r.RetryAfter >= time.Second) {
		t.Errorf("status %d with RetryAfter %v", r.Status, r.RetryAfter)
	}
}

// forge makes a token by hand: header and payload as given, and a signature of them.
func forge(header string, payload []byte, sign func(input []byte) []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	input := encode([]byte(header)) + "." + encode(payload)
	return input + "." + encode(sign([]byte(input)))
}
