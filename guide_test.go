package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/registry"
	"tollgate/server"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// basketAdd is the handler that the guide shows.
func basketAdd(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Basket struct { // the state, in the place of the handle
			Articles []string `json:"articles"`
		} `json:"basket"`
		Article string `json:"article"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil || len(call.Basket.Articles) >= 100 {
		http.Error(w, "no basket, or a full one", http.StatusUnprocessableEntity) // the state stays as it was
		return
	}
	call.Basket.Articles = append(call.Basket.Articles, call.Article)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"basket": call.Basket, "count": len(call.Basket.Articles)})
}

// shop is the Tool Service of the guide's section on state. It keeps what it was
// sent last.
type shop struct {
	manifest string
	answers  map[string]string // of the tools that only answer, by name

	mu   sync.Mutex
	body string
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/tool-manifest" {
		io.WriteString(w, s.manifest)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.body = string(body)
	s.mu.Unlock()
	if tool := path.Base(r.URL.Path); tool != "basket_add" {
		io.WriteString(w, s.answers[tool])
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	basketAdd(w, r)
}

// got is what a tool was sent last.
func (s *shop) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

var exchanged = regexp.MustCompile(`(?m)^(the agent calls with|you get|you answer|the agent gets) +(\{.*\})$`)

// tabled are the rows of the tools that only create or read: what the service gets
// and answers, and what the agent gets.
var tabled = regexp.MustCompile("(?m)^\\| `(basket_create|basket_show)` \\| `(.*)` \\| `(.*)` \\| `(.*)` \\|$")

// TestTheGuidesStateIsWhatHappens makes the calls of the guide through a gateway.
func TestTheGuidesStateIsWhatHappens(t *testing.T) {
	section := section(t, readText(t, "docs", "tool-service-guide.md"), "## 5. State between calls")
	said := map[string]string{}
	for _, line := range exchanged.FindAllStringSubmatch(section, -1) {
		said[line[1]] = line[2]
	}
	manifest := jsonBlock.FindStringSubmatch(section)
	rows := tabled.FindAllStringSubmatch(section, -1)
	if len(said) != 4 || len(rows) != 2 || manifest == nil {
		t.Fatalf("the guide has %d lines of the exchange, and %d rows", len(said), len(rows))
	}
	create, show := rows[0], rows[1]
	if code := goBlock.FindStringSubmatch(section); code == nil || !strings.Contains(readText(t, "guide_test.go"), "\n"+code[1]) {
		t.Error("the guide does not show the handler as it is here")
	}
	answer := httptest.NewRecorder()
	basketAdd(answer, httptest.NewRequest(http.MethodPost, "/mcp/basket_add", strings.NewReader(said["you get"])))
	if got := strings.TrimSpace(answer.Body.String()); got != said["you answer"] {
		t.Errorf("the handler answers %s, the guide says %s", got, said["you answer"])
	}
	service := &shop{manifest: manifest[1], answers: map[string]string{create[1]: create[3], show[1]: show[3]}}
	origin := httptest.NewServer(service)
	defer origin.Close()

	call := callsTo(t, origin.URL)
	var created, wanted struct{ Basket string }
	if err := json.Unmarshal([]byte(call("basket_create", `{}`)), &created); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(said["the agent calls with"]), &wanted); err != nil {
		t.Fatal(err)
	}
	ours := strings.NewReplacer(wanted.Basket, created.Basket)
	if got := service.got(); got != create[2] || ours.Replace(create[4]) != `{"basket":"`+created.Basket+`"}` {
		t.Errorf("the guide says of creating %q, but the service gets %s", create, got)
	}
	call("basket_add", `{"basket":"`+created.Basket+`","article":"A-1"}`)
	if got, want := call("basket_add", ours.Replace(said["the agent calls with"])), ours.Replace(said["the agent gets"]); got != want {
		t.Errorf("the agent gets %s, want %s", got, want)
	}
	if got := service.got(); got != said["you get"] {
		t.Errorf("the service gets %s, want %s", got, said["you get"])
	}
	if got := call("basket_show", `{"basket":"`+created.Basket+`"}`); got != show[4] || service.got() != show[2] {
		t.Errorf("the guide says of reading %q, but the service gets %s, the agent %s", show, service.got(), got)
	}
	if len(wanted.Basket) != len(created.Basket) || wanted.Basket[:3] != created.Basket[:3] {
		t.Errorf("the guide shows the handle %s, which has another form than %s", wanted.Basket, created.Basket)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestTheGuidesConfigurationServesState: what somebody pastes to try the guide's
// tools on one machine serves them, and says that it has no keys.
func TestTheGuidesConfigurationServesState(t *testing.T) {
	const shown = "http://127.0.0.1:9001"
	section := section(t, readText(t, "docs", "tool-service-guide.md"), "## 5. State between calls")
	config, manifest := yamlBlock.FindStringSubmatch(section), jsonBlock.FindStringSubmatch(section)
	if config == nil || manifest == nil || !strings.Contains(config[1], shown) {
		t.Fatal("the guide has no configuration for its manifest")
	}
	origin := httptest.NewServer(&shop{manifest: manifest[1]})
	defer origin.Close()
	file := filepath.Join(t.TempDir(), "shop.yaml")
	writeFile(t, file, strings.ReplaceAll(config[1], shown, origin.URL))
	o := tollgate(t, "check", "--config", file, "--live")
	if want := "ok: 1 route\n  shop: 3 tools of 1 service\nhandle keys: none\n"; o.code != 0 || o.stdout != want {
		t.Errorf("exit code %d\n%s%s, want %s", o.code, o.stdout, o.stderr, want)
	}
}

// callsTo is a gateway with one route, of a Tool Service at an address. It returns
// what calls a tool there: the text of the result.
func callsTo(t *testing.T, address string) func(tool, arguments string) string {
	t.Helper()
	up, err := upstream.New(upstream.Options{Config: upstream.DefaultConfig(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	routes, err := registry.New(registry.Options{
		Config: registry.DefaultConfig(), Transport: up.Transport(), States: registry.StateSupport{Stored: true},
		Routes: []registry.Route{{Key: "shop", Services: []registry.Service{
			{Key: "shop", ManifestURL: address + "/tool-manifest", BaseEndpoint: address + "/mcp", Enabled: true},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(routes.Close)
	routes.Start()
	<-routes.Preloaded()
	gateway, err := server.New(server.Options{
		Identity: "tollgate", Routes: routes, Upstream: up, Version: "test", CacheScope: server.CachePublic, MaxRequestBytes: 1 << 20, Drain: time.Second,
		Stored: handle.NewStored(new(handle.Memory)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(tool, arguments string) string {
		t.Helper()
		request := httptest.NewRequest(http.MethodPost, "/mcp/shop", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`}}`))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		gateway.ServeHTTP(recorder, request)
		var answer struct {
			Result struct {
				IsError bool
				Content []struct{ Text string }
			}
		}
		if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Result.IsError || len(answer.Result.Content) != 1 {
			t.Fatalf("%s: %d %s", tool, recorder.Code, recorder.Body)
		}
		return answer.Result.Content[0].Text
	}
}
