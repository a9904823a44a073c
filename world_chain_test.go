package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A dialect is how a client talks to a server about a counter.
type dialect struct {
	modern bool   // protocol 2026-07-28; else 2025-11-25
	path   string // of the endpoint
	tools  string // what the tools' names begin with

	// before and after are the steps of a chain, before and after the moment at
	// which something may happen to the replicas.
	before, after []string
}

// inSession keeps the counter in the session. The others keep it behind a handle.
var inSession = dialect{
	path: "/mcp", tools: "counter.",
	before: []string{"initialize", "initialized", "increment", "increment"},
	after:  []string{"increment", "increment", "read"},
}

// withHandle is a client of the gateway, for counters of a mode.
func withHandle(mode string, modern bool) dialect {
	d := dialect{
		modern: modern, path: "/mcp/state", tools: "counter." + mode + ".",
		before: []string{"create", "increment", "increment"},
		after:  []string{"increment", "increment", "read"},
	}
	if !modern {
		d.before = append([]string{"initialize", "initialized"}, d.before...)
	}
	return d
}

// A chain is one client's calls about one counter.
type chain struct {
	dialect
	url  string
	http *http.Client

	session string // of the session era: the id that initialize was answered with
	handle  string
	count   int // what the counter must say
	tally   *tally

	settled <-chan struct{} // closed when what was to happen has; nil: nobody waits for it
}

// tally counts what became of calls.
type tally struct {
	sent, right atomic.Int64
	retried     atomic.Int64 // connection errors, each retried once
	twice       atomic.Int64 // increments that had been made when they were retried
}

// walk takes steps until one fails, and returns what the client saw then; "" when
// all went well.
func (c *chain) walk(steps []string) (lost string) {
	for _, step := range steps {
		c.tally.sent.Add(1)
		if lost := c.step(step); lost != "" {
			return lost
		}
		c.tally.right.Add(1)
	}
	return ""
}

func (c *chain) step(step string) (lost string) {
	method, name, params := step, "", ""
	switch step {
	case "initialize":
		params = `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"chain","version":"1"}`
	case "initialized":
		method = "notifications/initialized"
	default:
		method, name = "tools/call", c.tools+step
		params = fmt.Sprintf(`"name":%q,"arguments":{}`, name)
		if c.handle != "" {
			params = fmt.Sprintf(`"name":%q,"arguments":{"handle":%q}`, name, c.handle)
		}
	}
	a, retried, err := c.send(method, name, params)
	onceRedisIsInTime(func() string { // who is told to try again does
		if strings.Contains(a.body, storeAway) {
			a, _, err = c.send(method, name, params)
			retried = true // nobody knows whether the call before was kept
		}
		return a.body
	})
	if err != nil {
		return "connection error"
	}
	if a.status == http.StatusAccepted && step == "initialized" {
		return ""
	}
	if a.status != http.StatusOK {
		return fmt.Sprintf("HTTP %d %s", a.status, strings.TrimSpace(a.body))
	}
	if step == "initialize" {
		c.session = a.header.Get(sessionHeader)
		return ""
	}
	return c.counted(step, a.body, retried)
}

// counted looks at a tool's answer.
func (c *chain) counted(step, body string, retried bool) (lost string) {
	var m struct {
		Result struct {
			Content []struct{ Text string }
			IsError bool
		}
		Error *struct{ Message string }
	}
	err := json.Unmarshal([]byte(body), &m)
	switch {
	case err != nil || m.Error != nil || len(m.Result.Content) != 1:
		return "HTTP 200 " + body
	case m.Result.IsError && retried && strings.Contains(m.Result.Content[0].Text, "state changed"):
		c.count++ // by the call whose answer was lost
		return ""
	case m.Result.IsError:
		return "HTTP 200, isError: " + strings.ReplaceAll(m.Result.Content[0].Text, "\n", " ")
	}
	var counter struct {
		Handle string
		Count  int
	}
	if err := json.Unmarshal([]byte(m.Result.Content[0].Text), &counter); err != nil {
		return "HTTP 200 " + body
	}
	if counter.Handle != "" {
		c.handle = counter.Handle
	}
	if step == "increment" {
		c.count++
	}
	if retried && step == "increment" && counter.Count == c.count+1 {
		c.count++
		c.tally.twice.Add(1)
	}
	if counter.Count != c.count {
		return fmt.Sprintf("HTTP 200, count %d in place of %d", counter.Count, c.count)
	}
	return ""
}

// send posts a message, and once more after a connection error: not at once, when
// the replica may be about to die still.
func (c *chain) send(method, name, params string) (a answer, retried bool, err error) {
	for _, retried = range []bool{false, true} {
		if a, err = c.post(method, name, params); err == nil {
			return a, retried, nil
		}
		if retried {
			break
		}
		c.tally.retried.Add(1)
		if c.settled != nil {
			<-c.settled
		}
	}
	return a, true, err
}

func (c *chain) post(method, name, params string) (answer, error) {
	id := `"id":1,`
	if strings.HasPrefix(method, "notifications/") {
		id = ""
	}
	if c.modern {
		params = strings.TrimPrefix(params+","+modernMeta, ",")
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q,"params":{%s}}`, id, method, params)
	var header []string
	if c.session != "" {
		header = append(header, sessionHeader, c.session)
	}
	if c.modern {
		header = append(header, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
	} else if method != "initialize" {
		header = append(header, "MCP-Protocol-Version", "2025-11-25")
	}
	return postMessage(context.Background(), c.http, c.url+c.path, body, header...)
}

// A crowd is many chains of one kind.
type crowd struct {
	dialect
	url     string
	chains  int
	clients int // client addresses they come from; 0 = 1

	keep bool // each keeps its connection; else each call has a new one
}

// A result is what became of a crowd.
type result struct {
	sent, right    int // calls
	retried, twice int // connection errors, and increments made twice for them
	lost           int // chains whose counter was gone
	again          int // of those, the ones that went well when begun anew
	saw            string
}

// chain returns the chain of a number.
func (c crowd) chain(t *testing.T, i int, all *tally) *chain {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%max(c.clients, 1)))}}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: !c.keep, DialContext: dialer.DialContext},
		Timeout:   patience,
	}
	t.Cleanup(client.CloseIdleConnections)
	return &chain{dialect: c.dialect, url: c.url, tally: all, http: client}
}

// inTurn walks one chain after the other up to the middle, has something happen,
// and walks them to their ends. Chains that are lost are begun anew at last; what
// is sent for that is not counted.
func (c crowd) inTurn(t *testing.T, happens func()) (r result) {
	t.Helper()
	all, anew := &tally{}, &tally{}
	chains, saws := make([]*chain, c.chains), make([]string, c.chains)
	for i := range chains {
		chains[i] = c.chain(t, i, all)
		saws[i] = chains[i].walk(c.before)
	}
	if happens != nil {
		happens()
	}
	for i, chain := range chains {
		if saws[i] == "" {
			saws[i] = chain.walk(c.after)
		}
	}
	r.see(t, saws, all)
	for i, saw := range saws {
		if saw == "" {
			continue
		}
		if second := c.chain(t, i, anew); second.walk(c.before) == "" && second.walk(c.after) == "" {
			r.again++
		}
	}
	return r
}

// atOnce walks many chains at a time, and has something happen in the midst of
// their calls.
func (c crowd) atOnce(t *testing.T, happens func()) (r result) {
	t.Helper()
	all := &tally{}
	saws := make([]string, c.chains)
	turns, settled := make(chan int), make(chan struct{})
	var walking sync.WaitGroup
	for range 8 {
		walking.Go(func() {
			for i := range turns {
				chain := c.chain(t, i, all)
				chain.settled = settled
				if saws[i] = chain.walk(c.before); saws[i] == "" {
					saws[i] = chain.walk(c.after)
				}
			}
		})
	}
	for i := range c.chains {
		if i == c.chains/2 {
			happens() // seven chains or eight are under way
			close(settled)
		}
		turns <- i
	}
	close(turns)
	walking.Wait()
	r.see(t, saws, all)
	return r
}

// see sums up. All chains that are lost have seen the same.
func (r *result) see(t *testing.T, saws []string, all *tally) {
	t.Helper()
	r.sent, r.right = int(all.sent.Load()), int(all.right.Load())
	r.retried, r.twice = int(all.retried.Load()), int(all.twice.Load())
	for _, saw := range saws {
		if saw == "" {
			continue
		}
		r.lost++
		if r.saw != "" && saw != r.saw {
			t.Errorf("one client saw %q, another %q", r.saw, saw)
		}
		r.saw = saw
	}
}
