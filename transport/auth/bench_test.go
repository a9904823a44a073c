package auth_test

import "testing"

func BenchmarkAuthenticateAPIKey(b *testing.B) {
	key, entry := makeKey(b, "42", nil)
	g := newKeyGate(b, entry)
	r := request("Authorization", "Bearer "+key)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Authenticate(r, "claims"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAuthenticateAccessToken(b *testing.B) {
	for _, signs := range []signer{es256(b, "es256"), {"rs256", "RS256", rsaKey(b, 2048)}} {
		b.Run(signs.id, func(b *testing.B) {
			i := startIssuer(b, signs)
			g := newGate(b, i, nil)
			r := request("Authorization", "Bearer "+signs.sign(b, i.claims()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Authenticate(r, "claims"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
