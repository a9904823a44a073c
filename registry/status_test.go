package registry

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStatusAsJSON(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		off := svc{key: "gamma", prefix: "c.", disabled: true}
		w.declare(map[string][]svc{"plant": {alpha, off}, "lab": {beta}})
		w.serve(alpha, "a.one", "a.two")
		w.put(beta.url(), status(503, ""))
		r := w.loaded(t)
		w.put(alpha.url(), says("<html>"))
		w.at(300)
		hash := ask(t, r, "plant").Hash
		got, err := json.MarshalIndent(r.Status(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want := `{
  "registryRevision": "7",
  "portal": {
    "source": "origin",
    "status": "healthy",
    "lastSuccessAt": "2000-01-01T00:05:00Z",
    "lastAttemptAt": "2000-01-01T00:05:00Z",
    "consecutiveFailures": 0,
    "lastFailureReason": null
  },
  "routes": [
    {
      "routeKey": "lab",
      "tools": 0,
      "lastCheckedAt": "2000-01-01T00:00:00Z",
      "refusedReason": "service beta never had a manifest",
      "bundles": [
        {
          "id": "beta",
          "tools": 0,
          "status": "unreachable",
          "lastSuccessAt": null,
          "lastAttemptAt": "2000-01-01T00:00:00Z",
          "consecutiveFailures": 1,
          "lastFailureReason": "status_503"
        }
      ]
    },
    {
      "routeKey": "plant",
      "tools": 2,
      "contentHash": "` + hash + `",
      "lastCheckedAt": "2000-01-01T00:05:00Z",
      "refusedReason": null,
      "bundles": [
        {
          "id": "alpha",
          "source": "memory",
          "revision": "r-a.one,a.two",
          "tools": 2,
          "status": "degraded",
          "lastSuccessAt": "2000-01-01T00:00:00Z",
          "lastAttemptAt": "2000-01-01T00:05:00Z",
          "consecutiveFailures": 1,
          "lastFailureReason": "invalid_manifest"
        },
        {
          "id": "gamma",
          "tools": 0,
          "status": "disabled",
          "lastSuccessAt": null,
          "lastAttemptAt": null,
          "consecutiveFailures": 0,
          "lastFailureReason": null
        }
      ]
    }
  ]
}`
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestStatusBeforeAnything(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.put(portalURL, after(time.Second, status(500, "")))
		r := w.registry(t)
		if p := r.Status().Portal; p.Condition != Unreachable || p.LastAttemptAt != nil || len(r.Status().Routes) != 0 {
			t.Errorf("before the first answer: %+v", p)
		}
		<-r.Preloaded()
		if p := r.Status().Portal; p.Condition != Unreachable || *p.LastFailureReason != "status_500" || p.ConsecutiveFailures != 1 {
			t.Errorf("after a failure: %+v", p)
		}
	})
}

// A service that was attached and collides is fetched, and nothing of it is served.
func TestNothingServedHasNoSource(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		gamma := svc{key: "gamma"}
		w.serve(alpha, "a.one")
		w.declare(map[string][]svc{"plant": {{key: "alpha"}}, "lab": {gamma}})
		w.serve(gamma, "a.one")
		r := w.loaded(t)
		w.declare(map[string][]svc{"plant": {{key: "alpha"}, gamma}, "lab": {gamma}})
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.one")
		if b := bundle(t, r, "plant", "gamma"); b.Source != "" || b.Revision != "" || b.Tools != 0 || b.Condition != Healthy {
			t.Errorf("held: %+v", b)
		}
		wantSource(t, r, "plant", "alpha", SourceOrigin, Healthy)
		wantSource(t, r, "lab", "gamma", SourceOrigin, Healthy)
		w.down(gamma.url())
		w.at(600)
		ask(t, r, "plant")
		wantSource(t, r, "plant", "gamma", "", Degraded)
		w.serve(gamma) // served, and has nothing
		w.at(630)
		ask(t, r, "plant")
		w.at(660)
		ask(t, r, "plant")
		wantSource(t, r, "plant", "gamma", SourceOrigin, Healthy)
	})
}

func TestStatusShowsAnEmptyAnswerThatWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		is := func(what string, want *time.Time) {
			t.Helper()
			st := r.Status()
			if diff := cmp.Diff([]*time.Time{want, want}, []*time.Time{st.Portal.EmptySince, st.Routes[0].Bundles[0].EmptySince}); diff != "" {
				t.Errorf("%s (-want +got)\n%s", what, diff)
			}
		}
		is("full answers", nil)
		w.at(300)
		w.serve(alpha)
		w.declare(nil)
		ask(t, r, "plant")
		since := time.Now().UTC()
		w.at(310)
		is("empty ones", &since)
		onePlant(w)
		w.at(330)
		ask(t, r, "plant")
		is("full ones again", nil)
	})
}

func TestLastCheckedIsTheOldestService(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta, {key: "off", prefix: "o.", disabled: true}}})
		w.put(alpha.url(), after(2*time.Second, says(manifestOf("alpha", "a.one"))))
		w.serve(beta, "b.one")
		r := w.registry(t)
		w.at(1)
		if got := r.Status().Routes[0].LastCheckedAt; got != nil {
			t.Errorf("checked at %v, before alpha was", got)
		}
		w.at(3)
		if got := r.Status().Routes[0].LastCheckedAt; got == nil || !got.Equal(w.began) {
			t.Errorf("checked at %v, want beta's time", got)
		}
	})
}

func TestStatusTellsAllBreaches(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		w.put(alpha.url(), says(`{"bundleId":"wrong","tools":null}`))
		r := w.loaded(t)
		failure := r.Status().Routes[0].Bundles[0].Failure
		if failure == nil || failure.Kind != InvalidManifest || len(failure.Findings) != 2 {
			t.Fatalf("the failure is %+v", failure)
		}
		for _, f := range failure.Findings {
			if f.Pointer != "/bundleId" && f.Pointer != "/tools" {
				t.Errorf("a breach at %s", f.Pointer)
			}
		}
	})
}
