package registry

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// routesOf is a Registry with n routes of five services of twenty tools each,
// loaded and fresh.
func routesOf(b *testing.B, n int) *Registry {
	b.Helper()
	w := &world{began: time.Now(), pages: make(map[string]page)}
	routes := make(map[string][]svc)
	for i := range n {
		key := fmt.Sprintf("r%d", i)
		for j := range 5 {
			s := svc{key: fmt.Sprintf("s%d-%d", i, j), prefix: fmt.Sprintf("p%d.", j)}
			var tools []string
			for k := range 20 {
				tools = append(tools, fmt.Sprintf("p%d.t%d", j, k))
			}
			w.serve(s, tools...)
			routes[key] = append(routes[key], s)
		}
	}
	w.declare(routes)
	o := Options{Config: DefaultConfig(), Transport: w}
	o.Config.Portal.URL = portalURL
	r, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	r.Start()
	<-r.Preloaded()
	return r
}

// BenchmarkSnapshotFresh is what every request pays while nothing is due.
func BenchmarkSnapshotFresh(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			r := routesOf(b, n)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := r.Snapshot(context.Background(), "r0"); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkMerge is a swap: merge and encode 100 tools.
func BenchmarkMerge(b *testing.B) {
	r := routesOf(b, 1)
	rt := r.route("r0")
	parts, _, _ := r.parts(rt)
	b.ReportAllocs()
	for b.Loop() {
		NewSnapshot("r0", merge(parts, r.limits).tools)
	}
}

func TestFreshSnapshotAllocatesNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		ctx := t.Context()
		if got := testing.AllocsPerRun(100, func() { _, _ = r.Snapshot(ctx, "plant") }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	})
}
