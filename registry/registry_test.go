package registry

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func fallbackFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fallback.json")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStaticRoutes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.serve(alpha, "a.one")
		r := w.loaded(t, static(Route{Key: "plant", Services: []Service{staticService(alpha, "")}}))
		s := ask(t, r, "plant")
		wantTools(t, s, "a.one")
		if got := s.Tools[0].URL; got != "http://alpha.test/mcp/a.one" {
			t.Errorf("called at %s", got)
		}
		if _, err := r.Snapshot(t.Context(), "nope"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("an unknown route: %v", err)
		}
		time.Sleep(time.Hour)
		ask(t, r, "plant")
		if got := w.total(); got != 2 {
			t.Errorf("%d fetches, want 2: there is no Portal", got)
		}
		if r.Status().Portal != nil {
			t.Error("the status shows a Portal")
		}
	})
}

func TestStaticRouteThatIsNeverDue(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		off := staticService(alpha, "")
		off.Enabled = false
		r := w.loaded(t, static(Route{Key: "plant", Services: []Service{off}}))
		defer r.Subscribe("plant")()
		time.Sleep(time.Hour)
		wantTools(t, ask(t, r, "plant"), "")
		if got := r.NextCheck("plant"); got != 300*time.Second || w.total() != 0 {
			t.Errorf("due in %v, %d fetches", got, w.total())
		}
	})
}

func TestStaticBaseEndpointIsCleaned(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.serve(alpha, "a.one")
		service := staticService(alpha, "")
		service.BaseEndpoint = "http://alpha.test/x/"
		routes := []Route{{Key: "plant", Services: []Service{service}}}
		r := w.loaded(t, static(routes...))
		if got := ask(t, r, "plant").Tools[0].URL; got != "http://alpha.test/x/a.one" {
			t.Errorf("called at %s", got)
		}
		if routes[0].Services[0].BaseEndpoint != "http://alpha.test/x/" {
			t.Error("New changed the caller's routes")
		}
	})
}

func TestFallbackFile(t *testing.T) {
	file := fallbackFile(t, manifestOf("alpha", "a.file"))
	in(t, func(t *testing.T, w *world) {
		w.put(alpha.url(), after(2*time.Second, status(503, "")))
		route := Route{Key: "plant", Services: []Service{staticService(alpha, file)}}
		r := w.registry(t, static(route))
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.file") }); took != 2*time.Second {
			t.Errorf("the file served after %v: the origin comes first", took)
		}
		bundle := func() BundleStatus { return r.Status().Routes[0].Bundles[0] }
		if b := bundle(); b.Condition != Fallback || b.Source != SourceFile || b.Tools != 1 {
			t.Errorf("shown as %+v", b)
		}
		// The origin wins as soon as it answers, and the file never comes back.
		w.serve(alpha, "a.origin")
		w.at(7)
		wantTools(t, ask(t, r, "plant"), "a.origin")
		if b := bundle(); b.Condition != Healthy || b.Source != SourceOrigin {
			t.Errorf("shown as %+v", b)
		}
		w.down(alpha.url())
		w.at(400)
		wantTools(t, ask(t, r, "plant"), "a.origin")
		if b := bundle(); b.Condition != Degraded || b.Source != SourceMemory || *b.LastFailureReason != FailedConnect {
			t.Errorf("shown as %+v", b)
		}
	})
	in(t, func(t *testing.T, w *world) { // an empty answer of a service that starts
		w.down(alpha.url())
		r := w.loaded(t, static(Route{Key: "plant", Services: []Service{staticService(alpha, file)}}))
		w.serve(alpha)
		w.at(5)
		wantTools(t, ask(t, r, "plant"), "a.file")
		w.at(35)
		wantTools(t, ask(t, r, "plant"), "")
	})
}

func TestNewFindsEverythingWrong(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		bad := staticService(alpha, fallbackFile(t, manifestOf("other", "a.one")))
		gone := staticService(beta, filepath.Join(t.TempDir(), "gone.json"))
		outside := staticService(svc{key: "gamma", prefix: "c."}, fallbackFile(t, manifestOf("gamma", "x.one")))
		clash := staticService(svc{key: "delta", prefix: "a.b."}, "")
		config := DefaultConfig()
		config.RefreshWait = -1
		_, err := New(Options{Config: config, Transport: w, Routes: []Route{
			{Key: "plant", Services: []Service{bad, gone, outside, clash}},
			{Key: "empty"},
			{Key: "empty"},
			{Key: "..", Services: []Service{{Key: "x y", ManifestURL: "ftp://x/", BaseEndpoint: "http://x.test/mcp", Enabled: true}}},
		}})
		if err == nil {
			t.Fatal("accepted")
		}
		for _, want := range []string{
			"registry.refreshWait: must not be negative",
			"registry.routes.plant: service alpha: fallbackManifestFile: invalid_manifest",
			"registry.routes.plant: service beta: fallbackManifestFile: open ",
			"registry.routes.plant: service gamma: fallbackManifestFile: invalid_manifest",
			"registry.routes.plant: /3/namePrefix",
			"registry.routes.empty: has no services",
			"registry.routes.empty: is declared twice",
			"registry.routes...: ",
			"/0/manifestUrl",
			"/0/id is ",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q", want)
			}
		}
		if t.Failed() {
			t.Log(err)
		}
	})
}

func TestNewWantsOneOriginOfRoutes(t *testing.T) {
	config := DefaultConfig()
	transport := http.DefaultTransport
	if _, err := New(Options{Config: config, Transport: transport}); err == nil || !strings.Contains(err.Error(), "registry.portal.url or registry.routes") {
		t.Errorf("neither: %v", err)
	}
	config.Portal.URL = portalURL
	routes := []Route{{Key: "plant", Services: []Service{staticService(alpha, "")}}}
	if _, err := New(Options{Config: config, Transport: transport, Routes: routes}); err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Errorf("both: %v", err)
	}
	if _, err := New(Options{Config: config}); err == nil || !strings.Contains(err.Error(), "transport") {
		t.Errorf("no transport: %v", err)
	}
}

func TestTwoFallbackFilesForOneService(t *testing.T) {
	config := DefaultConfig()
	one, two := fallbackFile(t, manifestOf("alpha", "a.one")), fallbackFile(t, manifestOf("alpha", "a.two"))
	_, err := New(Options{Config: config, Transport: http.DefaultTransport, Routes: []Route{
		{Key: "plant", Services: []Service{staticService(alpha, one)}},
		{Key: "lab", Services: []Service{staticService(alpha, two)}},
	}})
	if err == nil || !strings.Contains(err.Error(), "another fallbackManifestFile") {
		t.Errorf("got %v", err)
	}
}
