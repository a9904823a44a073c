package main

import (
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A talkativeWorld is a Portal and Tool Services that put sentinels into
// everything they say, whatever their fault, and a configuration of them with
// sentinels for secrets.
type talkativeWorld struct {
	secrets sentinels
	server  *httptest.Server
	portal  atomic.Value  // string: how the Portal is doing, see answerPortal
	let     chan struct{} // closed: held calls are answered
	held    chan struct{} // a call of the tool hold has arrived
	mu      sync.Mutex
	spans   []byte // what the collector of traces was sent

	token, redisUser, redisPassword, otlp string
	handleKeys                            string // as TOLLGATE_HANDLE_KEYS has them
	keysInFile                            bool   // the configuration names a file with handleKeys
	path, prefix, host, address           string // of Tool Services
	body, said                            string // what faulty origins say, in bodies and in headers
	result, query                         string
	signedState, storedState              string
	asked                                 atomic.Int64 // how often the Portal was, with its token
}

func newTalkativeWorld(t *testing.T) *talkativeWorld {
	t.Helper()
	w := &talkativeWorld{let: make(chan struct{}), held: make(chan struct{}, 1)}
	w.token = w.secrets.add("the Portal's token", forNobody)
	w.redisUser = w.secrets.addName("Redis' user", forNobody)
	w.redisPassword = w.secrets.add("Redis' password", forNobody)
	w.otlp = w.secrets.add("a token in the OTLP endpoint", forNobody)
	w.handleKeys = w.newHandleKey("signs") + "," + w.newHandleKey("verifies")
	w.query = w.secrets.add("the query of a URL", forNobody)
	w.said = w.secrets.add("a header of an origin", forNobody)
	w.body = w.secrets.add("a body of an origin that failed", forAgent)
	w.result = w.secrets.add("a result", forAgent)
	w.signedState = w.secrets.add("a state in its handle", forAgent)
	w.storedState = w.secrets.add("a state in a store", forNobody)
	w.path = w.secrets.addName("a path", forOperator)
	w.prefix = w.secrets.addName("a prefix", forOperator)
	w.host = w.secrets.addName("a host", forOperator)
	w.address = w.secrets.addName("credentials in an address the Portal names", forNobody)
	w.portal.Store("good")
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	return w
}

// newHandleKey makes a key that is a sentinel, whether it is seen as it is written
// down or as the bytes it stands for.
func (w *talkativeWorld) newHandleKey(id string) string {
	secret := w.secrets.add("the key that "+id, forNobody)
	return id + ":" + base64.StdEncoding.EncodeToString([]byte(secret+secret))
}

// ServeHTTP implements http.Handler.
func (w *talkativeWorld) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	to.Header().Set("Content-Type", "application/json")
	for _, name := range []string{"Set-Cookie", "Server", "X-Debug", "ETag"} {
		to.Header().Set(name, `"`+w.said+`"`)
	}
	switch {
	case r.URL.Path == "/registry":
		w.answerPortal(to, r)
	case strings.HasPrefix(r.URL.Path, "/traces/"):
		w.takeSpans(to, r)
	case r.Method == http.MethodGet:
		w.answerManifest(to, r, strings.TrimPrefix(r.URL.Path, "/"+w.path+"/"))
	default:
		body, _ := io.ReadAll(r.Body)
		w.answerCall(to, r, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], body)
	}
}

func (w *talkativeWorld) fail(to http.ResponseWriter, status int) {
	to.Header().Set("WWW-Authenticate", `Bearer realm="`+w.said+`"`)
	to.Header().Set("Location", w.server.URL+"/elsewhere?"+url.QueryEscape(w.said))
	to.WriteHeader(status)
	fmt.Fprintf(to, `{"error":%q}`, w.body)
}

// takeSpans keeps what a collector is told, and does not thank for it.
func (w *talkativeWorld) takeSpans(to http.ResponseWriter, r *http.Request) {
	body, err := gzip.NewReader(r.Body)
	if err == nil {
		spans, _ := io.ReadAll(body)
		w.mu.Lock()
		w.spans = append(w.spans, spans...)
		w.mu.Unlock()
	}
	w.fail(to, http.StatusInternalServerError)
}

// hangUp ends the connection in the middle of an answer.
func hangUp(to http.ResponseWriter) {
	to.Header().Set("Content-Length", "1000")
	io.WriteString(to, "{")
	panic(http.ErrAbortHandler)
}

func (w *talkativeWorld) answerPortal(to http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") == "Bearer "+w.token {
		w.asked.Add(1)
	}
	switch w.portal.Load() {
	case "good":
		io.WriteString(to, w.declaration())
	case "garbage":
		io.WriteString(to, w.body)
	case "refused as a whole":
		fmt.Fprintf(to, `{"routes":[{"routeKey":%q}]}`, w.host+"!") // the validator may quote it to the operator
	case "broken off":
		hangUp(to)
	case "redirecting":
		w.fail(to, http.StatusFound)
	case "failing":
		w.fail(to, http.StatusInternalServerError)
	default:
		w.fail(to, http.StatusUnauthorized)
	}
}

// portalFaults are the ways in which the Portal can fail.
var portalFaults = []string{"garbage", "refused as a whole", "broken off", "redirecting", "failing", "unauthorized"}

// manifestFaults are the services of the route faulty, by their faults. The
// answer is that of the path.
var manifestFaults = []string{"failing", "unauthorized", "redirecting", "garbage", "invalid", "strange-schema", "foreign", "broken-off", "hanging", "prefixed"}

func (w *talkativeWorld) declaration() string {
	entry := func(key, domain, more string) string {
		return fmt.Sprintf(`{"serviceKey":%q,"serviceDomain":%q,"manifestPath":"/%s/%[1]s","executionPath":"/%[3]s/%[1]s"%[4]s}`, key, domain, w.path, more)
	}
	faulty := []string{
		entry("refused", "http://127.0.0.1:1", ""),
		entry("unknown-host", "http://"+w.host+".invalid", ""),
	}
	for _, fault := range manifestFaults {
		more := ""
		if fault == "prefixed" {
			more = fmt.Sprintf(`,"namePrefix":%q`, w.prefix)
		}
		faulty = append(faulty, entry(fault, w.server.URL, more))
	}
	return fmt.Sprintf(`{"registryRevision":"1","routes":[
		{"routeKey":"claims","toolServices":[%s]},
		{"routeKey":"faulty","toolServices":[%s]},
		{"routeKey":"invalid","toolServices":[%s,%s]},
		{"routeKey":"overlapping","toolServices":[%s,%s]}]}`,
		entry("good", w.server.URL, ""), strings.Join(faulty, ","),
		entry("userinfo", "http://user:"+w.address+"@127.0.0.1:1", ""),
		entry("query", "http://127.0.0.1:1/?"+w.address, ""),
		entry("a", w.server.URL, fmt.Sprintf(`,"namePrefix":%q`, w.prefix)),
		entry("b", "http://"+w.host+".invalid/"+w.path, fmt.Sprintf(`,"namePrefix":%q`, w.prefix+"."))) // the validator may quote them, too
}

func (w *talkativeWorld) answerManifest(to http.ResponseWriter, r *http.Request, service string) {
	tool := func(name, more string) string {
		return fmt.Sprintf(`{"name":%q,"description":"A tool.","inputSchema":{"type":"object","properties":{"kind":{"enum":["a","b"]}}},"_meta":{"version":"1","timeoutMillis":500}%s}`, name, more)
	}
	var tools []string
	switch service {
	case "good":
		for _, name := range toolFaults {
			tools = append(tools, tool(name, ""))
		}
		tools = append(tools, tool("echo", ""), tool("typed", `,"outputSchema":{"type":"object","required":["rows"],"properties":{"rows":{"type":"array"}}}`))
		tools = append(tools, strings.Replace(tool("hold", ""), "500", "30000", 1))
		for _, mode := range []string{"signed", "stored"} {
			state := func(tool, state string) string {
				return strings.Replace(tool, `"_meta":{`, fmt.Sprintf(`"_meta":{"state":{"mode":%q,%s},`, mode, state), 1)
			}
			tools = append(tools, state(tool("keep-"+mode, ""), `"field":"handle"`),
				strings.Replace(state(tool("use-"+mode, ""), `"argument":"handle"`), `"properties":{`, `"properties":{"handle":{"type":"string"},`, 1))
		}
	case "garbage":
		io.WriteString(to, w.body)
		return
	case "invalid": // the validator may quote it to the operator
		tools = []string{fmt.Sprintf(`{"name":%q,"description":7,"inputSchema":{"type":%q},"_meta":{"version":%[1]q,"timeoutMillis":%[1]q}}`, w.host+"!", w.path)}
	case "strange-schema":
		tools = []string{fmt.Sprintf(`{"name":"a","description":"A tool.","inputSchema":{"type":"object","$ref":%q,"pattern":"(%s"},"_meta":{"version":"1"}}`, "http://"+w.host+"/"+w.path, w.path)}
	case "foreign":
		service = w.host
	case "broken-off":
		hangUp(to)
	case "hanging":
		<-r.Context().Done()
		return
	case "prefixed":
		tools = []string{tool("unprefixed", "")}
	case "failing":
		w.fail(to, http.StatusInternalServerError)
		return
	case "unauthorized":
		w.fail(to, http.StatusUnauthorized)
		return
	case "redirecting":
		w.fail(to, http.StatusFound)
		return
	}
	fmt.Fprintf(to, `{"bundleId":%q,"tools":[%s]}`, service, strings.Join(tools, ","))
}

// toolFaults are tools of the service good, by their faults.
var toolFaults = []string{"failing", "refusing", "gone", "redirecting", "garbage", "markup", "late", "broken-off", "large", "costly", "coded"}

func (w *talkativeWorld) answerCall(to http.ResponseWriter, r *http.Request, tool string, body []byte) {
	switch tool {
	case "echo":
		w.answerEcho(to, r, body)
	case "keep-signed":
		fmt.Fprintf(to, `{"handle":%q}`, w.signedState)
	case "keep-stored":
		fmt.Fprintf(to, `{"handle":{"kept":%q}}`, w.storedState)
	case "use-signed":
		fmt.Fprintf(to, `{"used":%t}`, string(body) == fmt.Sprintf(`{"handle":%q}`, w.signedState))
	case "use-stored":
		fmt.Fprintf(to, `{"used":%t}`, string(body) == fmt.Sprintf(`{"handle":{"kept":%q}}`, w.storedState))
	case "hold":
		w.held <- struct{}{}
		select {
		case <-w.let:
		case <-r.Context().Done():
		}
		fmt.Fprintf(to, `{"result":%q}`, w.result)
	case "typed":
		fmt.Fprintf(to, `{"rows":%q}`, w.result)
	case "garbage":
		io.WriteString(to, `{"`+w.result)
	case "markup":
		to.Header().Set("Content-Type", "text/html")
		io.WriteString(to, "<html><title>"+w.result+"</title>"+w.result)
	case "late":
		<-r.Context().Done()
	case "broken-off":
		hangUp(to)
	case "large":
		io.WriteString(to, `"`+strings.Repeat(w.result, 1<<10)+`"`)
	case "costly":
		to.Header().Set("X-Agent-Cost", w.said)
		fmt.Fprintf(to, `{"result":%q}`, w.result)
	case "coded":
		to.Header().Set("Content-Encoding", "gzip")
		io.WriteString(to, w.result)
	case "refusing":
		w.fail(to, http.StatusUnauthorized)
	case "gone":
		w.fail(to, http.StatusGone)
	case "redirecting":
		w.fail(to, http.StatusTemporaryRedirect)
	default:
		w.fail(to, http.StatusInternalServerError)
	}
}

// answerEcho makes sure that what callers send does arrive.
func (w *talkativeWorld) answerEcho(to http.ResponseWriter, r *http.Request, body []byte) {
	for _, name := range passedHeaders {
		if r.Header.Get(name) == "" {
			http.Error(to, "no "+name, http.StatusBadRequest)
			return
		}
	}
	fmt.Fprintf(to, `{"result":%q,"sent":%s}`, w.result, body)
}

// passedHeaders reach a Tool Service with the configuration of the world.
var passedHeaders = []string{"guid", "x-request-id", "mcp-session-id", "employee-no", "virtual-employee-no", "authorization"}

// config is a configuration with every secret there can be. The secrets are in
// the environment, as they should be. origin is where Portal and collector are.
func (w *talkativeWorld) config(t *testing.T, origin, redisURL string) (path string, env []string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tollgate.yaml")
	keys := "TOLLGATE_HANDLE_KEYS=" + w.handleKeys
	handles := ""
	if w.keysInFile {
		writeFile(t, filepath.Join(filepath.Dir(path), "handle-keys"), w.handleKeys)
		keys, handles = "TOLLGATE_HANDLE_KEYS=", "\nhandles: {keysFile: handle-keys}"
	}
	writeFile(t, path, handles+`
shutdown: {delay: 0s}
redis: {url: "${REDIS_URL}"}
telemetry: {otlpEndpoint: "${OTLP_URL}"}
upstream: {passAuthorization: true, maxResponseBytes: 4096}
registry:
  portal: {url: "${PORTAL_URL}", token: "${PORTAL_TOKEN}", refreshTTL: 0s}
  manifest: {refreshTTL: 0s, connectTimeout: 300ms, readTimeout: 300ms}
  retryInterval: 1ms
  missInterval: 0s
  coldWait: 1s
`)
	return path, []string{
		"PORTAL_TOKEN=" + w.token,
		"PORTAL_URL=" + origin + "/registry?key=" + url.QueryEscape(w.query),
		"REDIS_URL=" + redisURL,
		"OTLP_URL=" + origin + "/traces/" + url.PathEscape(w.otlp),
		keys,
	}
}
