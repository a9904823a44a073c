package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A cell of the fault matrix is one fault of one origin, at one point of the
// gateway's life. What it checks are the lists callers get, the calls, the
// status view, readiness, the log, and how long a request waits.
type cell struct {
	origin, fault, start string
	run                  func(*trial)
}

func (c cell) String() string { return c.origin + "/" + c.fault + "/" + c.start }

// A row is what the printed matrix says of a cell: of the time the fault lasts.
type row struct {
	list   string        // in words; the test compares names
	status string        // of the origin with the fault
	ready  string        // as the probe sees it
	wait   time.Duration // the longest a request for a list took
	bound  string        // what bounds it
}

// unmeant are the cells without a meaning, and what stands for them.
var unmeant = []struct{ origin, fault, start, reason string }{
	{"Portal", "wrong bundleId", "-", "a registry answer has none; a serviceKey that is not the service's bundleId is the manifest's row"},
	{"Redis", "500", "-", "Redis speaks no HTTP; its refusals are the rows READONLY, MASTERDOWN (as LOADING: no answer yet) and WRONGTYPE"},
	{"Redis", "HTML 200", "-", "Redis speaks no HTTP; what answers in its place is the row garbage"},
	{"Redis", "redirect", "-", "one Redis redirects nobody; MOVED is an error reply like the others, and followed in cluster mode"},
	{"Redis route", "other values", "warm", "who has a list reads no copy, whatever is in it: invalid JSON stands for all"},
	{"Redis Portal", "other values", "warm", "the same"},
}

// width is how many cells run at a time. They mostly wait.
const width = 8

// TestFaultMatrix runs every cell with a gateway of its own and prints what came
// out, a line each. CI shows the lines with the prefix "matrix: ".
func TestFaultMatrix(t *testing.T) {
	cells := slices.Concat(portalCells(), manifestCells(), redisCells(), budgetCells())
	rows := make([]string, len(cells))
	var running sync.WaitGroup
	turn := make(chan struct{}, width)
	for i, c := range cells {
		turn <- struct{}{}
		running.Go(func() {
			defer func() { <-turn }()
			rows[i] = "NOT RUN"
			t.Run(c.String(), func(t *testing.T) {
				tr := newTrial(t)
				c.run(tr)
				rows[i] = tr.row.String()
				if t.Failed() {
					rows[i] += " FAILED"
				}
			})
		})
	}
	running.Wait()
	var table strings.Builder
	line := func(origin, fault, start, rest string) {
		fmt.Fprintf(&table, "matrix: %-12s %-17s %-11s %s\n", origin, fault, start, rest)
	}
	line("ORIGIN", "FAULT", "START", fmt.Sprintf("%-34s %-36s %-38s %s", "LIST OF THE ROUTE", "STATUS", "READINESS", "LONGEST WAIT"))
	for i, c := range cells {
		line(c.origin, c.fault, c.start, rows[i])
	}
	for _, u := range unmeant {
		line(u.origin, u.fault, u.start, "no meaning: "+u.reason)
	}
	t.Log("the fault matrix:\n" + table.String())
}

func (r row) String() string {
	return fmt.Sprintf("%-34s %-36s %-38s %4d ms (%s)", r.list, r.status, r.ready, r.wait.Milliseconds(), r.bound)
}

// shows sets what the matrix prints of the phase in which the fault lasts.
func (tr *trial) shows(list, status, ready string, bound time.Duration) {
	name := "coldWait"
	if bound == trialWarm {
		name = "refreshWait"
	}
	tr.row.list, tr.row.status, tr.row.ready, tr.row.bound = list, status, ready, fmt.Sprintf("%s %v", name, bound)
}
