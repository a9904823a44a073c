package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestTLSListenerDrainsBothHTTPVersions(t *testing.T) {
	cfg := shutdown(200*time.Millisecond, 10*time.Second)
	var roots *x509.CertPool
	cfg.HTTP.TLS, roots = certificate(t)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			var served atomic.Int64
			busy := make(chan struct{})
			r := start(t, cfg, func(w http.ResponseWriter, r *http.Request) {
				ok(w, r)
				if served.Add(1) == 20 {
					close(busy)
				}
			})
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
			defer tr.CloseIdleConnections()
			var wg sync.WaitGroup
			wg.Go(func() {
				hammer(t, func() (bool, error) {
					res, reused, err := post(t.Context(), &http.Client{Transport: tr}, "https://"+r.addr)
					if err == nil && (res.ProtoMajor == 2) != http2 {
						t.Errorf("served by %s", res.Proto)
					}
					return reused, err
				})
			})
			<-busy
			r.signals <- syscall.SIGTERM
			wg.Wait()
			if err := <-r.done; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}

// TestHTTP2ConnectionsAreToldToGoAtOnce: not when the last HTTP/1 call is over. Else they
// would take calls meanwhile, for which there is no time left.
func TestHTTP2ConnectionsAreToldToGoAtOnce(t *testing.T) {
	cfg := shutdown(0, 10*time.Second)
	var roots *x509.CertPool
	cfg.HTTP.TLS, roots = certificate(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	r := start(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		ok(w, r)
	})
	config := &tls.Config{RootCAs: roots}
	var calling sync.WaitGroup
	calling.Go(func() {
		tr := &http.Transport{TLSClientConfig: config.Clone()} // HTTP/1, because of its own configuration
		defer tr.CloseIdleConnections()
		if res, _, err := post(t.Context(), &http.Client{Transport: tr}, "https://"+r.addr); err != nil || res.ProtoMajor != 1 {
			t.Errorf("the call under way: %v, %v", res, err)
		}
	})
	<-begun
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", r.addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const settings, goAway = 4, 7 // types of frames: RFC 9113, section 6
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	awaitFrame(t, conn, settings)
	r.signals <- syscall.SIGTERM
	awaitFrame(t, conn, goAway)
	select {
	case err := <-r.done:
		t.Errorf("Serve returned before the call was answered: %v", err)
	default:
	}
	close(finish)
	calling.Wait()
	if err := <-r.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// awaitFrame reads HTTP/2 frames up to one of this type.
func awaitFrame(t *testing.T, conn net.Conn, want byte) {
	t.Helper()
	for {
		var header [9]byte
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			t.Fatalf("no frame of type %d: %v", want, err)
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			t.Fatal(err)
		}
		if header[3] == want {
			return
		}
	}
}

// certificate writes a self-signed certificate for 127.0.0.1 and returns it with
// the pool that trusts it.
func certificate(t *testing.T) (TLSConfig, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := TLSConfig{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{
		files.CertFile: {Type: "CERTIFICATE", Bytes: der},
		files.KeyFile:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return files, pool
}
