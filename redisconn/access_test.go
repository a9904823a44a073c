package redisconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redistest"
)

// with puts user information in front of a server's address.
func with(server *redistest.Server, user string) string {
	return strings.Replace(server.URL(), "://", "://"+user+"@", 1)
}

func TestCredentials(t *testing.T) {
	const password = "ge/h@e:i?m #%"
	escaped := url.UserPassword("", password).String()[1:]
	locked := redistest.Start(t, "--requirepass", password)
	users := redistest.Start(t, "--user", "default", "off",
		"--user", "app", "on", ">"+strings.ReplaceAll(password, " ", "_"), "~tollgate:*", "+getrange", "+set", "+del", "+select",
		"--user", "reader", "on", ">geheim", "~tollgate:*", "+getrange",
		"--user", "stranger", "on", ">geheim", "~other:*", "+@all")
	app := "app:" + strings.ReplaceAll(escaped, "%20", "_")

	for _, test := range []struct {
		name, url string
		detail    string // of the auth failure; "" when it works
	}{
		{"password", with(locked, ":"+escaped), ""},
		{"password and database", with(locked, ":"+escaped) + "/1", ""},
		{"the default user by name", with(locked, "default:"+escaped), ""},
		{"no password", locked.URL(), "NOAUTH"},
		{"wrong password", with(locked, ":wrong"), "WRONGPASS"},
		{"user", with(users, app), ""},
		{"user and database", with(users, app) + "/1", ""},
		{"unknown user", with(users, "nobody:geheim"), "WRONGPASS"},
		{"user who may not write", with(users, "reader:geheim"), "NOPERM"},
		{"user of other keys", with(users, "stranger:geheim"), "NOPERM"},
		{"default user who is off", with(users, ":geheim"), "WRONGPASS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, _ := open(t, config(test.url))
			err := conn.Set(t.Context(), "a", []byte("1"))
			if test.detail == "" {
				if err == nil {
					err = conn.Ping(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustFail(t, err, KindAuth, test.detail)
			if err := conn.Ping(t.Context()); err == nil {
				t.Error("a ping did not fail")
			}
		})
	}
}

func TestIPv6(t *testing.T) {
	conn, _ := open(t, config(redistest.Start(t, "--bind", "::1").URL()))
	if err := conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	authority := newAuthority(t)
	caFile := write(t, dir, "ca.pem", "CERTIFICATE", authority.cert.Raw)
	otherCA := write(t, dir, "other.pem", "CERTIFICATE", newAuthority(t).cert.Raw)
	serve := func(name string, lifetime time.Duration) *redistest.Server {
		cert, key := authority.issue(t, dir, name, lifetime)
		return redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", caFile, "--tls-auth-clients", "no")
	}
	secure, expired, plain := serve("good", day), serve("expired", -day), redistest.Start(t)

	for _, test := range []struct {
		name, url, caFile string
		kind              Kind
		detail            string
	}{
		{name: "authority of caFile", url: secure.URL(), caFile: caFile},
		{name: "system's authorities only", url: secure.URL(), kind: KindTLS, detail: "certificate of an unknown authority"},
		{name: "another authority", url: secure.URL(), caFile: otherCA, kind: KindTLS, detail: "certificate of an unknown authority"},
		{name: "another name", url: strings.Replace(secure.URL(), "127.0.0.1", "localhost", 1), caFile: caFile,
			kind: KindTLS, detail: "certificate for another name"},
		{name: "expired", url: expired.URL(), caFile: caFile, kind: KindTLS, detail: "certificate expired or not yet valid"},
		// Redis takes the greeting for the beginning of a command and waits for the rest.
		{name: "a server without TLS", url: strings.Replace(plain.URL(), "redis", "rediss", 1), caFile: caFile, kind: KindTimeout},
		{name: "no TLS to a server with it", url: strings.Replace(secure.URL(), "rediss", "redis", 1), kind: KindConnect},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config(test.url)
			c.CAFile = test.caFile
			conn, _ := open(t, c)
			err := conn.Set(t.Context(), "a", []byte("1"))
			if test.kind == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustFail(t, err, test.kind, test.detail)
		})
	}

	t.Run("a server that hangs", func(t *testing.T) {
		c := config(secure.URL())
		c.CAFile = caFile
		conn, log := open(t, c)
		if err := conn.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		secure.Suspend()
		mustFail(t, conn.Ping(t.Context()), KindTimeout, "")
		secure.Resume()
		eventually(t, func() error { return conn.Ping(t.Context()) })
		if got := strings.Join(log.events(t), ", "); got != "WARN timeout, INFO" {
			t.Errorf("log: %s", got)
		}
	})
	t.Run("caFile without TLS", func(t *testing.T) {
		c := config(plain.URL())
		c.CAFile = caFile
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "redis.caFile") {
			t.Errorf("got %v, want an error about caFile", err)
		}
	})
}

// TestNothingSecret collects everything that is logged or returned when things
// go wrong in every way a stranger can make them.
func TestNothingSecret(t *testing.T) {
	const user, password = "sesame-user", "sesame/pass%word"
	escaped := url.UserPassword(user, password).String()
	website := httptest.NewServer(http.NotFoundHandler())
	defer website.Close()
	hung := redistest.Start(t)
	hung.Suspend()
	gone := redistest.Start(t)
	gone.Kill()
	echo := redistest.Start(t, "--user", user, "on", ">"+password, "~other:*", "+@all") // its replies name the user
	cluster := redistest.Start(t, "--cluster-enabled", "yes", "--user", user, "on", ">"+password, "~*", "+@all")
	parrot := listen(t, always("-WRONGPASS "+user+" "+password+"\r\n"))
	shouter := listen(t, always("-"+strings.ToUpper(user+" "+password)+"\r\n"))
	babbler := listen(t, always(user+password+"\r\n"))

	var seen strings.Builder
	tried := 0
	for _, scheme := range []string{"redis://", "rediss://"} {
		for _, address := range []string{hung.Addr(), gone.Addr(), echo.Addr(), cluster.Addr(), website.Listener.Addr().String(),
			parrot, shouter, babbler, "127.0.0.1:1/sesame", "127.0.0.1:sesame", "127.0.0.1:1?sesame=1", "127.0.0.1:1#sesame"} {
			for _, mode := range []string{"single", "sentinel", "cluster"} {
				c := config(scheme + escaped + "@" + address)
				if c.Mode = mode; mode == "sentinel" && !strings.Contains(address, "sesame") {
					c.URL += "?master_name=sesame&sentinel_username=" + user + "&sentinel_password=" + url.QueryEscape(password)
				}
				fmt.Fprintln(&seen, c.Validate())
				if c.Validate() != nil {
					continue
				}
				conn, log := open(t, c)
				tried++
				scripts, scriptLog := open(t, c)
				_, swapErr := scripts.Swap(t.Context(), "sesame", "sesame-1", []byte("sesame-2"), time.Hour)
				scripts.Close()
				seen.WriteString(scriptLog.String())
				for _, err := range []error{conn.Set(t.Context(), "a", []byte("1")), conn.Ping(t.Context()), swapErr} {
					if err == nil {
						t.Errorf("%s at %s: no failure", mode, address)
					}
					fmt.Fprintf(&seen, "%v %+v %#v\n", err, err, err)
				}
				fmt.Fprintf(&seen, "%+v\n", conn.State())
				conn.Close()
				seen.WriteString(log.String())
			}
		}
	}
	if strings.Contains(strings.ToLower(seen.String()), "sesame") {
		t.Errorf("something secret in:\n%s", &seen)
	}
	for _, address := range []string{hung.Addr(), gone.Addr(), parrot, "127.0.0.1"} {
		if strings.Contains(seen.String(), address) {
			t.Errorf("the address %s in:\n%s", address, &seen)
		}
	}
	if tried < 40 {
		t.Errorf("only %d set-ups were tried", tried)
	}
}

// always is an answer to everything.
func always(answer string) func() string { return func() string { return answer } }

// listen is a server that is no Redis: it answers each time something arrives.
func listen(t *testing.T, answer func() string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for buffer := make([]byte, 4096); ; {
					if _, err := conn.Read(buffer); err != nil {
						return
					}
					conn.Write([]byte(answer()))
				}
			}()
		}
	}()
	return l.Addr().String()
}

// certificate writes what a server at 127.0.0.1 and its client need for TLS.
func certificate(t *testing.T) (certFile, keyFile, caFile string) {
	t.Helper()
	dir := t.TempDir()
	a := newAuthority(t)
	certFile, keyFile = a.issue(t, dir, "server", time.Hour)
	return certFile, keyFile, write(t, dir, "ca.pem", "CERTIFICATE", a.cert.Raw)
}

// authority is a certificate authority for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(t, template)
	return a
}

// issue writes the certificate and key of a server at 127.0.0.1.
func (a authority) issue(t *testing.T, dir, name string, lifetime time.Duration) (certFile, keyFile string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, key := a.sign(t, template)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, dir, name+".pem", "CERTIFICATE", cert.Raw), write(t, dir, name+".key", "EC PRIVATE KEY", der)
}

// sign makes a key and its certificate, signed by itself as long as there is no
// authority.
func (a authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func write(t *testing.T, dir, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRightsThatAreMissing: what a user may not do fails each time, and what he may
// goes on. That says nothing about Redis; what is permitted shows that it is up.
func TestRightsThatAreMissing(t *testing.T) {
	server := redistest.Start(t)
	const states, others = "~tollgate:state:*", "~tollgate:registry:*"
	all := []string{"+getrange", "+set", "+del", "+eval", "+evalsha"}
	for _, test := range []struct {
		name    string
		rights  []string
		refused []string // of Set, Get, Swap (of a state), Copy (Set elsewhere) and Ping
	}{
		{"to read", slices.Concat([]string{"~tollgate:*"}, all, []string{"-getrange"}), []string{"Get", "Swap"}},
		{"to states", slices.Concat([]string{others, "~tollgate:ping"}, all), []string{"Set", "Get", "Swap"}},
		{"to copies", slices.Concat([]string{states, "~tollgate:ping"}, all), []string{"Copy"}},
		{"to ping", slices.Concat([]string{states, others}, all), []string{"Ping"}},
		{"to write", []string{"~*", "+getrange"}, []string{"Set", "Swap", "Copy", "Ping"}},
		{"to anything", []string{"~other:*", "+@all"}, []string{"Set", "Get", "Swap", "Copy", "Ping"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Do("FLUSHALL")
			server.Do(slices.Concat([]string{"ACL", "SETUSER", "app", "reset", "on", ">geheim"}, test.rights)...)
			server.Do("SET", "tollgate:state:b", "1:")
			conn, log := open(t, config(with(server, "app:geheim")))
			ctx := t.Context()
			operations := map[string]func() error{
				"Set":  func() error { return conn.SetFor(ctx, "state:a", []byte("1:"), time.Hour) },
				"Get":  func() error { _, err := conn.Get(ctx, "state:b", 10); return err },
				"Swap": func() error { _, err := conn.Swap(ctx, "state:b", "1:", []byte("1:"), time.Hour); return err },
				"Copy": func() error { return conn.Set(ctx, "registry:portal", []byte("1")) },
				"Ping": func() error { return conn.Ping(ctx) },
			}
			want := StatusUp
			if len(test.refused) == len(operations) {
				want = StatusUnknown
			}
			for range 5 {
				for name, run := range operations {
					err := run()
					if refused := slices.Contains(test.refused, name); (err != nil) != refused {
						t.Errorf("%s: %v, want refused: %v", name, err, refused)
					}
					if err == errDown {
						t.Errorf("%s was not tried", name)
					}
				}
				if got := conn.State().Status; got != want {
					t.Errorf("Redis is %s, want %s", got, want)
				}
			}
			if log := log.String(); strings.Count(log, `"WARN"`) != 1 || !strings.Contains(log, `"WARN","msg":"Redis refuses an operation`) || strings.Contains(log, "away") {
				t.Errorf("the log tells of something else than a refusal, or not once:\n%s", log)
			}

			server.Do(slices.Concat([]string{"ACL", "SETUSER", "app", "resetkeys", "~tollgate:*"}, all)...)
			if err := conn.Ping(ctx); err != nil {
				t.Errorf("a ping that is permitted by now: %v", err)
			}
			if err := tryEverything(ctx, conn); err != nil || conn.State().Status != StatusUp {
				t.Errorf("with all rights: %v, %+v", err, conn.State())
			}
		})
	}
}

// TestRefusedPingsHideNoOutage: the log tells of a Redis that hangs after it refused
// pings for a while, and of its return.
func TestRefusedPingsHideNoOutage(t *testing.T) {
	server := redistest.Start(t, "--user", "app", "on", ">geheim", "~tollgate:*", "+getrange")
	conn, log := open(t, config(with(server, "app:geheim")))
	mustFail(t, conn.Ping(t.Context()), KindAuth, "NOPERM")
	read := func() error { _, err := conn.Get(t.Context(), "a", 1); return err }
	if err := read(); err != nil {
		t.Fatal(err)
	}
	server.Suspend()
	mustFail(t, read(), KindTimeout, "")
	server.Resume()
	eventually(t, read)
	if diff := cmp.Diff([]string{"WARN auth", "WARN timeout", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// A sentinel that refuses to be asked is as good as none.
func TestSentinelThatRefuses(t *testing.T) {
	watcher := sentinel(t, redistest.Start(t), "user default on nopass ~* +@all -sentinel")
	conn, log := open(t, sentinelConfig("", watcher.Addr()))
	_, err := conn.Get(t.Context(), "a", 1)
	if failure, ok := err.(*Error); !ok || failure.Detail != "NOPERM" {
		t.Errorf("got %v, want NOPERM", err)
	}
	if _, err := conn.Get(t.Context(), "a", 1); err != errDown {
		t.Errorf("the next one: %v, want errDown", err)
	}
	if diff := cmp.Diff([]string{"WARN auth"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
