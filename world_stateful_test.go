package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// A statefulService is a Tool Service, counting, of the routes first and second,
// whose tools keep a count between calls, in a state of one mode.
type statefulService struct {
	mode   string // signed, stored, or "" for tools without state
	server *httptest.Server
}

func newStatefulService(t *testing.T, mode string) *statefulService {
	t.Helper()
	s := &statefulService{mode: mode}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *statefulService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		s.count(w, r)
		return
	}
	state := func(members string) string {
		if s.mode == "" {
			return ""
		}
		return fmt.Sprintf(`,"state":{"mode":%q,%s}`, s.mode, members)
	}
	tool := `{"name":%q,"description":"Counts.","inputSchema":{"type":"object"%s},"_meta":{"version":"1"%s}}`
	fmt.Fprintf(w, `{"bundleId":"counting","tools":[`+tool+`,`+tool+`]}`,
		"create", "", state(`"field":"handle"`),
		"increment", `,"properties":{"handle":{"type":"string"}},"required":["handle"]`, state(`"field":"handle","argument":"handle"`))
}

// count answers with a state and a count that is one more than in the state that
// came.
func (s *statefulService) count(w http.ResponseWriter, r *http.Request) {
	var arguments struct {
		Handle struct{ Count int } `json:"handle"`
	}
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &arguments) != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	fmt.Fprintf(w, `{"handle":{"count":%d},"count":%[1]d}`, arguments.Handle.Count+1)
}

// config is a configuration of both routes.
func (s *statefulService) config(t *testing.T, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tollgate.yaml")
	service := fmt.Sprintf("[{id: counting, manifestUrl: %q, baseEndpoint: %q}]", s.server.URL+"/manifest", s.server.URL)
	writeFile(t, path, "shutdown: {delay: 0s}\nregistry: {routes: {first: "+service+", second: "+service+"}}\n"+strings.Join(more, "\n")+"\n")
	return path
}
