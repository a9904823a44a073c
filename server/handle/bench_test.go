package handle

import (
	"strings"
	"testing"
	"time"
)

// Ordinary sizes: a state of 60 bytes, and keys and names as long as real ones.
var (
	benchBinding = Binding{Route: "customer-service", Service: "orders", Principal: "anonymous"}
	benchState   = []byte(`{"cart":"` + strings.Repeat("x", 49) + `"}`)
)

func BenchmarkSignedCreate(b *testing.B) {
	k := NewSigned(twoKeys(b), 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Create(b.Context(), benchBinding, time.Hour, benchState); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignedOpen(b *testing.B) {
	k := NewSigned(twoKeys(b), 1024)
	handle := create(b, k, benchBinding, time.Hour, string(benchState))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Open(b.Context(), benchBinding, handle); err != nil {
			b.Fatal(err)
		}
	}
}
