package schema

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Thousands of tools are listed and never called: such a tool's schema takes little
// more than its text.
func TestUnusedSchemasAreSmall(t *testing.T) {
	inUse := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools hold goes with the second
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	const n = 300
	kept := make([]*Schema, 0, n)
	text := 0
	before := inUse()
	for i := range n {
		var properties []string
		for p := range 8 {
			properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","maxLength":%d,"description":"Argument %d of tool %d, told at some length."}`, p, 10+p, p, i))
		}
		doc := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`
		text += len(doc)
		kept = append(kept, compile(t, doc))
	}
	if after := inUse(); after > before+2*uint64(text) {
		t.Errorf("%d schemas with %d bytes of text take %d", n, text, after-before)
	}
	for _, s := range kept {
		if got := breaches(t, s, `{"p0":1}`); len(got) != 1 {
			t.Fatalf("breaches %q, want one", got)
		}
	}
}

func TestFirstUseByManyAtOnce(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"a":{"pattern":"^[a-z]+$"}},"required":["b"]}`).Of(
		[]byte(`{"type":"object","properties":{"a":{"pattern":"^[a-z]+$"}},"required":["b"]}`))
	want := []string{`/a must match pattern "^[a-z]+$"`, "/b is required"}
	var users sync.WaitGroup
	for range 16 {
		users.Go(func() {
			if got := breaches(t, s, `{"a":"1"}`); !slices.Equal(got, want) {
				t.Errorf("breaches %q, want %q", got, want)
			}
		})
	}
	users.Wait()
}
