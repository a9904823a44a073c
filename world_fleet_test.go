package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A fleet is a Portal with many routes and their Tool Services, each service an
// origin of its own. Some of them fail.
type fleet struct {
	routes  []fleetRoute
	Portal  string // URL of the registry answer
	fetches fetchCount

	byKey  map[string]*fleetService
	server *http.Server
}

type fleetRoute struct {
	key      string
	services []*fleetService
}

// tools are the names a route lists of the services that do not fail.
func (r fleetRoute) tools() (names []string) {
	for _, s := range r.services {
		if s.fault == healthy {
			names = append(names, s.tools...)
		}
	}
	return names
}

// faulty says that one of the route's services fails.
func (r fleetRoute) faulty() bool {
	for _, s := range r.services {
		if s.fault != healthy {
			return true
		}
	}
	return false
}

// ailment is how a service answers.
type ailment int

const (
	healthy ailment = iota
	refused         // nobody listens
	broken          // status 500
	hanging         // takes the request and never answers
)

type fleetService struct {
	key, domain string
	fault       ailment
	tools       []string
	manifest    []byte
	fetched     atomic.Int64
}

// fleetSize says what a fleet consists of.
type fleetSize struct {
	routes   int
	services int // of each route
	tools    int // of each service
	every    int // one service in so many fails; 0 = none

	oneHost bool // all services are one origin: for more of them than a process may have sockets
}

// newFleet starts the origins. Failing services are spread evenly; of each three
// one is refused, one broken and one hanging.
func newFleet(tb testing.TB, size fleetSize) *fleet {
	tb.Helper()
	f := &fleet{byKey: map[string]*fleetService{}, server: &http.Server{}}
	f.server.Handler = f
	var serving sync.WaitGroup
	tb.Cleanup(func() {
		f.server.Close()
		serving.Wait()
	})
	listen := func() string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		serving.Go(func() { f.server.Serve(listener) })
		return "http://" + listener.Addr().String()
	}
	f.Portal = listen() + "/registry"
	for n := range size.routes {
		route := fleetRoute{key: fmt.Sprintf("route-%04d", n)}
		for range size.services {
			s := newFleetService(n*size.services+len(route.services), size)
			s.domain = "http://127.0.0.1:1"
			switch {
			case s.fault == refused:
			case size.oneHost:
				s.domain = strings.TrimSuffix(f.Portal, "/registry")
			default:
				s.domain = listen()
			}
			f.byKey[s.key] = s
			route.services = append(route.services, s)
		}
		f.routes = append(f.routes, route)
	}
	return f
}

func newFleetService(n int, size fleetSize) *fleetService {
	s := &fleetService{key: fmt.Sprintf("service-%05d", n)}
	if size.every > 0 && n%size.every == size.every/2 {
		s.fault = refused + ailment(n/size.every%3)
	}
	var tools []string
	for i := range size.tools {
		_, schema := benchListTool(i)
		name := fmt.Sprintf("tool_%05d_%02d", n, i)
		s.tools = append(s.tools, name)
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"Does thing %d of service %d.","inputSchema":%s,"_meta":{"version":"1"}}`, name, i, n, schema))
	}
	s.manifest = fmt.Appendf(nil, `{"bundleId":%q,"tools":[%s]}`, s.key, strings.Join(tools, ","))
	return s
}

// config is a configuration file that names the fleet's Portal. more are further
// lines of the section registry.
func (f *fleet) config(tb testing.TB, more ...string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tollgate.yaml")
	writeFile(tb, path, fmt.Sprintf("shutdown: {delay: 0s}\nregistry:\n  portal: {url: %q}\n", f.Portal)+strings.Join(more, "\n")+"\n")
	return path
}

// ServeHTTP answers as the Portal or as one of the Tool Services, whose paths
// begin with their keys.
func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, _, _ := strings.Cut(r.URL.Path[1:], "/")
	if key == "registry" {
		w.Write(f.declaration())
		return
	}
	s := f.byKey[key]
	s.fetched.Add(1)
	f.fetches.arrive()
	switch s.fault {
	case hanging:
		<-r.Context().Done()
	case broken:
		f.fetches.pass()
		http.Error(w, "broken", http.StatusInternalServerError)
	default:
		f.fetches.pass()
		w.Write(s.manifest)
	}
}

// declaration is the registry answer.
func (f *fleet) declaration() []byte {
	type member struct {
		ServiceKey    string `json:"serviceKey"`
		ServiceDomain string `json:"serviceDomain"`
		ManifestPath  string `json:"manifestPath"`
	}
	type entry struct {
		RouteKey     string   `json:"routeKey"`
		ToolServices []member `json:"toolServices"`
	}
	entries := make([]entry, 0, len(f.routes))
	for _, route := range f.routes {
		e := entry{RouteKey: route.key}
		for _, s := range route.services {
			e.ToolServices = append(e.ToolServices, member{s.key, s.domain, "/" + s.key + "/manifest"})
		}
		entries = append(entries, e)
	}
	data, err := json.Marshal(map[string]any{"registryRevision": "1", "routes": entries})
	if err != nil {
		panic(err) // strings only
	}
	return data
}

// fetchCount counts the fetches under way at one time that are going to be
// answered. Those of a hanging service are left out: the gateway has given one
// up a moment before its origin can know.
type fetchCount struct {
	mu       sync.Mutex
	now, max int

	takes    time.Duration // to answer one
	missing  int           // how many of those that wait for each other have yet to come
	together chan struct{} // closed when all have; nil = none waits
}

// meetAt holds the first n fetches until all n are under way.
func (c *fetchCount) meetAt(n int) { c.missing, c.together = n, make(chan struct{}) }

// arrive notes a fetch, hanging or not.
func (c *fetchCount) arrive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing--; c.missing == 0 {
		close(c.together)
	}
}

// pass is the time until just before a fetch is answered.
func (c *fetchCount) pass() {
	c.mu.Lock()
	c.now++
	c.max = max(c.max, c.now)
	c.mu.Unlock()
	if c.together != nil {
		<-c.together
	}
	time.Sleep(c.takes)
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
}

// atATime returns the largest number so far.
func (c *fetchCount) atATime() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.max
}
