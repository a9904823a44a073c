package redisconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// A node of a cluster is known by its IP and shows a certificate for the name in
// the URL. Its connection is closed without waiting for a goodbye to get through.
func TestDialTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"cache.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	node, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	served := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	shaken, after := make(chan error, 1), make(chan int64, 1)
	go func() {
		raw, err := node.Accept()
		if err == nil {
			err = tls.Server(raw, served).Handshake()
		}
		shaken <- err
		if err == nil {
			n, _ := io.Copy(io.Discard, raw)
			after <- n
		}
	}()

	target, err := parseTarget(modeCluster, "rediss://cache.example")
	if err != nil {
		t.Fatal(err)
	}
	target.tls.RootCAs = x509.NewCertPool()
	target.tls.RootCAs.AddCert(cert)
	var conn net.Conn
	if conn, err = target.dial(t.Context(), "tcp", node.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := <-after; n != 0 {
		t.Errorf("%d bytes were sent to close the connection", n)
	}
}
