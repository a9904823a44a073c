package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tollgate/freeport"
)

// An authServer is an OAuth authorization server on a port of its own: discovery,
// keys, and a token endpoint for client credentials and refresh tokens, which wants
// to know the resource (RFC 8707) and puts it into aud.
type authServer struct {
	t        testing.TB
	port     int              // stays the same while the server is down
	host     string           // in its name
	keysHost string           // where it says that its keys are
	tls      *httptest.Server // nil: plain

	mu        sync.Mutex
	server    *http.Server // nil: down
	signs     issuerKey    // new tokens
	published []issuerKey
	sessions  map[string]session // by refresh token
}

// session is a client's connection to a resource. Its id is in every token of it.
type session struct{ resource, id string }

// What the one client of the authorization server identifies itself with.
const (
	clientID     = "agent"
	clientSecret = "rX7-client-secret-q83vEjRW"
)

// startAuthServer starts one that signs with the key and publishes it.
func startAuthServer(t testing.TB, key issuerKey) *authServer {
	t.Helper()
	s := &authServer{
		t: t, host: "127.0.0.1", keysHost: "127.0.0.1",
		signs: key, published: []issuerKey{key}, sessions: map[string]session{},
	}
	var err error
	if s.port, err = freeport.Take("127.0.0.1"); err == nil {
		err = s.listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// issuer is its name: one with a path, as many have.
func (s *authServer) issuer() string { return s.at(s.host) }

func (s *authServer) at(host string) string {
	if s.tls != nil {
		return s.tls.URL + "/realms/plants"
	}
	return fmt.Sprintf("http://%s:%d/realms/plants", host, s.port)
}

// overTLS moves it behind TLS, on another port, and returns the file with the
// certificate that vouches for it.
func (s *authServer) overTLS() (caFile string) {
	s.tls = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	s.t.Cleanup(s.tls.Close)
	caFile = filepath.Join(s.t.TempDir(), "ca.pem")
	writeFile(s.t, caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.tls.Certificate().Raw})))
	return caFile
}

// start starts it again.
func (s *authServer) start() {
	s.t.Helper()
	if err := s.listen(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *authServer) listen() error {
	listener, err := freeport.Listen(s.addr())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go s.server.Serve(listener)
	return nil
}

func (s *authServer) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// stop ends it: connections are cut, new ones refused.
func (s *authServer) stop() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Close()
		awaitRefusal(s.t, s.addr())
	}
}

// rotate signs with a new key from now on, and publishes only those given.
func (s *authServer) rotate(signs issuerKey, published ...issuerKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signs, s.published = signs, published
}

func (s *authServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	switch path, _ := strings.CutPrefix(r.URL.Path, "/realms/plants"); path {
	case "/.well-known/openid-configuration":
		answer(200, map[string]any{
			"issuer": s.issuer(), "jwks_uri": s.at(s.keysHost) + "/certs", "token_endpoint": s.issuer() + "/token",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}, // no matter what it says here
		})
	case "/certs":
		set := jose.JSONWebKeySet{}
		for _, key := range s.published {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.private.Public(), KeyID: key.id, Algorithm: string(key.algorithm), Use: "sig"})
		}
		answer(200, set)
	case "/token":
		granted, fault := s.grant(r)
		if fault != "" {
			answer(400, map[string]string{"error": fault})
			return
		}
		refresh := rand.Text()
		s.sessions[refresh] = granted
		answer(200, map[string]any{
			"access_token": s.signs.sign(s.t, s.claims(granted.resource, "sid", granted.id)),
			"token_type":   "Bearer", "expires_in": 600, "refresh_token": refresh,
		})
	default:
		http.NotFound(w, r)
	}
}

// grant judges a token request. The fault is the error code of RFC 6749 or 8707.
func (s *authServer) grant(r *http.Request) (granted session, fault string) {
	if id, secret, ok := r.BasicAuth(); r.Method != http.MethodPost || !ok || id != clientID || secret != clientSecret {
		return granted, "invalid_client"
	}
	switch resource := r.PostFormValue("resource"); r.PostFormValue("grant_type") {
	case "client_credentials":
		if resource == "" || len(r.PostForm["resource"]) != 1 {
			return granted, "invalid_target"
		}
		return session{resource, "session-" + rand.Text()}, ""
	case "refresh_token":
		token := r.PostFormValue("refresh_token")
		granted, ok := s.sessions[token]
		if !ok || resource != "" && resource != granted.resource {
			return granted, "invalid_grant"
		}
		delete(s.sessions, token) // good for one use
		return granted, ""
	}
	return granted, "unsupported_grant_type"
}

// tokens are what a client has of a session.
type tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

// token asks for tokens for a resource, as a client does.
func (s *authServer) token(t testing.TB, resource string) tokens {
	t.Helper()
	return s.request(t, url.Values{"grant_type": {"client_credentials"}, "resource": {resource}})
}

// refresh asks for new tokens of the same session.
func (s *authServer) refresh(t testing.TB, old tokens) tokens {
	t.Helper()
	return s.request(t, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}})
}

func (s *authServer) request(t testing.TB, form url.Values) (got tokens) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.issuer()+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(clientID, clientSecret)
	answer, err := afresh.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 || json.Unmarshal(body, &got) != nil {
		t.Fatalf("no token: status %d, %s (%v)", answer.StatusCode, body, err)
	}
	return got
}

// claims are those of a good token for a resource, changed in pairs: a nil value
// takes the claim away.
func (s *authServer) claims(resource string, changes ...any) map[string]any {
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": s.issuer(), "aud": []string{resource}, "sub": "user-7", "azp": clientID, "jti": rand.Text(),
		"sid": "session-of-" + s.t.Name(), "iat": now, "nbf": now, "exp": now + 600,
	}
	for pair := range slices.Chunk(changes, 2) {
		if name := pair[0].(string); pair[1] == nil {
			delete(claims, name)
		} else {
			claims[name] = pair[1]
		}
	}
	return claims
}

// issuerKey is a key that signs tokens.
type issuerKey struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

func rsaIssuerKey(t testing.TB, id string) issuerKey {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return issuerKey{id, jose.RS256, private}
}

func ecIssuerKey(t testing.TB, id string) issuerKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issuerKey{id, jose.ES256, private}
}

// sign makes a token of claims.
func (k issuerKey) sign(t testing.TB, claims map[string]any) string {
	return signToken(t, k.algorithm, jose.JSONWebKey{Key: k.private, KeyID: k.id}, claims)
}

// signToken makes a token with any algorithm and key.
func signToken(t testing.TB, algorithm jose.SignatureAlgorithm, key jose.JSONWebKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(encoded(t, claims))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// unsigned is what a token's signature is made of.
func unsigned(t testing.TB, header string, claims map[string]any) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(header)) + "." + encode(encoded(t, claims))
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
