package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"

	"tollgate/transport/auth"
)

// makeKey makes an API key and its entry.
func makeKey(t testing.TB, id string, change func(*auth.Key)) (string, auth.Key) {
	t.Helper()
	key, hash := auth.NewKey()
	entry := auth.Key{ID: id, SHA256: hash}
	if change != nil {
		change(&entry)
	}
	return key, entry
}

// with gives a gate API keys.
func (g gate) with(keys ...auth.Key) gate {
	g.SetKeys(keys)
	return g
}

// newKeyGate makes one that accepts API keys only.
func newKeyGate(t testing.TB, keys ...auth.Key) gate {
	t.Helper()
	g := newGate(t, &issuer{}, func(o *auth.Options) { o.Config.KeysFile, o.Config.OAuth.Issuer = "keys.yaml", "" })
	return g.with(keys...)
}

func TestNewKey(t *testing.T) {
	key, hash := auth.NewKey()
	sum := sha256.Sum256([]byte(key))
	if !strings.HasPrefix(key, "tg_") || len(key) < 43 || hash != hex.EncodeToString(sum[:]) {
		t.Errorf("got %s with %s", key, hash)
	}
	if other, _ := auth.NewKey(); other == key {
		t.Error("two keys are the same")
	}
}

func TestAPIKeys(t *testing.T) {
	bulk, bulkEntry := makeKey(t, "42", func(k *auth.Key) { k.Tier, k.User = "bulk", "u-7" })
	plain, plainEntry := makeKey(t, "ci", func(k *auth.Key) { k.SHA256 = strings.ToUpper(k.SHA256) })
	limited, limitedEntry := makeKey(t, "limited", func(k *auth.Key) { k.Routes = []string{"lookup"} })
	nobody, _ := makeKey(t, "gone", nil)
	g := newKeyGate(t, bulkEntry, plainEntry, limitedEntry)

	for name, test := range map[string]struct {
		headers []string
		route   string
		want    auth.Caller
	}{
		"bearer":                    {[]string{"Authorization", "Bearer " + bulk}, "claims", auth.Caller{Principal: "key:42", User: "u-7", Tier: "bulk"}},
		"x-api-key":                 {[]string{"x-api-key", bulk}, "claims", auth.Caller{Principal: "key:42", User: "u-7", Tier: "bulk"}},
		"both, equal":               {[]string{"x-api-key", bulk, "Authorization", "Bearer " + bulk}, "claims", auth.Caller{Principal: "key:42", User: "u-7", Tier: "bulk"}},
		"no tier":                   {[]string{"Authorization", "bearer " + plain}, "claims", auth.Caller{Principal: "key:ci"}},
		"limited, on its route":     {[]string{"x-api-key", limited}, "lookup", auth.Caller{Principal: "key:limited"}},
		"beside an empty other one": {[]string{"x-api-key", plain, "Authorization", ""}, "claims", auth.Caller{Principal: "key:ci"}},
		"beside an empty token":     {[]string{"x-api-key", plain, "Authorization", "Bearer "}, "claims", auth.Caller{Principal: "key:ci"}},
		"beside an empty x-api-key": {[]string{"x-api-key", "", "Authorization", "Bearer " + plain}, "claims", auth.Caller{Principal: "key:ci"}},
	} {
		if got, refusal := g.call(t, request(test.headers...), test.route); refusal != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, refusal, test.want)
		}
	}

	for name, test := range map[string]struct {
		headers   []string
		want      auth.Reason
		status    int
		challenge string
	}{
		"nothing":                  {nil, auth.Unauthenticated, 401, "Bearer"},
		"empty":                    {[]string{"Authorization", "", "x-api-key", ""}, auth.Unauthenticated, 401, "Bearer"},
		"no token":                 {[]string{"Authorization", "Bearer"}, auth.Unauthenticated, 401, "Bearer"},
		"another scheme":           {[]string{"Authorization", "Basic " + canary}, auth.Unauthenticated, 401, "Bearer"},
		"the key without scheme":   {[]string{"Authorization", bulk}, auth.Unauthenticated, 401, "Bearer"},
		"a scheme beside a key":    {[]string{"Authorization", "Basic " + canary, "x-api-key", bulk}, auth.Unauthenticated, 401, "Bearer"},
		"a key nobody has":         {[]string{"Authorization", "Bearer " + nobody}, auth.KeyNotValid, 401, `Bearer error="invalid_token"`},
		"the same in x-api-key":    {[]string{"x-api-key", nobody}, auth.KeyNotValid, 401, "Bearer"},
		"one character less":       {[]string{"x-api-key", bulk[:len(bulk)-1]}, auth.KeyNotValid, 401, "Bearer"},
		"in another case":          {[]string{"x-api-key", strings.ToUpper(bulk)}, auth.KeyNotValid, 401, "Bearer"},
		"the hash":                 {[]string{"x-api-key", bulkEntry.SHA256}, auth.KeyNotValid, 401, "Bearer"},
		"the prefix":               {[]string{"x-api-key", "tg_"}, auth.KeyNotValid, 401, "Bearer"},
		"huge":                     {[]string{"x-api-key", "tg_" + strings.Repeat(canary, 10000)}, auth.KeyNotValid, 401, "Bearer"},
		"a token, without OAuth":   {[]string{"Authorization", "Bearer a." + canary + ".c"}, auth.KeyNotValid, 401, `Bearer error="invalid_token"`},
		"two that differ":          {[]string{"Authorization", "Bearer " + bulk, "x-api-key", plain}, auth.CredentialsAmbiguous, 400, `Bearer error="invalid_request"`},
		"one good, one bad":        {[]string{"Authorization", "Bearer " + bulk, "x-api-key", canary}, auth.CredentialsAmbiguous, 400, `Bearer error="invalid_request"`},
		"two Authorization lines":  {[]string{"Authorization", "Bearer " + bulk, "Authorization", "Bearer " + bulk}, auth.CredentialsAmbiguous, 400, `Bearer error="invalid_request"`},
		"two x-api-key lines":      {[]string{"x-api-key", bulk, "x-api-key", bulk}, auth.CredentialsAmbiguous, 400, `Bearer error="invalid_request"`},
		"a route that is not its":  {[]string{"x-api-key", limited}, auth.RouteNotFound, 404, ""},
		"… as bearer token":        {[]string{"Authorization", "Bearer " + limited}, auth.RouteNotFound, 404, ""},
		"a trusted header instead": {[]string{"X-Forwarded-User", canary}, auth.Unauthenticated, 401, "Bearer"},
	} {
		_, refusal := g.call(t, request(test.headers...), "claims")
		if refusal == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if refusal.Reason != test.want || refusal.Status != test.status || refusal.WWWAuthenticate != test.challenge {
			t.Errorf("%s: got %d %s with %q, want %d %s with %q", name, refusal.Status, refusal.Reason, refusal.WWWAuthenticate, test.status, test.want, test.challenge)
		}
		if strings.Contains(refusal.Text, bulk) || strings.Contains(refusal.Text, nobody) {
			t.Errorf("%s: the key is shown: %s", name, refusal.Text)
		}
	}
}

// A hash in the file may be that of anything; what is no API key by its form is none,
// so that an access token can never be one.
func TestOnlyWhatLooksLikeAnAPIKeyIsOne(t *testing.T) {
	for _, secret := range []string{"password", "eyJhbGciOiJub25lIn0.e30.", "TG_" + strings.Repeat("x", 43), "tg_" + strings.Repeat("x", 254)} {
		sum := sha256.Sum256([]byte(secret))
		g := newKeyGate(t, auth.Key{ID: "a", SHA256: hex.EncodeToString(sum[:])})
		for _, r := range []*http.Request{request("x-api-key", secret), request("Authorization", "Bearer "+secret)} {
			if _, refusal := g.call(t, r, "claims"); refusal == nil || refusal.Reason != auth.KeyNotValid {
				t.Errorf("%.20s: got %v", secret, refusal)
			}
		}
	}
}

func TestSetKeysActsAtOnce(t *testing.T) {
	first, firstEntry := makeKey(t, "a", nil)
	second, secondEntry := makeKey(t, "b", nil)
	g := newKeyGate(t, firstEntry)
	if _, refusal := g.call(t, request("x-api-key", first), "claims"); refusal != nil {
		t.Fatal(refusal)
	}
	g.SetKeys([]auth.Key{secondEntry})
	if _, refusal := g.call(t, request("x-api-key", first), "claims"); refusal == nil || refusal.Reason != auth.KeyNotValid {
		t.Errorf("a revoked key: got %v", refusal)
	}
	if _, refusal := g.call(t, request("x-api-key", second), "claims"); refusal != nil {
		t.Errorf("a new key: %v", refusal)
	}
	secondEntry.Tier, secondEntry.Routes = "bulk", []string{"lookup"}
	g.SetKeys([]auth.Key{secondEntry})
	secondEntry.Routes[0] = "claims" // whoever has set them may use the list for something else
	if got, refusal := g.call(t, request("x-api-key", second), "lookup"); refusal != nil || got.Tier != "bulk" {
		t.Errorf("another tier: got %+v, %v", got, refusal)
	}
	g.SetKeys([]auth.Key{{ID: "broken", SHA256: "x"}, {ID: "none"}})
	if _, refusal := g.call(t, request("x-api-key", second), "lookup"); refusal == nil {
		t.Error("all keys are gone, and one is accepted")
	}
}

func TestAnAPIKeyBesidesOAuth(t *testing.T) {
	signs := es256(t, "k1")
	i := startIssuer(t, signs)
	key, entry := makeKey(t, "42", func(k *auth.Key) { k.Tier, k.Routes = "bulk", []string{"claims"} })
	g := newGate(t, i, func(o *auth.Options) { o.Config.KeysFile = "keys.yaml" }).with(entry)
	if got, refusal := g.bearer(t, key); refusal != nil || got.Principal != "key:42" || got.Tier != "bulk" {
		t.Errorf("an API key: got %+v, %v", got, refusal)
	}
	// A claim that looks like a key's id lifts nothing.
	if got, refusal := g.bearer(t, signs.sign(t, i.claims("sid", "42"))); refusal != nil || got.Principal != "oauth:42" || got.Tier != "" {
		t.Errorf("an access token: got %+v, %v", got, refusal)
	}
	const metadata = `resource_metadata="https://tools.example/.well-known/oauth-protected-resource/mcp/claims"`
	for want, headers := range map[string][]string{
		"Bearer " + metadata:                             nil,
		"Bearer " + metadata + `, error="invalid_token"`: {"Authorization", "Bearer tg_x"},
	} {
		if _, refusal := g.call(t, request(headers...), "claims"); refusal == nil || refusal.WWWAuthenticate != want {
			t.Errorf("got %+v, want %s", refusal, want)
		}
	}
	// x-api-key is for API keys.
	if _, refusal := g.call(t, request("x-api-key", signs.sign(t, i.claims())), "claims"); refusal == nil || refusal.Reason != auth.KeyNotValid {
		t.Errorf("an access token in x-api-key: got %v", refusal)
	}
	if _, refusal := g.call(t, request("Authorization", "Bearer "+key), "lookup"); refusal == nil || refusal.Status != 404 || refusal.WWWAuthenticate != "" {
		t.Errorf("a route the key may not use: got %+v", refusal)
	}
	// What is no routeKey has no resource, and must not get into a header.
	for _, route := range []string{"", ".", "..", "a/b", "a\"b", "a\r\nSet-Cookie: x", strings.Repeat("r", 65)} {
		if _, refusal := g.call(t, request(), route); refusal == nil || refusal.WWWAuthenticate != "Bearer" {
			t.Errorf("%q: got %+v", route, refusal)
		}
	}
}

func TestAuthenticateKey(t *testing.T) {
	key, entry := makeKey(t, "42", func(k *auth.Key) { k.Routes = []string{"claims"} })
	g := newKeyGate(t, entry)
	if got, err := g.AuthenticateKey(key, "claims"); err != nil || got.Principal != "key:42" {
		t.Errorf("got %+v, %v", got, err)
	}
	for reason, test := range map[auth.Reason][2]string{
		auth.Unauthenticated: {"", "claims"}, auth.KeyNotValid: {canary, "claims"}, auth.RouteNotFound: {key, "lookup"},
	} {
		_, err := g.AuthenticateKey(test[0], test[1])
		if refusal, ok := errors.AsType[*auth.Refusal](err); !ok || refusal.Reason != reason || strings.Contains(err.Error(), canary) {
			t.Errorf("got %v, want %s", err, reason)
		}
	}
	open, err := auth.New(auth.Options{Config: auth.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open.AuthenticateKey(key, "claims"); err != nil || got != (auth.Caller{Principal: "anonymous"}) {
		t.Errorf("with mode none: got %+v, %v", got, err)
	}
}

func TestModeNone(t *testing.T) {
	for name, test := range map[string]struct {
		header string
		send   []string
		want   string // "": refused
	}{
		"nobody asks":               {"", nil, "anonymous"},
		"nobody looks":              {"", []string{"X-User", "alice", "Authorization", "Bearer " + canary, "x-api-key", "tg_x"}, "anonymous"},
		"absent":                    {"x-user", nil, "anonymous"},
		"empty":                     {"x-user", []string{"X-User", ""}, "anonymous"},
		"a value":                   {"x-user", []string{"X-User", "alice@example"}, "proxy:alice@example"},
		"a value like an API key's": {"x-user", []string{"X-User", "key:42"}, "proxy:key:42"},
		"credentials as well":       {"x-user", []string{"X-User", "a", "Authorization", "Bearer " + canary}, "proxy:a"},
		"the longest":               {"x-user", []string{"X-User", strings.Repeat("u", 256)}, "proxy:" + strings.Repeat("u", 256)},
		"too long":                  {"x-user", []string{"X-User", strings.Repeat("u", 257)}, ""},
		"repeated":                  {"x-user", []string{"X-User", canary, "X-User", canary}, ""},
		"repeated, one empty":       {"x-user", []string{"X-User", "", "X-User", canary}, ""},
		"joined lines":              {"x-user", []string{"X-User", canary + ",alice"}, ""},
		"a blank":                   {"x-user", []string{"X-User", canary + " b"}, ""},
		"a tabulator":               {"x-user", []string{"X-User", canary + "\tb"}, ""},
		"beyond ASCII":              {"x-user", []string{"X-User", canary + "ü"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, &issuer{}, func(o *auth.Options) {
				o.Config = auth.DefaultConfig()
				o.Config.TrustedPrincipalHeader = test.header
			})
			got, refusal := g.call(t, request(test.send...), "claims")
			if test.want == "" {
				if refusal == nil || refusal.Status != 400 || refusal.Reason != auth.PrincipalNotValid {
					t.Errorf("got %+v, %v; want 400", got, refusal)
				}
			} else if want := (auth.Caller{Principal: test.want}); refusal != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, refusal, want)
			}
		})
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	if _, err := auth.New(auth.Options{}); err == nil {
		t.Error("an empty configuration is accepted")
	}
}

// FuzzAuthenticate sends any headers: nobody gets in with them, nothing comes back of
// them, and nothing breaks.
func FuzzAuthenticate(f *testing.F) {
	signs := es256(f, "k1")
	i := startIssuer(f, signs)
	_, entry := makeKey(f, "42", nil)
	required := newGate(f, i, func(o *auth.Options) { o.Config.KeysFile = "keys.yaml" }).with(entry)
	proxied := newGate(f, i, func(o *auth.Options) {
		o.Config = auth.DefaultConfig()
		o.Config.TrustedPrincipalHeader = "x-user"
	})
	token := signs.sign(f, i.claims("aud", "other"))
	header, rest, _ := strings.Cut(token, ".")
	for _, seed := range [][3]string{
		{"Bearer " + token, "", "claims"}, {"Bearer " + header + "." + rest[:20], "", "claims"}, {"Bearer tg_x", "tg_x", "a"}, {"Basic x", "y", ".."},
		{"Bearer eyJhbGciOiJub25lIn0.e30.", "", "x"}, {"bearer {\"payload\":\"\"}", "\x00", "\r\n"}, {"Bearer a.b.c.d.e", "ü", `"`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, authorization, key, route string) {
		r := request()
		r.Header = http.Header{"Authorization": {authorization}, "X-Api-Key": {key}, "X-User": {key}}
		caller, refusal := required.call(t, r, route)
		if refusal == nil {
			t.Errorf("accepted as %+v", caller)
		} else if long := strings.TrimPrefix(authorization, "Bearer "); len(long) > 20 && strings.Contains(refusal.Text, long) {
			t.Errorf("the refusal repeats the credential: %s", refusal.Text)
		}
		caller, refusal = proxied.call(t, r, route)
		if refusal == nil && caller.Principal != "anonymous" && caller.Principal != "proxy:"+key {
			t.Errorf("the proxy's %q became %+v", key, caller)
		}
	})
}
