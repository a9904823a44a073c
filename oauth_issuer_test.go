package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// until asks again until an answer has the status, and returns it. The pauses are
// between two tries; what is waited for is up to the gateway.
func until(t testing.TB, status int, ask func() answer) (a answer) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if a = ask(); a.status == status {
			return a
		} else if time.Now().After(late) {
			t.Fatalf("status %d, %s, want at last %d", a.status, a.body, status)
		}
	}
}

// TestTheIssuerChangesItsKey: a new key is found without a restart, and one that is
// gone is good for nothing. While the issuer is away, known keys go on.
func TestTheIssuerChangesItsKey(t *testing.T) {
	t.Parallel() // it waits for the gateway to ask the issuer again
	one, two, three := rsaIssuerKey(t, "2026-01"), ecIssuerKey(t, "2026-02"), rsaIssuerKey(t, "2026-03")
	issuer := startAuthServer(t, one)
	g := guarded(t, requires("", issuer.issuer()))
	plant := resourceOf("plant")
	ask := func(token tokens) answer { return g.list(t, true, "plant", bearer(token.Access)...) }

	ofOne := issuer.token(t, plant)
	ask(ofOne).wantGood(t)

	issuer.rotate(two, one, two)
	ofTwo := issuer.token(t, plant)
	until(t, 200, func() answer { return ask(ofTwo) }).wantGood(t)
	ask(ofOne).wantGood(t) // still published

	issuer.rotate(three, three)
	ofThree := issuer.token(t, plant)
	until(t, 200, func() answer { return ask(ofThree) }).wantGood(t)
	for _, old := range []tokens{ofOne, ofTwo} {
		ask(old).wantRefused(t, 401, 401, "token_signature", invalidToken("plant"))
	}

	issuer.rotate(one, three, one)
	ofOne = issuer.token(t, plant)
	issuer.stop()
	ask(ofThree).wantGood(t)
	// Whether the issuer has a new key cannot be known now: that is no 401, with
	// which a client would throw its token away.
	a := until(t, 503, func() answer { return ask(ofOne) })
	wantIssuerAway(t, a)
	ask(ofThree).wantGood(t)
	issuer.start()
	until(t, 200, func() answer { return ask(ofOne) }).wantGood(t)
	if lines := g.warnings("OAuth issuer"); len(lines) != 1 {
		t.Errorf("the log warns %d times: %q", len(lines), lines)
	}
	g.stderr.await(t, g.exited, "the OAuth issuer gives keys again")
}

// TestTheIssuerIsAwayAtTheStart: the gateway starts, says that it cannot know, and
// recovers by itself. API keys do not care.
func TestTheIssuerIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	token := issuer.token(t, resourceOf("plant"))
	issuer.stop()
	file, keys := apiKeys(t, apiKeyEntry("ci"))
	g := guarded(t, requires(file, issuer.issuer()))

	g.wantIssuer(t, `{"status":"UNKNOWN"}`, "")
	for _, modern := range []bool{true, false} {
		wantIssuerAway(t, g.list(t, modern, "plant", bearer(token.Access)...))
		g.list(t, modern, "plant", bearer(keys["ci"])...).wantGood(t)
		g.list(t, modern, "plant").wantRefused(t, 401, 401, "unauthenticated", challengeOf("plant"))
	}
	if a := g.management(t, http.MethodGet, "/actuator/health/readiness"); a.status != 200 {
		t.Errorf("not ready, although most callers can be served: %d, %s", a.status, a.body)
	}
	g.wantIssuer(t, `"status":"DOWN"`, "0")
	g.wantIssuer(t, `"kind":"unreachable"`, "0")
	if n := g.refusals(t)["issuer_unavailable"]; n != 2 {
		t.Errorf("%d refusals are counted, want 2", n)
	}
	issuer.start()
	until(t, 200, func() answer { return g.list(t, true, "plant", bearer(token.Access)...) }).wantGood(t)
	g.wantIssuer(t, `{"status":"UP","since":"`, "1")
	if log := g.stderr.text(); strings.Contains(log, token.Access[:20]) || strings.Contains(log, keys["ci"][:12]) {
		t.Error("the log shows a credential")
	}
}

// TestTheIssuerNeedsNoMentionAmongAllowedHosts: it has been named already. Keys that
// are somewhere else have not, and the log says that this is why.
func TestTheIssuerNeedsNoMentionAmongAllowedHosts(t *testing.T) {
	for name, test := range map[string]struct {
		host, keysHost string
		allowed        string
		blocked        bool
	}{
		"the issuer":                 {"localhost", "localhost", "tools.example", false},
		"keys elsewhere":             {"127.0.0.1", "localhost", "tools.example", true},
		"keys elsewhere, as allowed": {"127.0.0.1", "localhost", "tools.example, localhost", false},
		"keys elsewhere, if any may": {"127.0.0.1", "localhost", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
			issuer.host, issuer.keysHost = test.host, test.keysHost
			g := guarded(t, requires("", issuer.issuer()), "upstream: {allowedHosts: ["+test.allowed+"]}")
			a := g.list(t, true, "plant", bearer(issuer.token(t, resourceOf("plant")).Access)...)
			if !test.blocked {
				a.wantGood(t)
				return
			}
			wantIssuerAway(t, a)
			if lines := g.warnings("OAuth issuer"); len(lines) != 1 || !strings.Contains(lines[0], `"kind":"blocked"`) {
				t.Errorf("the log warns %q", lines)
			}
		})
	}
}

// TestTheIssuersCertificateIsChecked: against the roots the operator gives.
func TestTheIssuersCertificateIsChecked(t *testing.T) {
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	caFile := issuer.overTLS()
	token := issuer.signs.sign(t, issuer.claims(resourceOf("plant")))
	known := guarded(t, requires("", issuer.issuer()), fmt.Sprintf("upstream: {caFile: %q}", caFile))
	known.list(t, true, "plant", bearer(token)...).wantGood(t)
	unknown := guarded(t, requires("", issuer.issuer()))
	wantIssuerAway(t, unknown.list(t, true, "plant", bearer(token)...))
	if lines := unknown.warnings("OAuth issuer"); len(lines) != 1 || !strings.Contains(lines[0], `"kind":"unreachable"`) {
		t.Errorf("the log warns %q", lines)
	}
}

// wantIssuerAway checks the answer to a token that cannot be judged now.
func wantIssuerAway(t testing.TB, a answer) {
	t.Helper()
	a.wantRefused(t, 503, -32603, "issuer_unavailable", "")
	if got := a.header.Get("Retry-After"); got != "5" {
		t.Errorf("Retry-After is %q", got)
	}
}

// wantIssuer checks what operators see of the issuer: part of the component of health,
// and the gauge, "" for none.
func (g *gateway) wantIssuer(t testing.TB, component, gauge string) {
	t.Helper()
	var health struct {
		Components struct {
			Issuer json.RawMessage `json:"issuer"`
		} `json:"components"`
	}
	if a := g.management(t, http.MethodGet, "/actuator/health"); json.Unmarshal([]byte(a.body), &health) != nil || !strings.Contains(string(health.Components.Issuer), component) {
		t.Errorf("health has %s, want %s", a.body, component)
	}
	found := regexp.MustCompile(`(?m)^tollgate_issuer_up (\d)$`).FindStringSubmatch(g.management(t, http.MethodGet, "/metrics").body)
	if got := strings.Join(found[min(1, len(found)):], ""); got != gauge {
		t.Errorf("the gauge is %q, want %q", got, gauge)
	}
}

// TestAWrongIssuerIsSeen: a misspelt issuer is known before a rollout, and each token it
// makes unusable is told apart from an outage in the log.
func TestAWrongIssuerIsSeen(t *testing.T) {
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	right := issuer.issuer()
	for name, test := range map[string]struct {
		issuer string
		want   string // in what check prints; "" is no fault
		logged []string
	}{
		"right":          {right, "", nil},
		"misspelt":       {right + "x", "status: answered with HTTP status 404", []string{`"kind":"status"`, `"status":404`}},
		"slash":          {right + "/", "another_issuer: the discovery document is that of " + right + ",", []string{`"kind":"another_issuer"`, `"documentIssuer":"` + right + `"`}},
		"nobody is here": {"http://127.0.0.1:1", "unreachable: no connection", []string{`"kind":"unreachable"`}},
	} {
		t.Run(name, func(t *testing.T) {
			config := guardedConfig(t, requires("", test.issuer))
			o := tollgate(t, "check", "--live", "--fixtures", "--config", config)
			const line = "ERROR issuer - gives no keys to check access tokens with: "
			switch {
			case test.want == "" && (o.code != 0 || strings.Contains(o.stdout, "issuer")):
				t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
			case test.want != "" && (o.code != exitFailed || !strings.Contains(o.stdout, line+test.want)):
				t.Errorf("exit code %d, want %q\n%s%s", o.code, line+test.want, o.stdout, o.stderr)
			}
			if test.want == "" {
				return
			}
			g := guarded(t, requires("", test.issuer))
			wantIssuerAway(t, g.list(t, true, "plant", bearer(issuer.signs.sign(t, issuer.claims(resourceOf("plant"))))...))
			warning := g.stderr.await(t, g.exited, "the OAuth issuer gives no keys")
			for _, part := range test.logged {
				if !strings.Contains(warning, part) {
					t.Errorf("the log warns %q, want %q", warning, part)
				}
			}
			if strings.Contains(warning, `"status":`) != (name == "misspelt") {
				t.Errorf("a status that is none: %s", warning)
			}
		})
	}
}

// TestARefusalCanBeLookedInto: the log says of each what the gateway wanted, and nothing
// of what came. A route that does not exist is whatever the caller has written.
func TestARefusalCanBeLookedInto(t *testing.T) {
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	g := guarded(t, requires("", issuer.issuer()))
	token := issuer.signs.sign(t, issuer.claims(resourceOf("lab")))
	g.list(t, true, "plant", bearer(token)...).wantRefused(t, 401, 401, "token_audience", invalidToken("plant"))
	g.list(t, true, "tg_mistaken", bearer(token)...)
	g.stderr.await(t, g.exited, `"msg":"caller not let in","reason":"token_audience","route":"plant","audience":"`+resourceOf("plant")+`"`)
	g.stderr.await(t, g.exited, `"msg":"caller not let in","reason":"token_audience"}`)
	if log := g.stderr.text(); strings.Contains(log, token[:20]) || strings.Contains(log, "tg_mistaken") || strings.Contains(log, resourceOf("lab")) {
		t.Error("the log shows what the caller has sent")
	}
}
