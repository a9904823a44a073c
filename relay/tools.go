package relay

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"tollgate/jsonwire"
)

const (
	// listTimeout bounds the relay's own look at the tool list. A call goes on
	// without it: the gateway says if a header is missing.
	listTimeout = 10 * time.Second

	// maxPages bounds a list whose cursors never end.
	maxPages = 100
)

// toolTable knows which arguments of which tools are repeated in headers. It
// learns from each tool list that passes.
type toolTable struct {
	fetching chan struct{} // held while the relay fetches the list

	mu       sync.Mutex
	bindings map[string][]binding // by tool name; empty for a tool without any
	learned  int                  // counts the lists
}

func newToolTable() *toolTable {
	return &toolTable{fetching: make(chan struct{}, 1), bindings: map[string][]binding{}}
}

// lookup returns the bindings of a tool and whether it is known.
func (t *toolTable) lookup(name string) (found []binding, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, known = t.bindings[name]
	return found, known
}

// generation changes with each list that is learned. Take it before looking
// something up: a list that comes in between then counts as newer.
func (t *toolTable) generation() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.learned
}

// learn takes in one answer to tools/list. The first page replaces what was
// known, the others add to it.
func (t *toolTable) learn(answer []byte, first bool) {
	result, ok := jsonwire.Get(answer, "result")
	if !ok {
		return
	}
	list, _ := jsonwire.Get(result, "tools")
	tools, err := jsonwire.Elements(list)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first {
		clear(t.bindings)
		t.learned++
	}
	for _, tool := range tools {
		schema, _ := jsonwire.Get(tool, "inputSchema")
		t.bindings[text(tool, "name")] = bindingsOf(schema, nil)
	}
}

// missing notes that the newest list does not have the tool, so that calls of it
// do not fetch the list over and over.
func (t *toolTable) missing(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.bindings[name]; !known {
		t.bindings[name] = nil
	}
}

// bindings returns the header bindings of the tool a modern tools/call names. For
// a tool it does not know it asks the gateway for the list first.
func (x *exchange) bindings() []binding {
	name := text(x.m.params, "name")
	learned := x.r.tools.generation()
	found, known := x.r.tools.lookup(name)
	if !known && x.fetchTools(learned) {
		x.r.tools.missing(name)
		found, _ = x.r.tools.lookup(name)
	}
	return found
}

// fetchTools reads the tool list unless one newer than learned has come in the
// meantime. It reports whether there is a newer one now.
func (x *exchange) fetchTools(learned int) bool {
	t := x.r.tools
	select {
	case t.fetching <- struct{}{}:
		defer func() { <-t.fetching }()
	case <-x.ctx.Done():
		return false
	}
	if t.generation() != learned {
		return true
	}
	ctx, cancel := context.WithTimeout(x.ctx, listTimeout)
	defer cancel()
	cursor := []byte(nil)
	for page := range maxPages {
		answer := x.fetchPage(ctx, cursor)
		t.learn(answer, page == 0)
		result, ok := jsonwire.Get(answer, "result")
		if !ok {
			x.r.log.Warn("the tool list could not be fetched; calls of tools with Mcp-Param headers may be refused")
			return page > 0
		}
		if cursor, _ = jsonwire.Get(result, "nextCursor"); jsonwire.KindOf(cursor) != jsonwire.KindString {
			return true
		}
	}
	return true
}

// fetchPage asks for one page in the name of the client that calls: with the
// protocol members of its _meta. It returns the JSON-RPC answer, or nil.
func (x *exchange) fetchPage(ctx context.Context, cursor []byte) []byte {
	body := append([]byte(nil), `{"jsonrpc":"2.0","id":"tollgate-relay","method":"tools/list","params":{`...)
	if cursor != nil {
		body = append(body, `"cursor":`...)
		body = append(body, cursor...)
		body = append(body, ',')
	}
	body = append(body, `"_meta":{`...)
	meta, _ := jsonwire.Get(x.m.params, "_meta")
	members, _ := jsonwire.Object(meta) // an object: it has the protocol version
	for _, m := range members {
		if strings.HasPrefix(m.Name, "io.modelcontextprotocol/") {
			body = jsonwire.AppendString(body, m.Name)
			body = append(body, ':')
			body = append(body, m.Value...)
			body = append(body, ',')
		}
	}
	body = append(bytes.TrimSuffix(body, []byte(",")), "}}}"...)

	ask := parse(body)
	header := http.Header{}
	setModern(header, ask)
	res, err := x.r.send(ctx, http.MethodPost, body, header)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	var found []byte
	if isEventStream(res) {
		_ = readEvents(res.Body, func(data []byte) bool { // a broken stream has no answer
			if isAnswer(data) {
				found = data
			}
			return found == nil
		})
		return found
	}
	if found, err = readBody(res); err != nil || !isAnswer(found) {
		return nil
	}
	return found
}

// blamesParams reports whether an answer refuses a call because of its
// Mcp-Param-* headers. Nothing was executed then.
func blamesParams(answer []byte) bool {
	fault, _ := jsonwire.Get(answer, "error")
	code, _ := jsonwire.Get(fault, "code")
	return string(code) == "-32020" && strings.Contains(strings.ToLower(text(fault, "message")), strings.ToLower(paramPrefix))
}
