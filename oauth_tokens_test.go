package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
)

// TestAccessTokens: who shows a token of the issuer for this very route is let in;
// whoever shows anything else is told why not, and where to get one.
func TestAccessTokens(t *testing.T) {
	key := rsaIssuerKey(t, "k1")
	issuer := startAuthServer(t, key)
	collector := newTraceCollector(t)
	g := guarded(t, requires("", issuer.issuer()), fmt.Sprintf("telemetry: {otlpEndpoint: %q}", collector.url))

	plant := resourceOf("plant")
	claims := func(changes ...any) map[string]any { return issuer.claims(plant, changes...) }
	signed := func(changes ...any) string { return key.sign(t, claims(changes...)) }
	now := time.Now().Unix()
	stranger := rsaIssuerKey(t, "k1")
	good := issuer.token(t, plant).Access
	parts := strings.Split(good, ".")
	spki, err := x509.MarshalPKIXPublicKey(key.private.Public())
	if err != nil {
		t.Fatal(err)
	}
	hmac := func(secret []byte) string {
		return signToken(t, jose.HS256, jose.JSONWebKey{Key: secret, KeyID: "k1"}, claims())
	}

	var secrets sentinels
	secrets.note("the client's secret", forNobody, clientSecret)
	want := map[string]int{}
	for name, test := range map[string]struct {
		token  string
		reason string // "" is admitted
	}{
		"good":                           {good, ""},
		"of several audiences":           {signed("aud", []string{"https://other.example", plant}), ""},
		"audience that is no list":       {signed("aud", plant), ""},
		"without nbf":                    {signed("nbf", nil), ""},
		"expired":                        {signed("exp", now-120), "token_expired"},
		"that never expires":             {signed("exp", nil), "token_expired"},
		"not yet valid":                  {signed("nbf", now+120), "token_not_yet_valid"},
		"wrong audience":                 {signed("aud", "https://other.example/mcp/plant"), "token_audience"},
		"audience of another route":      {issuer.token(t, resourceOf("lab")).Access, "token_audience"},
		"audience of the whole gateway":  {signed("aud", publicURL), "token_audience"},
		"audience with a slash":          {signed("aud", plant+"/"), "token_audience"},
		"without audience":               {signed("aud", nil), "token_audience"},
		"wrong issuer":                   {signed("iss", "https://other.example"), "token_issuer"},
		"issuer with a slash":            {signed("iss", issuer.issuer()+"/"), "token_issuer"},
		"alg none":                       {unsigned(t, `{"alg":"none"}`, claims()) + ".", "token_malformed"},
		"alg none with a kid":            {unsigned(t, `{"alg":"none","kid":"k1"}`, claims()) + ".", "token_malformed"},
		"alg None with a signature":      {unsigned(t, `{"alg":"None","kid":"k1"}`, claims()) + "." + parts[2], "token_malformed"},
		"HS256 with the public key, DER": {hmac(spki), "token_malformed"},
		"HS256 with the public key, PEM": {hmac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})), "token_malformed"},
		"of a stranger with our kid":     {stranger.sign(t, claims()), "token_signature"},
		"kid of no key":                  {issuerKey{"k9", jose.RS256, key.private}.sign(t, claims()), "token_signature"},
		"changed after it was signed":    {parts[0] + unsigned(t, "", claims("sid", "of somebody else")) + "." + parts[2], "token_signature"},
		"without signature":              {parts[0] + "." + parts[1] + ".", "token_signature"},
		"without the signature's part":   {parts[0] + "." + parts[1], "token_malformed"},
		"of one part":                    {parts[0], "token_malformed"},
		"with two signatures":            {good + "." + parts[2], "token_malformed"},
		"without sid":                    {signed("sid", nil), "token_principal"},
		"empty sid":                      {signed("sid", ""), "token_principal"},
		"sid that is a number":           {signed("sid", 42), "token_principal"},
		"sid with a line break":          {signed("sid", "a\nb"), "token_principal"},
		"something else":                 {"no-token-at-all-but-long-enough", "token_malformed"},
	} {
		secrets.note("the token "+name, forNobody, test.token)
		for _, modern := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/modern=%v", name, modern), func(t *testing.T) {
				a := g.list(t, modern, "plant", bearer(test.token)...)
				secrets.search(t, "the answer", inAnswer, fmt.Sprint(a.header)+a.body)
				if test.reason == "" {
					a.wantGood(t)
					return
				}
				want[test.reason]++
				a.wantRefused(t, 401, 401, test.reason, invalidToken("plant"))
			})
		}
	}
	t.Run("without any", func(t *testing.T) {
		for _, header := range [][]string{nil, {"Authorization", ""}, {"Authorization", "Bearer "}, {"Authorization", "Basic " + strings.ToUpper(parts[2])}} {
			g.list(t, true, "plant", header...).wantRefused(t, 401, 401, "unauthenticated", challengeOf("plant"))
			want["unauthenticated"]++
		}
	})
	t.Run("at another route", func(t *testing.T) {
		for _, route := range []string{"lab", "nowhere"} { // both alike: which routes there are is not told to strangers
			g.list(t, true, route, bearer(good)...).wantRefused(t, 401, 401, "token_audience", invalidToken(route))
			want["token_audience"]++
		}
	})
	t.Run("for a route that does not exist", func(t *testing.T) {
		a := g.list(t, true, "nowhere", bearer(issuer.token(t, resourceOf("nowhere")).Access)...)
		if a.status != 404 || a.Error == nil || !strings.Contains(a.body, "route_not_found") || a.header.Get("WWW-Authenticate") != "" {
			t.Errorf("status %d, %s", a.status, a.body)
		}
		want["route_not_found"]++
	})
	if diff := cmp.Diff(want, g.refusals(t)); diff != "" {
		t.Errorf("refused by reason (-want +got):\n%s", diff)
	}
	secrets.search(t, "the log", inLog, g.stderr.text())
	secrets.search(t, "the metrics", inView, g.management(t, "GET", "/metrics").body)
	g.signal(t, syscall.SIGINT)
	g.wait(t)
	secrets.search(t, "the traces", inTrace, collector.received())
}

// TestARefreshedTokenKeepsItsBudget: the budget is the connection's, however many
// tokens it has had.
func TestARefreshedTokenKeepsItsBudget(t *testing.T) {
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	g := guarded(t, requires("", issuer.issuer()))
	first := issuer.token(t, resourceOf("lab"))
	left := g.echo(t, bearer(first.Access)...).hourLeft(t)
	if left != 2_000_000-1 {
		t.Errorf("%d are left of the hour after the first call", left)
	}
	for tokens, n := first, 1; n <= 3; n++ {
		before := tokens.Access
		if tokens = issuer.refresh(t, tokens); tokens.Access == before {
			t.Fatal("the token was not refreshed")
		}
		if got := g.echo(t, bearer(tokens.Access)...).hourLeft(t); got != left-n {
			t.Errorf("%d are left after %d refreshed tokens, want %d", got, n, left-n)
		}
	}
	// Another connection of the same client has a budget of its own.
	if got := g.echo(t, bearer(issuer.token(t, resourceOf("lab")).Access)...).hourLeft(t); got != left {
		t.Errorf("another connection has %d left, want %d", got, left)
	}
}
