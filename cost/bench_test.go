package cost

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkReserveAndSettleInMemory is what each call costs: a reservation and its
// settlement, by all processors at once.
func BenchmarkReserveAndSettleInMemory(b *testing.B) {
	for _, principals := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(principals, "-principals"), func(b *testing.B) {
			m := NewMemory()
			accounts := make([]Payer, principals)
			for i := range accounts {
				accounts[i] = Payer{Principal: fmt.Sprint("key:", i), Limits: Limits{Tier: Tier{MaxUnits, MaxUnits, MaxUnits}}}
			}
			call := func(ctx context.Context, a Payer) {
				r := Request{Payer: a, ID: NewID(), Estimate: 300, Lease: time.Minute}
				if d, err := m.Reserve(ctx, r); err != nil || !d.Admitted {
					b.Fatalf("%+v, %v", d, err)
				}
				if _, err := m.Settle(ctx, Settlement{Payer: a, ID: r.ID}); err != nil {
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

// BenchmarkSettlerInMemory is a settlement by way of a Settler, which adds next to
// nothing to it.
func BenchmarkSettlerInMemory(b *testing.B) {
	m := NewMemory()
	s := NewSettler(m, nil)
	st := Settlement{Payer: Payer{Principal: "key:42", Limits: Limits{Tier: Tier{300, 1, 300}}}, ID: "a"}
	until := time.Now().Add(time.Minute)
	b.Run("by-itself", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Settle(b.Context(), st)
		}
	})
	b.Run("with-a-settler", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Settle(st, until)
		}
	})
}

// BenchmarkRefusal is what an agent can make the gateway do that has spent all.
func BenchmarkRefusal(b *testing.B) {
	for _, holds := range []int{1, 1000} {
		b.Run(fmt.Sprint(holds, "-holds"), func(b *testing.B) {
			var l Ledger
			limits := Limits{Tier: Tier{int64(holds), 1, MaxUnits}}
			for i := range holds {
				l.Reserve(noon, Request{Payer{Limits: limits}, fmt.Sprint(i), 1, time.Hour})
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Reserve(noon, Request{Payer{Limits: limits}, "refused", int64(holds), time.Hour})
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
