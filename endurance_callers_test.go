package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// restlessCallers are the callers of a restless world, good and bad. Each thing they do
// returns what was wrong with the answer, "" for nothing.
type restlessCallers struct {
	w       *restlessWorld
	g       *gateway
	client  *http.Client // keeps its connections
	changes atomic.Int64 // notes of changed lists that arrived
	refused atomic.Int64 // calls for which the budget had no room

	begun map[string]int // how often each habit was begun

	mu     sync.Mutex
	done   map[string]int // how often each thing was done in each way
	faults []string
}

func newRestlessCallers(w *restlessWorld, g *gateway) *restlessCallers {
	return &restlessCallers{w: w, g: g, begun: map[string]int{}, done: map[string]int{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: patience}}
}

// A habit is something that callers do, so many times of a hundred, in each of its ways
// in turn. How often it was done in that way before, n, says in which era and for whom.
type habit struct {
	name  string
	times int
	do    func(c *restlessCallers, way string, n int) string
	ways  []string
}

// in names a habit and a way of it.
func (h habit) in(way string) string { return strings.TrimSuffix(h.name+": "+way, ": ") }

// oneWay are the ways of a habit that has no different ones.
var oneWay = []string{""}

var habits = []habit{
	{"call", 20, (*restlessCallers).echo, []string{"lab.echo", "churn.echo"}},
	{"call on a connection of its own", 8, (*restlessCallers).echoAfresh, oneWay},
	{"list", 8, (*restlessCallers).list, oneWay},
	{"call of a tool that comes and goes", 5, (*restlessCallers).callNovelty, oneWay},
	{"call on a route that comes and goes", 6, (*restlessCallers).callFleeting, fleeting},
	{"call of a service that comes and goes", 5, (*restlessCallers).callFlapping, []string{"steady.ping", "flapping.ping"}},
	{"call that fails", 8, (*restlessCallers).callFaulty, slices.Sorted(maps.Keys(faultySays))},
	{"call with a handle", 6, (*restlessCallers).tally, []string{"tally.signed", "tally.stored"}},
	{"call with progress", 4, (*restlessCallers).stream, oneWay},
	{"call that asks", 5, (*restlessCallers).answerQuestion, []string{"not answered", "answered"}},
	{"call for a large answer", 3, (*restlessCallers).big, oneWay},
	{"call of a caller without budget", 4, (*restlessCallers).poor, oneWay},
	{"call of a stranger", 4, (*restlessCallers).stranger, oneWay},
	{"listen", 2, (*restlessCallers).listen, oneWay},
	{"cancelled call", 5, (*restlessCallers).cancel, oneWay},
	{"stream that is left", 2, (*restlessCallers).leaveStream, oneWay},
	{"half a request", 3, (*restlessCallers).sendHalf, []string{"cut in the headers", "cut in the body"}},
	{"answer that is not read", 2, (*restlessCallers).ignoreAnswer, oneWay},
}

// schedule is the order of a hundred things.
func schedule() (order []habit) {
	for _, h := range habits {
		order = append(order, slices.Repeat([]habit{h}, h.times)...)
	}
	rand.New(rand.NewPCG(6, 6)).Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	return order
}

// How many callers there are, and how many things they begin in a second: no more,
// and fewer when all of them still wait.
const (
	restlessWorkers   = 32
	restlessPerSecond = 250
)

// act has callers act, from the thing first on, until enough says so, and waits until
// everything they began is over. It returns what comes next.
func (c *restlessCallers) act(first int, enough func(n int) bool) (next int) {
	type turn struct {
		habit
		way string
		n   int
	}
	order, turns := schedule(), make(chan turn)
	var workers sync.WaitGroup
	for range restlessWorkers {
		workers.Go(func() {
			for t := range turns {
				fault := t.do(c, t.way, t.n)
				c.mu.Lock()
				c.done[t.in(t.way)]++
				if fault != "" && len(c.faults) < 20 {
					c.faults = append(c.faults, fmt.Sprintf("%s (%d): %.400s", t.in(t.way), t.n, fault))
				}
				c.mu.Unlock()
			}
		})
	}
	tick := time.NewTicker(time.Second / restlessPerSecond)
	defer tick.Stop()
	for next = first; !enough(next); next++ {
		<-tick.C
		h := order[next%len(order)]
		k := c.begun[h.name] // not next: that would fix the way of each entry of the order
		c.begun[h.name]++
		turns <- turn{h, h.ways[k%len(h.ways)], k / len(h.ways)}
	}
	close(turns)
	workers.Wait()
	c.client.CloseIdleConnections()
	return next
}

// isModern says in which era the nth thing is done.
func isModern(n int) bool { return n%3 != 0 }

// send sends one message. params is an object's inside, without _meta.
func (c *restlessCallers) send(client *http.Client, key string, modern bool, route, method, name, params string) (answer, error) {
	return postMessage(context.Background(), client, c.g.URL+"/mcp/"+route, restlessMessage(modern, method, params), c.headers(key, modern, method, name)...)
}

func restlessMessage(modern bool, method, params string) string {
	if modern {
		params = strings.Trim(params+","+modernMeta, ",")
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, newID(), method, params)
}

func (c *restlessCallers) headers(key string, modern bool, method, name string) []string {
	if !modern {
		return []string{"X-API-Key", key, "MCP-Protocol-Version", "2025-11-25"}
	}
	headers := []string{"X-API-Key", key, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	return headers
}

// A told is what an answer to a call says.
type told struct {
	answer
	err    error
	failed bool   // the tool
	text   string // of the first item
	reason string // of a refusal
	handle string
	count  int
}

func (t told) String() string { return fmt.Sprintf("status %d, %s (%v)", t.status, t.body, t.err) }

// well says that the tool answered.
func (t told) well() bool { return t.status == 200 && t.Result != nil && !t.failed }

// call calls a tool for somebody rich.
func (c *restlessCallers) call(n int, route, tool, arguments string) told {
	return c.callFor(c.w.keys[[]string{"rich", "other"}[n%2]], c.client, n, route, tool, arguments)
}

func (c *restlessCallers) callFor(key string, client *http.Client, n int, route, tool, arguments string) (t told) {
	t.answer, t.err = c.send(client, key, isModern(n), route, "tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments))
	t.read()
	return t
}

// read takes the answer apart.
func (t *told) read() {
	if t.Error != nil {
		var data struct{ Reason string }
		json.Unmarshal(t.Error.Data, &data)
		t.reason = data.Reason
	}
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	if json.Unmarshal(t.Result, &result) == nil && len(result.Content) > 0 {
		t.failed, t.text = result.IsError, result.Content[0].Text
	}
	var state struct {
		Handle string
		Count  int
	}
	json.Unmarshal([]byte(t.text), &state) // of another form: it says nothing
	t.handle, t.count = state.Handle, state.Count
}

// wantText is "" for an answer with that text.
func (t told) wantText(want string) string {
	if !t.well() || t.text != want {
		return t.String()
	}
	return ""
}

func (c *restlessCallers) echo(tool string, n int) string {
	arguments := fmt.Sprintf(`{"n":%d}`, n)
	return c.call(n, strings.TrimSuffix(tool, ".echo"), tool, arguments).wantText(arguments)
}

func (c *restlessCallers) echoAfresh(_ string, n int) string {
	arguments := fmt.Sprintf(`{"n":%d}`, n)
	return c.callFor(c.w.keys["rich"], afresh, n, "churn", "churn.echo", arguments).wantText(arguments)
}

// list wants the whole list of one turn.
func (c *restlessCallers) list(_ string, n int) string {
	a, err := c.send(c.client, c.w.keys["rich"], isModern(n), "churn", "tools/list", "", "")
	var list struct {
		Tools []struct{ Name, Description string }
	}
	if err != nil || a.status != 200 || json.Unmarshal(a.Result, &list) != nil || len(list.Tools) != 20 {
		return told{answer: a, err: err}.String()
	}
	for _, tool := range list.Tools {
		if tool.Description != list.Tools[0].Description {
			return "a mixed list: " + a.body
		}
	}
	return ""
}

func (c *restlessCallers) callNovelty(_ string, n int) string {
	arguments := fmt.Sprintf(`{"n":%d}`, n)
	t := c.call(n, "churn", fmt.Sprintf("churn.turn%d", c.w.turn.Load()%5), arguments)
	if t.reason == "tool_not_found" && t.status == 200 {
		return ""
	}
	return t.wantText(arguments)
}

func (c *restlessCallers) callFleeting(route string, n int) string {
	t := c.call(n, route, "steady.ping", `{}`)
	if t.reason == "route_not_found" && t.status == 404 {
		return ""
	}
	return t.wantText("{}")
}

// callFlapping calls a service that may be down, and one of the same route that is not.
func (c *restlessCallers) callFlapping(tool string, n int) string {
	t := c.call(n, "flapping", tool, `{}`)
	if tool == "steady.ping" {
		return t.wantText("{}")
	}
	if t.status == 200 && t.failed {
		return ""
	}
	return t.wantText(`{"done":true}`)
}

// faultySays is what agents are told of each tool of faulty.
var faultySays = map[string]string{
	"faulty.status":  "HTTP 500",
	"faulty.reset":   "was reset before its answer was complete",
	"faulty.cut":     "was reset before its answer was complete",
	"faulty.hang":    "did not complete its answer within 200 ms",
	"faulty.forever": "did not complete its answer within 300 ms",
	"faulty.flood":   fmt.Sprintf("exceeds the limit of %d bytes", maxRestlessAnswer),
}

func (c *restlessCallers) callFaulty(tool string, n int) string {
	t := c.call(n, "faulty", tool, `{}`)
	if t.status != 200 || !t.failed || !strings.Contains(t.text, faultySays[tool]) {
		return t.String()
	}
	return ""
}

// tally counts to two.
func (c *restlessCallers) tally(tool string, n int) string {
	t := c.call(n, "tally", tool+".make", `{}`)
	for count := range 2 {
		if t = c.call(n, "tally", tool+".add", fmt.Sprintf(`{"handle":%q}`, t.handle)); !t.well() || t.count != count+1 {
			return t.String()
		}
	}
	return ""
}

// open posts a message of a client that can be asked, and returns its answer unread.
func (c *restlessCallers) open(ctx context.Context, route, message string) (*http.Response, error) {
	var m struct {
		Method string
		Params struct{ Name string }
	}
	json.Unmarshal([]byte(message), &m)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.g.URL+"/mcp/"+route, strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	headers := c.headers(c.w.keys["rich"], true, m.Method, m.Params.Name)
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	return c.client.Do(req)
}

func (c *restlessCallers) stream(_ string, n int) string {
	resp, err := c.open(context.Background(), "lab", roundCall(n, "lab.stream", `,"progressToken":"p"`, `,"arguments":{"steps":3,"ms":10}`))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(all), "notifications/progress") != 3 || !strings.Contains(string(all), `"structuredContent":{"steps":3}`) {
		return fmt.Sprintf("%s (%v)", all, err)
	}
	return ""
}

func (c *restlessCallers) answerQuestion(way string, n int) string {
	ask := func(more string) (text string, state json.RawMessage) {
		resp, err := c.open(context.Background(), "lab", roundCall(n, "lab.ask", "", more))
		if err != nil {
			return err.Error(), nil
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		var a struct {
			Result struct{ RequestState json.RawMessage }
		}
		json.Unmarshal(all, &a) // no question shows in the next answer
		return string(all), a.Result.RequestState
	}
	text, state := ask(`,"arguments":{}`)
	if state == nil {
		return text
	}
	if way == "answered" {
		text, _ = ask(`,"arguments":{},"requestState":` + string(state) + `,"inputResponses":{"name":{"action":"accept","content":{"name":"Ann"}}}`)
		if !strings.Contains(text, "Hello, Ann!") {
			return text
		}
	}
	return ""
}

func (c *restlessCallers) big(_ string, n int) string {
	if t := c.call(n, "churn", "churn.big", `{}`); !t.well() || len(t.text) < 1<<20 {
		return fmt.Sprintf("status %d, %d bytes of text (%v)", t.status, len(t.text), t.err)
	}
	return ""
}

func (c *restlessCallers) poor(_ string, n int) string {
	t := c.callFor(c.w.keys["poor"], c.client, n, "lab", "lab.echo", `{}`)
	if t.status == http.StatusTooManyRequests && t.reason == "budget_exhausted" {
		c.refused.Add(1)
		return ""
	}
	return t.wantText("{}")
}

func (c *restlessCallers) stranger(_ string, n int) string {
	t := c.callFor("tg_nobody", c.client, n, "lab", "lab.echo", `{}`)
	if t.status != http.StatusUnauthorized {
		return t.String()
	}
	return ""
}

// listen listens to a list for a second, or until it changes.
func (c *restlessCallers) listen(string, int) string {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	resp, err := c.open(ctx, "churn", restlessMessage(true, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	acknowledged := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "notifications/subscriptions/acknowledged") {
			acknowledged = true
			defer time.AfterFunc(time.Second, leave).Stop()
		}
		if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
			c.changes.Add(1)
			break
		}
	}
	if !acknowledged {
		return fmt.Sprintf("status %d, and no acknowledgement", resp.StatusCode)
	}
	return ""
}

// cancel leaves when its call has arrived at the service.
func (c *restlessCallers) cancel(_ string, n int) string {
	arguments, arrived := fmt.Sprintf(`{"n":%d}`, n), make(chan struct{})
	c.w.waiting.Store(arguments, arrived)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	left := make(chan told, 1)
	go func() {
		var t told
		modern := isModern(n)
		t.answer, t.err = postMessage(ctx, c.client, c.g.URL+"/mcp/churn",
			restlessMessage(modern, "tools/call", `"name":"churn.wait","arguments":`+arguments), c.headers(c.w.keys["rich"], modern, "tools/call", "churn.wait")...)
		left <- t
	}()
	select {
	case <-arrived:
		leave()
		<-left
		return ""
	case t := <-left:
		return "answered before it arrived: " + t.String()
	}
}

// leaveStream leaves after the first event of progress.
func (c *restlessCallers) leaveStream(_ string, n int) string {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	resp, err := c.open(ctx, "lab", roundCall(n, "lab.stream", `,"progressToken":"p"`, `,"arguments":{"steps":100,"ms":10}`))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "notifications/progress") {
			return ""
		}
	}
	return "the stream ended without progress"
}

// dial sends the beginning of a request for a call over a connection of its own.
func (c *restlessCallers) dial(tool string, part func(request []byte) []byte) (net.Conn, error) {
	addr := strings.TrimPrefix(c.g.URL, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	conn.(*net.TCPConn).SetReadBuffer(4096)
	headers := append(callHeaders(tool, true), "X-API-Key: "+c.w.keys["rich"])
	_, err = conn.Write(part(wireRequest(addr, "/mcp/churn", door{modern: true}.call(newID(), tool, `{}`), headers...)))
	return conn, err
}

// sendHalf leaves in the middle of the headers, or of the body.
func (c *restlessCallers) sendHalf(way string, _ int) string {
	conn, err := c.dial("churn.echo", func(request []byte) []byte {
		headers := bytes.Index(request, []byte("\r\n\r\n"))
		if way == "cut in the headers" {
			return request[:headers/2]
		}
		return request[:(headers+len(request))/2]
	})
	if err != nil {
		return err.Error()
	}
	conn.Close()
	return ""
}

// ignoreAnswer reads the first byte of a large answer, and leaves.
func (c *restlessCallers) ignoreAnswer(string, int) string {
	conn, err := c.dial("churn.big", func(request []byte) []byte { return request })
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return err.Error()
	}
	return ""
}
