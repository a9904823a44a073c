package cost

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkMemory is a call's reservation and settlement, by all processors at once.
func BenchmarkMemory(b *testing.B) {
	for _, principals := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(principals, "-principals"), func(b *testing.B) {
			m := NewMemory()
			accounts := make([]Account, principals)
			for i := range accounts {
				accounts[i] = Account{Principal: fmt.Sprint("key:", i), Limits: Limits{Tier: Tier{MaxUnits, MaxUnits, MaxUnits}}}
			}
			call := func(ctx context.Context, a Account) {
				r := Request{Account: a, ID: NewID(), Estimate: 300, Lease: time.Minute}
				if d, err := m.Reserve(ctx, r); err != nil || !d.Admitted {
					b.Fatalf("%+v, %v", d, err)
				}
				if _, err := m.Settle(ctx, Settlement{Account: a, ID: r.ID}); err != nil {
					b.Fatal(err)
				}
			}
			for _, a := range accounts {
				call(b.Context(), a)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for ctx := b.Context(); pb.Next(); {
					call(ctx, accounts[rand.IntN(principals)])
				}
			})
		})
	}
}

// BenchmarkRefusal is what an agent can make the gateway do that has spent all.
func BenchmarkRefusal(b *testing.B) {
	for _, holds := range []int{1, 1000} {
		b.Run(fmt.Sprint(holds, "-holds"), func(b *testing.B) {
			var l Ledger
			limits := Limits{Tier: Tier{int64(holds), 1, MaxUnits}}
			for i := range holds {
				l.Reserve(noon, Request{Account{Limits: limits}, fmt.Sprint(i), 1, time.Hour})
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Reserve(noon, Request{Account{Limits: limits}, "refused", int64(holds), time.Hour})
			}
		})
	}
}

func BenchmarkEstimate(b *testing.B) {
	rule := Rule{Estimate: "ids", Argument: "ids", NodeCalls: 1}
	arguments := []byte(`{"project":"p-1","ids":["a","b","c","d","e","f"],"limit":100}`)
	b.ReportAllocs()
	for b.Loop() {
		rule.Reserve(arguments, 300)
	}
}
