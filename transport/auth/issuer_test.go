package auth_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/freeport"
	"tollgate/transport/auth"
)

func TestANewKeyIsAcceptedAndAWithdrawnOneRefused(t *testing.T) {
	before, after := es256(t, "old"), es256(t, "new")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(before)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		if _, refusal := g.bearer(t, before.sign(t, i.claims())); refusal != nil {
			t.Fatal(refusal)
		}
		i.publish(after)
		time.Sleep(time.Minute)
		if _, refusal := g.bearer(t, before.sign(t, i.claims())); refusal != nil {
			t.Errorf("a key withdrawn a minute ago, of which nobody has heard: %v", refusal)
		}
		if _, refusal := g.bearer(t, after.sign(t, i.claims())); refusal != nil {
			t.Errorf("a new key: %v", refusal)
		}
		if _, refusal := g.bearer(t, before.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
			t.Errorf("the old key, now known to be withdrawn: got %v", refusal)
		}
	})
}

func TestAWithdrawnKeyIsForgottenWithoutANewOne(t *testing.T) {
	stays, goes := es256(t, "stays"), es256(t, "goes")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(stays, goes)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		if _, refusal := g.bearer(t, goes.sign(t, i.claims())); refusal != nil {
			t.Fatal(refusal)
		}
		i.publish(stays)
		time.Sleep(5 * time.Minute)
		if _, refusal := g.bearer(t, goes.sign(t, i.claims())); refusal == nil || refusal.Reason != auth.TokenSignature {
			t.Errorf("after five minutes: got %v", refusal)
		}
	})
}

// Anybody can send tokens that name a key nobody has. The issuer must not notice.
func TestUnknownKeysAreNoLoadOnTheIssuer(t *testing.T) {
	key, unknown := es256(t, "k1"), es256(t, "unknown")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(key)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		for range 300 {
			var calls sync.WaitGroup
			for n := range 4 {
				token := signer{fmt.Sprint(n), unknown.algorithm, unknown.private}.sign(t, i.claims())
				calls.Go(func() {
					if _, refusal := g.bearer(t, token); refusal == nil || refusal.Reason != auth.TokenSignature {
						t.Errorf("got %v", refusal)
					}
				})
			}
			calls.Wait()
			time.Sleep(time.Second)
		}
		if asked, fetched := i.counts(); asked > 31 || fetched > 31 || asked < 5 {
			t.Errorf("1200 tokens in 300 s asked the issuer %d and %d times; want once in 10 s", asked, fetched)
		}
	})
}

// An issuer that comes and goes fills no log.
func TestAnIssuerThatFlaps(t *testing.T) {
	key, unknown := es256(t, "k1"), es256(t, "unknown")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(key)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		down := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, 500) })
		for n := range 60 { // in 11 minutes
			if n%2 == 0 {
				i.answers(down, nil)
			} else {
				i.answers(nil, nil)
				i.publish(key)
			}
			g.bearer(t, unknown.sign(t, i.claims())) // a key nobody knows has the issuer asked
			time.Sleep(11 * time.Second)
		}
		begun, ended := strings.Count(g.log.String(), "level=WARN"), strings.Count(g.log.String(), "level=INFO")
		if begun < 5 || begun > 12 || ended > begun {
			t.Errorf("%d warnings and %d ends in 11 minutes, want one a minute at most", begun, ended)
		}
	})
}

func TestAnIssuerThatIsAwayIsAskedSeldom(t *testing.T) {
	key := es256(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		down := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, 500) })
		i.answers(down, nil)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		token := key.sign(t, i.claims("exp", time.Now().Add(time.Hour).Unix()))
		for range 600 {
			if _, refusal := g.bearer(t, token); refusal == nil || refusal.Status != 503 || refusal.Reason != auth.IssuerUnavailable {
				t.Fatalf("got %v, want 503", refusal)
			}
			time.Sleep(500 * time.Millisecond)
		}
		// 1, 2, 4, 8, 16, then every 30 s
		if asked, _ := i.counts(); asked < 10 || asked > 16 {
			t.Errorf("asked %d times in 300 s", asked)
		}
		if n := strings.Count(g.log.String(), "level=WARN"); n < 2 || n > 6 {
			t.Errorf("%d warnings in 300 s, want one a minute at most:\n%s", n, g.log)
		}
		i.answers(nil, nil)
		i.publish(key)
		time.Sleep(30 * time.Second)
		if _, refusal := g.bearer(t, token); refusal != nil {
			t.Errorf("the issuer is back: %v", refusal)
		}
		if !strings.Contains(g.log.String(), `level=INFO msg="the OAuth issuer gives keys again"`) {
			t.Errorf("nobody says so:\n%s", g.log)
		}
	})
}

// While the issuer hangs, callers whose keys are known go on. Only who finds out pays
// for it.
func TestKnownKeysOutliveTheIssuer(t *testing.T) {
	key, unknown := es256(t, "k1"), es256(t, "k2")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(key)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		token := func(s signer) string { return s.sign(t, i.claims("exp", time.Now().Add(time.Hour).Unix())) }
		if _, refusal := g.bearer(t, token(key)); refusal != nil {
			t.Fatal(refusal)
		}
		i.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
		start, waits := time.Now(), 0
		for time.Since(start) < 59*time.Minute {
			var calls sync.WaitGroup
			var mu sync.Mutex
			waited := 0
			for range 3 {
				token := token(key)
				calls.Go(func() {
					before := time.Now()
					if _, refusal := g.bearer(t, token); refusal != nil {
						t.Errorf("after %v: %v", time.Since(start), refusal)
					}
					if time.Since(before) > 0 {
						mu.Lock()
						defer mu.Unlock()
						waited++
					}
				})
			}
			calls.Wait()
			if waited > 1 {
				waits++
			}
			time.Sleep(10 * time.Second)
		}
		if waits > 1 {
			t.Errorf("all callers waited for a hanging issuer %d times, want once", waits)
		}
		if _, refusal := g.bearer(t, token(unknown)); refusal == nil || refusal.Status != 503 {
			t.Errorf("a key nobody knows, and nobody to ask: got %v, want 503", refusal)
		}
		time.Sleep(2 * time.Minute)
		if _, refusal := g.bearer(t, token(key)); refusal == nil || refusal.Status != 503 {
			t.Errorf("after an hour: got %v, want 503", refusal)
		}
	})
}

// Who asks for all may leave; the others get their answer.
func TestACallerWhoLeavesTakesNobodyAlong(t *testing.T) {
	key := es256(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(key)
		go1, answer := make(chan struct{}), writes(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"})
		i.answers(func(w http.ResponseWriter, r *http.Request) { <-go1; answer(w, r) }, nil)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		token := key.sign(t, i.claims())
		leader, leave := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() {
			_, _ = g.Authenticate(request("Authorization", "Bearer "+token).WithContext(leader), "claims")
		})
		synctest.Wait()
		calls.Go(func() {
			if _, refusal := g.bearer(t, token); refusal != nil {
				t.Errorf("who stays: %v", refusal)
			}
		})
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Authenticate(request("Authorization", "Bearer "+token).WithContext(impatient), "claims"); err == nil {
			t.Error("who waits for a second only: want a refusal")
		}
		leave()
		synctest.Wait()
		close(go1)
		calls.Wait()
		if asked, _ := i.counts(); asked != 1 {
			t.Errorf("asked %d times, want once for all", asked)
		}
	})
}

func TestAnIssuerThatAnswersWrongly(t *testing.T) {
	key := es256(t, "k1")
	elsewhere := startIssuer(t, key)
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.url+to+"?"+canary, http.StatusFound)
		}
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		for range 300 {
			fmt.Fprint(w, strings.Repeat(canary, 1000))
		}
	}
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, test := range map[string]struct {
		discovery, jwks http.HandlerFunc
		kind            string
	}{
		"discovery: error":               {text(500, canary), nil, "status status=500"},
		"discovery: not found":           {text(404, canary), nil, "status status=404"},
		"discovery: redirect":            {redirect("/.well-known/openid-configuration"), nil, "redirect status=302"},
		"discovery: huge":                {huge, nil, "too_large"},
		"discovery: hangs up":            {breaks, nil, "unreachable"},
		"discovery: a web page":          {text(200, "<html>"+canary), nil, "not_metadata"},
		"discovery: empty":               {text(200, ""), nil, "not_metadata"},
		"discovery: another issuer":      {writes(map[string]any{"issuer": "https://login.example/", "jwks_uri": elsewhere.url + "/keys"}), nil, "another_issuer documentIssuer=https://login.example/"},
		"discovery: no address":          {writes(map[string]any{"issuer": "https://u:" + canary + "@login.example"}), nil, "another_issuer knownKeys"},
		"discovery: no issuer":           {text(200, "{}"), nil, "another_issuer"},
		"keys: error":                    {nil, text(503, canary), "status status=503"},
		"keys: redirect":                 {nil, redirect("/keys"), "redirect status=302"},
		"keys: huge":                     {nil, huge, "too_large"},
		"keys: hang up":                  {nil, breaks, "unreachable"},
		"keys: a web page":               {nil, text(200, "<html>"+canary), "not_keys"},
		"keys: no list":                  {nil, text(200, `{"keys":"`+canary+`"}`), "not_keys"},
		"keys: none":                     {nil, text(200, `{"keys":[]}`), "no_usable_key"},
		"keys: of a kind nobody has yet": {nil, text(200, `{"keys":[{"kty":"`+canary+`"}]}`), "no_usable_key"},
	} {
		t.Run(name, func(t *testing.T) {
			i := startIssuer(t, key)
			i.answers(test.discovery, test.jwks)
			wantUnavailable(t, i, key, test.kind)
		})
	}
	for name, address := range map[string]string{
		"none": "", "relative": "/keys", "a file": "file:///etc/" + canary, "a host of another machine, in clear": "http://" + canary + ".example/keys",
		"with credentials": "http://u:" + canary + "@127.0.0.1/keys", "a line": "http://127.0.0.1/\n" + canary, "long": "https://h/" + strings.Repeat("k", 2000),
	} {
		t.Run("address of the keys: "+name, func(t *testing.T) {
			i := startIssuer(t, key)
			i.answers(writes(map[string]any{"issuer": i.url, "jwks_uri": address}), nil)
			wantUnavailable(t, i, key, "not_metadata")
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		nobody, err := freeport.Addr()
		if err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, &issuer{url: "http://" + nobody}, key, "unreachable")
	})
	if asked, fetched := elsewhere.counts(); asked+fetched != 0 {
		t.Errorf("a redirect was followed")
	}
}

func wantUnavailable(t *testing.T, i *issuer, key signer, kind string) {
	t.Helper()
	g := newGate(t, i, nil)
	_, refusal := g.bearer(t, key.sign(t, i.claims("x", canary)))
	if refusal == nil || refusal.Status != 503 || refusal.Reason != auth.IssuerUnavailable || refusal.WWWAuthenticate != "" {
		t.Errorf("got %+v, want 503 without a challenge", refusal)
	}
	if !strings.Contains(g.log.String(), `msg="the OAuth issuer gives no keys to check access tokens with" kind=`+kind) {
		t.Errorf("the log does not name the kind %s:\n%s", kind, g.log)
	}
	if strings.Contains(g.log.String(), i.url) {
		t.Errorf("the log repeats an address:\n%s", g.log)
	}
}

// Keys of an issuer on the network come over TLS, whatever its document says.
func TestKeysOverPlainHTTPAreNotTaken(t *testing.T) {
	key := es256(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://login.example"}
		i.publish(key)
		i.answers(writes(map[string]any{"issuer": i.url, "jwks_uri": "http://login.example/keys"}), nil)
		g := newGate(t, i, func(o *auth.Options) { o.Transport = i })
		if _, refusal := g.bearer(t, key.sign(t, i.claims())); refusal == nil || refusal.Status != 503 {
			t.Errorf("got %v, want 503", refusal)
		}
	})
}

// Nothing asks the issuer before a token needs it, and nothing that is no token does.
func TestTheIssuerIsNotAskedWithoutNeed(t *testing.T) {
	i := startIssuer(t, es256(t, "k1"))
	g := newGate(t, i, nil)
	for _, token := range []string{"", "tg_" + canary, canary, "a.b.c", "a.b.c.d.e", strings.Repeat("a", 20000) + ".b.c",
		forge(`{"alg":"HS256","kid":"x"}`, []byte(`{}`), func([]byte) []byte { return []byte("x") })} {
		if _, refusal := g.bearer(t, token); refusal == nil || refusal.Status != 401 {
			t.Errorf("%.20s: got %v", token, refusal)
		}
	}
	if asked, fetched := i.counts(); asked+fetched != 0 {
		t.Errorf("the issuer was asked %d times", asked+fetched)
	}
}
