package main

import (
	"regexp"
	"runtime"
	"strconv"
	"testing"
)

// A small gateway collects garbage at the size of its ballast, twice, and takes no
// memory for that; an operator who sets the collector has his way.
func TestHeapOfASmallGateway(t *testing.T) {
	for _, test := range []struct {
		env         string
		least, most int // the heap at which garbage is collected, in MiB
	}{
		{"", 2 * ballastSize >> 20, 2*ballastSize>>20 + 64},
		{"GOGC=100", 0, ballastSize >> 20},
		{"GOMEMLIMIT=1GiB", 0, ballastSize >> 20},
	} {
		t.Run(test.env, func(t *testing.T) {
			var env []string
			if test.env != "" {
				env = append(env, test.env)
			}
			g := serve(t, command{args: []string{"--fixtures"}, env: env})
			if next := g.gauge(t, "go_memstats_next_gc_bytes") >> 20; next < test.least || next > test.most {
				t.Errorf("garbage is collected at %d MiB, want %d to %d", next, test.least, test.most)
			}
			if runtime.GOOS != "linux" || raceEnabled { // where the metric is, and is of the gateway's own memory
				return
			}
			if resident := g.gauge(t, "process_resident_memory_bytes") >> 20; resident >= 2*ballastSize>>20 {
				t.Errorf("%d MiB are resident", resident)
			}
		})
	}
}

// gauge is the value of a metric without labels.
func (g *gateway) gauge(t testing.TB, name string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(g.management(t, "GET", "/metrics").body)
	if found == nil {
		t.Fatalf("the metrics have no %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}
