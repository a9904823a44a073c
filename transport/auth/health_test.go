package auth_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/transport/auth"
)

// TestCheckIssuer: a wrong setting is told without a token, with the kind the log has,
// and nothing the issuer has said but an address that it gives itself.
func TestCheckIssuer(t *testing.T) {
	key := es256(t, "k1")
	answers := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "https://"+canary+".example")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, test := range map[string]struct {
		discovery, jwks http.HandlerFunc
		want            string // the beginning of the error
	}{
		"good":                  {nil, nil, ""},
		"not there":             {answers(404, canary), nil, "status: answered with HTTP status 404"},
		"elsewhere":             {answers(302, canary), nil, "redirect: answered with HTTP status 302"},
		"a page":                {answers(200, "<html>"+canary), nil, "not_metadata: "},
		"another's":             {answers(200, `{"issuer":"https://login.example/"}`), nil, "another_issuer: the discovery document is that of https://login.example/, "},
		"of no address":         {answers(200, `{"issuer":"`+canary+` \u0007"}`), nil, "another_issuer: the discovery document is that of another issuer, "},
		"of one with a secret":  {answers(200, `{"issuer":"https://u:`+canary+`@login.example"}`), nil, "another_issuer: the discovery document is that of another issuer, "},
		"keys that are none":    {nil, answers(200, `{"x":"`+canary+`"}`), "not_keys: "},
		"keys that do not sign": {nil, answers(200, `{"keys":[]}`), "no_usable_key: "},
		"too much":              {nil, answers(200, strings.Repeat(" ", 2<<20)), "too_large: "},
	} {
		t.Run(name, func(t *testing.T) {
			i := startIssuer(t, key)
			i.answers(test.discovery, test.jwks)
			g := newGate(t, i, nil)
			err := g.CheckIssuer(t.Context())
			got := ""
			if err != nil {
				got = err.Error()
			}
			if (test.want == "") != (got == "") || !strings.HasPrefix(got, test.want) || strings.Contains(got, canary) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if status, ok := g.IssuerStatus(); !ok || status != (auth.IssuerStatus{}) {
				t.Errorf("a check has left %+v", status)
			}
		})
	}
}

func TestCheckIssuerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		start := time.Now()
		if err := g.CheckIssuer(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "timeout: ") || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// TestIssuerStatus: it changes with what questions come to, and since is when it last
// did.
func TestIssuerStatus(t *testing.T) {
	key := es256(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		down := func(status int) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		}
		want := func(want auth.IssuerStatus) {
			t.Helper()
			if got, ok := g.IssuerStatus(); !ok || got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		token := key.sign(t, i.claims("exp", time.Now().Add(time.Hour).Unix()))
		want(auth.IssuerStatus{})

		i.answers(down(503), nil)
		since := time.Now()
		g.bearer(t, token)
		want(auth.IssuerStatus{Asked: true, Since: since, Kind: "status"})
		time.Sleep(time.Minute)
		i.answers(writes(map[string]any{"issuer": "https://login.example/"}), nil)
		g.bearer(t, token)
		want(auth.IssuerStatus{Asked: true, Since: since, Kind: "another_issuer"})

		time.Sleep(time.Minute)
		i.answers(nil, nil)
		i.publish(key)
		since = time.Now()
		g.bearer(t, token)
		want(auth.IssuerStatus{Asked: true, Up: true, Since: since})
		time.Sleep(6 * time.Minute) // it is asked again
		g.bearer(t, token)
		want(auth.IssuerStatus{Asked: true, Up: true, Since: since})
	})
	if a, err := auth.New(auth.Options{Config: auth.DefaultConfig()}); err != nil {
		t.Error(err)
	} else if _, ok := a.IssuerStatus(); ok || a.CheckIssuer(t.Context()) != nil {
		t.Error("there is an issuer, although none is configured")
	}
}

// TestWhoShowsNothingIsToldWhatToShow: and not what this gateway would not take.
func TestWhoShowsNothingIsToldWhatToShow(t *testing.T) {
	for name, test := range map[string]struct {
		keysFile, issuer string
		key, token       bool // what is offered
	}{
		"keys":   {"keys.yaml", "", true, false},
		"tokens": {"", "https://login.example", false, true},
		"both":   {"keys.yaml", "https://login.example", true, true},
	} {
		c := auth.DefaultConfig()
		c.Mode, c.PublicURL, c.KeysFile, c.OAuth.Issuer = auth.Required, publicURL, test.keysFile, test.issuer
		a, err := auth.New(auth.Options{Config: c})
		if err != nil {
			t.Fatal(err)
		}
		_, overHTTP := a.Authenticate(request(), "claims")
		_, without := a.AuthenticateKey("", "claims")
		for _, err := range []error{overHTTP, without} {
			if text := err.Error(); strings.Contains(text, "API key") != test.key || strings.Contains(text, "x-api-key") != test.key || strings.Contains(text, "access token") != test.token {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}
