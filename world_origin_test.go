package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/freeport"
)

// maxDocument is the gateway's bound of a registry answer and of a manifest in
// the fault matrix.
const maxDocument = 1 << 16

// An origin is a Portal or a Tool Service on a port of its own: GET is answered
// with its document, POST with a tool's result. Its faults are in documents;
// only an origin that is down answers no calls either.
type origin struct {
	t    *testing.T
	addr string // host:port; stays the same while the origin is down

	mu       sync.Mutex
	server   *http.Server // nil: down
	document string
	fault    fault
	odd      map[string]string // the documents of the faults that are another document, by their names
	delay    time.Duration     // before each document
	fetches  int               // of the document, with and without a fault
	strayed  int               // requests for the place a redirect names
}

// newOrigin starts an origin that is well.
func newOrigin(t *testing.T, document string) *origin {
	t.Helper()
	o := &origin{t: t, document: document, addr: freeAddr(t)}
	if err := o.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stop)
	return o
}

func (o *origin) url() string { return "http://" + o.addr }

func (o *origin) listen() error {
	listener, err := freeport.Listen(o.addr)
	if err != nil {
		return err
	}
	o.server = &http.Server{Handler: http.HandlerFunc(o.serve)}
	go o.server.Serve(listener)
	return nil
}

// stop ends the origin: connections are cut, new ones refused.
func (o *origin) stop() {
	o.mu.Lock()
	server := o.server
	o.server = nil
	o.mu.Unlock()
	if server != nil {
		server.Close()
		awaitRefusal(o.t, o.addr)
	}
}

// serves changes what the origin says when it is well.
func (o *origin) serves(document string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.document = document
}

// after makes the origin think so long before each answer with its document.
func (o *origin) after(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.delay = d
}

// begin makes the origin misbehave from now on.
func (o *origin) begin(f fault) {
	if f.name == down.name {
		o.stop()
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = f
}

// mend ends whatever is wrong with the origin.
func (o *origin) mend() {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = fault{}
	if o.server == nil {
		if err := o.listen(); err != nil {
			o.t.Fatal(err)
		}
	}
}

// fetched is how often the document was asked for.
func (o *origin) fetched() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fetches
}

// answersOddly has it answer faults of these names with these documents. A stranger may
// ask already, who had the address before.
func (o *origin) answersOddly(documents map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.odd = documents
}

// followed is how often somebody went where a redirect pointed.
func (o *origin) followed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.strayed
}

func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // or the server does not notice that the caller left
	o.mu.Lock()
	document, f, delay := o.document, o.fault, o.delay
	if odd, ok := o.odd[f.name]; ok {
		document = odd
	}
	switch {
	case r.Method == http.MethodPost:
		if f.name != hung.name {
			f = fault{}
		}
		document = `{"done":true}`
	case r.URL.Path == elsewhere:
		o.strayed++
		f = fault{}
	default:
		o.fetches++
	}
	o.mu.Unlock()
	if r.Method == http.MethodGet && !wait(r, delay) {
		return
	}
	if f.answer != nil {
		f.answer(w, r, document)
		return
	}
	answerDocument(w, r, document)
}

// wait reports false when the caller left before d was over.
func wait(r *http.Request, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}

// answerDocument answers as a well-kept server does, with an ETag.
func answerDocument(w http.ResponseWriter, r *http.Request, document string) {
	w.Header().Set("Content-Type", "application/json")
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(document)))
	w.Header().Set("ETag", etag)
	if r.Method == http.MethodGet && r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	io.WriteString(w, document)
}

// elsewhere is where a redirect points: to the true document.
const elsewhere = "/elsewhere"

// A fault is a way in which an origin's document is not what it should be.
type fault struct {
	name   string
	answer func(w http.ResponseWriter, r *http.Request, document string) // nil: as if all were well
}

// The faults of the matrix. Those without an answer of their own are answers
// with another document, which the origin's odd holds; down is no answer at all.
var (
	down         = fault{name: "down"}
	slow         = fault{"slow", func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }}
	resetMidBody = fault{"reset mid-body", answerHalf}
	status500    = fault{"500", func(w http.ResponseWriter, _ *http.Request, d string) { answerAs(w, 500, "application/json", d) }}
	html200      = fault{"HTML 200", func(w http.ResponseWriter, _ *http.Request, _ string) { answerAs(w, 200, "text/html", signIn) }}
	invalidJSON  = fault{"invalid JSON", func(w http.ResponseWriter, _ *http.Request, d string) {
		answerAs(w, 200, "application/json", d[:len(d)-1])
	}}
	oversize = fault{"oversize", func(w http.ResponseWriter, _ *http.Request, d string) {
		answerAs(w, 200, "application/json", d+strings.Repeat(" ", maxDocument))
	}}
	emptyList     = fault{name: "empty list"}
	halfList      = fault{name: "half list"}
	halfBroken    = fault{name: "half broken"}
	wrongBundleID = fault{name: "wrong bundleId"}
	hung          = fault{"hung", slow.answer} // calls are not answered either
	redirect      = fault{"redirect", func(w http.ResponseWriter, r *http.Request, _ string) {
		http.Redirect(w, r, elsewhere, http.StatusFound)
	}}
)

// signIn is what a proxy in front of an origin likes to say instead of it.
const signIn = "<!doctype html><title>Sign in</title><p>Your session is over."

func answerAs(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// answerHalf announces the whole document, sends half of it and resets the
// connection, as a process that crashed does.
func answerHalf(w http.ResponseWriter, _ *http.Request, document string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(document)))
	io.WriteString(w, document[:len(document)/2])
	control := http.NewResponseController(w)
	control.Flush()
	conn, _, err := control.Hijack()
	if err != nil {
		panic(err)
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// manifestOf is the manifest of a service with the named tools.
func manifestOf(service string, tools ...string) string {
	var list []string
	for _, name := range tools {
		list = append(list, fmt.Sprintf(`{"name":%q,"description":"Does %[1]s.","inputSchema":{"type":"object"},"_meta":{"version":"1"}}`, name))
	}
	return fmt.Sprintf(`{"bundleId":%q,"tools":[%s]}`, service, strings.Join(list, ","))
}

// registryOf is the Portal's answer with the given entries.
func registryOf(entries ...string) string {
	return `{"registryRevision":"1","routes":[` + strings.Join(entries, ",") + `]}`
}

// entryOf is one route of the Portal's answer; services are pairs of a key and
// an origin's URL.
func entryOf(route string, services ...string) string {
	var list []string
	for pair := range slices.Chunk(services, 2) {
		list = append(list, fmt.Sprintf(`{"serviceKey":%q,"serviceDomain":%q,"manifestPath":"/manifest"}`, pair[0], pair[1]))
	}
	return fmt.Sprintf(`{"routeKey":%q,"toolServices":[%s]}`, route, strings.Join(list, ","))
}
