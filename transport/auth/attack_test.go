package auth_test

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tollgate/transport/auth"
)

// signedBy signs any header and payload with an RSA key: what the issuer's own key
// has signed is still refused if it is no access token for here.
func signedBy(t testing.TB, private crypto.Signer) func(input []byte) []byte {
	return func(input []byte) []byte {
		sum := sha256.Sum256(input)
		signature, err := private.Sign(rand.Reader, sum[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		return signature
	}
}

// TestSignedClaimsThatMeanTwoThings changes one claim of a token that is good
// otherwise, and signs it properly: nothing but the claim is at fault.
func TestSignedClaimsThatMeanTwoThings(t *testing.T) {
	key := signer{"r", jose.RS256, rsaKey(t, 2048)}
	i := startIssuer(t, key)
	g := newGate(t, i, nil)
	future := time.Now().Unix() + 600
	resource := publicURL + "/mcp/claims"
	for _, test := range []struct {
		claim, value string // the value as JSON; "-" leaves the claim out
		more         string // members before the others
		want         auth.Reason
	}{
		{"exp", fmt.Sprint(future), "", ""},
		{"exp", fmt.Sprintf("%d.5", future), "", ""},
		{"exp", fmt.Sprintf("%de-1", future*10), "", ""},
		{"exp", fmt.Sprintf(`"%d"`, future), "", auth.TokenExpired},
		{"exp", "null", "", auth.TokenExpired}, {"exp", "true", "", auth.TokenExpired}, {"exp", "{}", "", auth.TokenExpired},
		{"exp", fmt.Sprintf("[%d]", future), "", auth.TokenExpired},
		{"exp", "-1", "", auth.TokenExpired}, {"exp", "0", "", auth.TokenExpired}, {"exp", "1e-400", "", auth.TokenMalformed},
		{"exp", "1e400", "", auth.TokenMalformed},
		{"exp", "-", fmt.Sprintf(`"EXP":%d,`, future), auth.TokenExpired},
		{"exp", "1", fmt.Sprintf(`"Exp":%d,`, future), auth.TokenExpired},
		{"nbf", fmt.Sprint(future), "", auth.TokenNotYetValid},
		{"nbf", fmt.Sprintf("%d.5", future), "", auth.TokenNotYetValid},
		{"nbf", `"0"`, "", auth.TokenNotYetValid}, {"nbf", "null", "", auth.TokenNotYetValid},
		{"nbf", "0", fmt.Sprintf(`"NBF":%d,`, future), ""},

		{"aud", fmt.Sprintf(`["x",%q]`, resource), "", ""},
		{"aud", fmt.Sprintf(`[[%q]]`, resource), "", auth.TokenAudience},
		{"aud", fmt.Sprintf(`{"0":%q}`, resource), "", auth.TokenAudience},
		{"aud", fmt.Sprintf(`%q`, "x "+resource), "", auth.TokenAudience},
		{"aud", fmt.Sprintf(`%q`, strings.ToUpper(resource)), "", auth.TokenAudience},
		{"aud", `[]`, "", auth.TokenAudience}, {"aud", `""`, "", auth.TokenAudience}, {"aud", `null`, "", auth.TokenAudience},
		{"aud", `"x"`, fmt.Sprintf(`"Aud":%q,`, resource), auth.TokenAudience},
		{"aud", fmt.Sprintf(`%q`, resource+"?"), "", auth.TokenAudience}, {"aud", fmt.Sprintf(`%q`, resource+"#"), "", auth.TokenAudience},
		{"aud", fmt.Sprintf(`%q`, resource+`\u0000`), "", auth.TokenAudience},

		{"iss", fmt.Sprintf(`%q`, i.url+"/"), "", auth.TokenIssuer},
		{"iss", fmt.Sprintf(`[%q]`, i.url), "", auth.TokenIssuer},
		{"iss", fmt.Sprintf(`%q`, strings.Replace(i.url, "http", "HTTP", 1)), "", auth.TokenIssuer},
		{"iss", `"x"`, fmt.Sprintf(`"ISS":%q,`, i.url), auth.TokenIssuer},

		{"sid", `"session-1"`, `"SID":"other",`, ""},
		{"sid", `"session-1"`, `"` + "\u017f" + `id":"other",`, ""}, // a letter that folds to s
		{"sid", `{"sid":"x"}`, "", auth.TokenPrincipal}, {"sid", `["x"]`, "", auth.TokenPrincipal}, {"sid", `""`, "", auth.TokenPrincipal},
		{"sid", `"\u0000"`, "", auth.TokenPrincipal}, {"sid", `"\ud800"`, "", auth.TokenPrincipal}, {"sid", `" x"`, "", auth.TokenPrincipal},
		{"sid", `1`, "", auth.TokenPrincipal},
		{"sid", `"session-1"`, `"s\u0069d":"other",`, auth.TokenMalformed},
		{"sid", `"session-1"`, `"sid":"session-1",`, auth.TokenMalformed},
		{"sid", `"session-1"`, `"x":{"y":1,"y":2},`, auth.TokenMalformed},
		{"sid", `"session-1"`, `"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `,`, auth.TokenMalformed},
	} {
		claims := map[string]string{
			"iss": fmt.Sprintf("%q", i.url), "aud": fmt.Sprintf("%q", resource), "exp": fmt.Sprint(future), "nbf": "0", "sid": `"session-1"`,
		}
		claims[test.claim] = test.value
		payload := "{" + test.more
		for name, value := range claims {
			if value != "-" {
				payload += fmt.Sprintf("%q:%s,", name, value)
			}
		}
		payload += `"x` + canary + `":1}`
		got, refusal := g.bearer(t, forge(`{"alg":"RS256","kid":"r"}`, []byte(payload), signedBy(t, key.private)))
		switch {
		case test.want == "" && (refusal != nil || got.Principal != "oauth:session-1"):
			t.Errorf("%s %s %.40s: got %+v, %v", test.claim, test.value, test.more, got, refusal)
		case test.want != "" && (refusal == nil || refusal.Reason != test.want):
			t.Errorf("%s %s %.40s: got %+v, %v; want %s", test.claim, test.value, test.more, got, refusal, test.want)
		}
	}
}

// TestSignedHeadersThatAskForSomethingElse: each header is signed by the issuer's
// own key, so the header alone is at fault.
func TestSignedHeadersThatAskForSomethingElse(t *testing.T) {
	var visits atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(elsewhere.Close)
	key := signer{"r", jose.RS256, rsaKey(t, 2048)}
	i := startIssuer(t, key)
	g := newGate(t, i, nil)
	payload := []byte(marshal(t, i.claims()))
	for header, good := range map[string]bool{
		`{"alg":"RS256","kid":"r"}`:                               true,
		`{"alg":"RS256","kid":"r","typ":"JWT"}`:                   true,
		`{"alg":"RS256","kid":"r","typ":"jwt"}`:                   true,
		`{"alg":"RS256","kid":"r","typ":"at+jwt"}`:                true,
		`{"alg":"RS256","kid":"r","typ":"application/AT+JWT"}`:    true,
		`{"alg":"RS256","kid":"r","typ":"logout+jwt"}`:            false, // it has a sid, too
		`{"alg":"RS256","kid":"r","typ":"dpop+jwt"}`:              false,
		`{"alg":"RS256","kid":"r","typ":"secevent+jwt"}`:          false,
		`{"alg":"RS256","kid":"r","typ":7}`:                       false,
		`{"alg":"RS256","kid":"r","typ":""}`:                      false,
		`{"alg":"RS256","kid":"r","typ":null}`:                    false,
		`{"alg":"RS256","kid":"r","crit":[]}`:                     false,
		`{"alg":"RS256","kid":"r","crit":null}`:                   false,
		`{"alg":"RS256","kid":"r","jku":"` + elsewhere.URL + `"}`: true, // nobody goes there
		`{"alg":"RS256","kid":"r","x5u":"` + elsewhere.URL + `"}`: true,
		`{"alg":"RS256","kid":"r","crit":["exp"],"exp":1}`:        false,
		`{"alg":"RS256","kid":"r","crit":["b64"],"b64":false}`:    false,
		`{"alg":"RS256","kid":"r","b64":false}`:                   false,
		`{"alg":"RS256","kid":"../r"}`:                            false,
		`{"alg":"RS256","kid":"r\u0000"}`:                         false,
		`{"alg":"RS256","kid":["r"]}`:                             false,
		`{"alg":["RS256"],"kid":"r"}`:                             false,
		`{"alg":"rs256","kid":"r"}`:                               false,
		`{"alg":"RS256","alg":"none","kid":"r"}`:                  false,
		`{"alg":"none","alg":"RS256","kid":"r"}`:                  false,
		`{"ALG":"RS256","kid":"r"}`:                               false,
		`{"alg":"RS256","kid":"r","enc":"A256GCM"}`:               true, // signed all the same
		`{"alg":"RS256","kid":"r"} {}`:                            false,
		`["RS256"]`:                                               false,
	} {
		_, refusal := g.bearer(t, forge(header, payload, signedBy(t, key.private)))
		if (refusal == nil) != good {
			t.Errorf("%s: got %v", header, refusal)
		} else if refusal != nil && refusal.Status != 401 {
			t.Errorf("%s: got %d", header, refusal.Status)
		}
	}
	foreign := rsaKey(t, 2048)
	jwk := signer{"r", jose.RS256, foreign}.jwk()
	for _, header := range []string{
		`{"alg":"RS256","kid":"r","jku":"` + elsewhere.URL + `/keys"}`, `{"alg":"RS256","kid":"r","x5u":"` + elsewhere.URL + `"}`,
		`{"alg":"RS256","kid":"r","jwk":` + marshal(t, jwk) + `}`, `{"alg":"RS256","kid":"` + elsewhere.URL + `"}`,
	} {
		if _, refusal := g.bearer(t, forge(header, payload, signedBy(t, foreign))); refusal == nil {
			t.Errorf("%.60s: a foreign key is accepted", header)
		}
	}
	nested := forge(`{"alg":"RS256","kid":"r","cty":"JWT"}`, []byte(forge(`{"alg":"RS256","kid":"r"}`, payload, signedBy(t, key.private))), signedBy(t, key.private))
	if _, refusal := g.bearer(t, nested); refusal == nil || refusal.Reason != auth.TokenMalformed {
		t.Errorf("a token in a token: got %v", refusal)
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("a header sent the gateway elsewhere %d times", n)
	}
}

// Base64 has spare bits, which make another text of the same token; and there are
// headers a proxy and the gateway might read in two ways.
func TestHeadersThatAreReadInOneWay(t *testing.T) {
	key := es256(t, "k1")
	i := startIssuer(t, key)
	api, entry := makeKey(t, "42", nil)
	g := newGate(t, i, func(o *auth.Options) { o.Config.KeysFile = "keys.yaml" }).with(entry)
	token := key.sign(t, i.claims())
	for name, test := range map[string]struct {
		headers []string
		want    string // the principal, or the reason
	}{
		"a comma":                     {[]string{"Authorization", "Bearer " + token + ", Bearer " + token}, "token_malformed"},
		"a key and a comma":           {[]string{"Authorization", "Bearer " + api + "," + api}, "key_not_valid"},
		"a tabulator":                 {[]string{"Authorization", "Bearer\t" + token}, "unauthenticated"},
		"a parameter":                 {[]string{"Authorization", `Bearer token="` + token + `"`}, "token_malformed"},
		"a key with a blank inside":   {[]string{"Authorization", "Bearer " + api + " x"}, "key_not_valid"},
		"a key with blanks around":    {[]string{"Authorization", "Bearer   " + api + "  "}, "key:42"},
		"x-api-key with a scheme":     {[]string{"x-api-key", "Bearer " + api}, "key_not_valid"},
		"x-api-key with a blank":      {[]string{"x-api-key", api + " "}, "key_not_valid"},
		"DPoP":                        {[]string{"Authorization", "DPoP " + token}, "unauthenticated"},
		"Token":                       {[]string{"Authorization", "Token " + api}, "unauthenticated"},
		"only the header for proxies": {[]string{"Proxy-Authorization", "Bearer " + api}, "unauthenticated"},
		"a token beside a key":        {[]string{"Authorization", "Bearer " + token, "x-api-key", api}, "credentials_ambiguous"},
		"an empty line beside":        {[]string{"Authorization", "", "Authorization", "Bearer " + token}, "credentials_ambiguous"},
		"no more than a token":        {[]string{"Authorization", "Bearer " + token}, "oauth:session-1"},
		"a token, cut":                {[]string{"Authorization", "Bearer " + token[:len(token)-2]}, "token_signature"},
	} {
		got, refusal := g.call(t, request(test.headers...), "claims")
		if is := got.Principal; refusal != nil && string(refusal.Reason) != test.want || refusal == nil && is != test.want {
			t.Errorf("%s: got %+v, %v; want %s", name, got, refusal, test.want)
		}
	}
	// A token in the address is none: addresses are in logs.
	r := httptest.NewRequest(http.MethodPost, "/mcp/claims?access_token="+token, strings.NewReader("access_token="+token))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if _, refusal := g.call(t, r, "claims"); refusal == nil || refusal.Reason != auth.Unauthenticated {
		t.Errorf("a token in the address: got %v", refusal)
	}
}

// Some issuers change the key and keep its id, or have no ids.
func TestANewKeyOfTheSameIDIsFound(t *testing.T) {
	for _, id := range []string{"", "k1"} {
		before, after, forged := es256(t, id), es256(t, id), es256(t, id)
		synctest.Test(t, func(t *testing.T) {
			i := &issuer{url: "https://login.example"}
			i.publish(before)
			g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
			if _, refusal := g.bearer(t, before.sign(t, i.claims())); refusal != nil {
				t.Fatal(refusal)
			}
			i.publish(after)
			time.Sleep(11 * time.Second)
			if _, refusal := g.bearer(t, after.sign(t, i.claims())); refusal != nil {
				t.Errorf("%q: the new key: %v", id, refusal)
			}
			if _, refusal := g.bearer(t, before.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
				t.Errorf("%q: the old key: got %v", id, refusal)
			}
			// Forged tokens ask no oftener than those with unknown keys.
			asked, _ := i.counts()
			for range 100 {
				var calls sync.WaitGroup
				for range 4 {
					calls.Go(func() {
						if _, refusal := g.bearer(t, forged.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
							t.Errorf("%q: forged: got %v", id, refusal)
						}
					})
				}
				calls.Wait()
				time.Sleep(time.Second)
			}
			if now, _ := i.counts(); now-asked > 10 {
				t.Errorf("%q: 400 forged tokens in 100 s asked the issuer %d times; want once in 10 s", id, now-asked)
			}
			// And while the issuer is away, they are what they were.
			i.answers(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, 500) }, nil)
			time.Sleep(11 * time.Second)
			for range 3 {
				if _, refusal := g.bearer(t, forged.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
					t.Errorf("%q: forged, the issuer away: got %v", id, refusal)
				}
				if _, refusal := g.bearer(t, after.sign(t, i.claims())); refusal != nil {
					t.Errorf("%q: good, the issuer away: %v", id, refusal)
				}
			}
		})
	}
}

// Where thousands of tenants share an issuer, it has many keys. The one that a token
// names is found wherever it stands.
func TestAnIssuerWithManyKeys(t *testing.T) {
	last := es256(t, "last")
	i := startIssuer(t)
	other := es256(t, "x").jwk()
	for n := range 4000 {
		other.KeyID = fmt.Sprint(n)
		i.published = append(i.published, other)
	}
	i.published = append(i.published, last.jwk())
	g := newGate(t, i, nil)
	if _, refusal := g.bearer(t, last.sign(t, i.claims())); refusal != nil {
		t.Errorf("the last of 4001 keys: %v", refusal)
	}
	// Without an id, so many are not tried.
	unnamed := signer{"", last.algorithm, last.private}
	if _, refusal := g.bearer(t, unnamed.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
		t.Errorf("a token without an id: got %v", refusal)
	}
}
