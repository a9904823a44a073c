package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

// origins answer the registry's fetches by path.
type origins map[string]string

func (o origins) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, ok := o[r.URL.Path]
	if !ok {
		return nil, errors.New("sentinel-error: no route to " + r.URL.Host)
	}
	status, contentType, body := 200, "application/json", answer
	if text, failed := strings.CutPrefix(answer, "500 "); failed {
		status, contentType, body = 500, "text/html", text
	}
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		Header: http.Header{"Content-Type": {contentType}, "X-Sentinel": {"sentinel-header"}},
	}, nil
}

// sentinels is a Portal whose every address, prefix, header and message text
// contains "sentinel", with services in every condition.
var sentinels = origins{
	"/registry": `{"registryRevision":"42","message":"sentinel-message","routes":[
		{"routeKey":"claims","toolServices":[` + declared("good", "sentinel_.") + `]},
		{"routeKey":"broken","toolServices":[` + declared("html", "sentinel_html.") + `,` + declared("away", "sentinel_away.") + `,` + declared("invalid", "sentinel_invalid.") + `]},
		{"routeKey":"outside","toolServices":[` + declared("good", "sentinel_other.") + `]},
		{"routeKey":"undeclared","toolServices":[{"serviceKey":"good","serviceDomain":"ftp://sentinel-domain","manifestPath":"/sentinel","executionPath":"/sentinel","sentinel_member":1}]}]}`,
	"/sentinel-manifest/good":    `{"bundleId":"good","revision":"r1","tools":[]}`,
	"/sentinel-manifest/html":    `500 <html>sentinel-text</html>`,
	"/sentinel-manifest/invalid": `{"bundleId":"sentinel-bundle","tools":[{"name":"sentinel-tool"}]}`,
}

func declared(service, prefix string) string {
	return `{"serviceKey":"` + service + `","serviceDomain":"http://sentinel-domain","manifestPath":"/sentinel-manifest/` + service +
		`","executionPath":"/sentinel-run","namePrefix":"` + prefix + `"}`
}

// loaded is a registry after its first load from o.
func loaded(t *testing.T, o origins) *registry.Registry {
	t.Helper()
	config := registry.DefaultConfig()
	config.Portal.URL = "http://sentinel-portal/registry?key=sentinel-key"
	config.Portal.Token = "sentinel-token"
	r, err := registry.New(registry.Options{Config: config, Transport: o})
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	t.Cleanup(r.Close)
	<-r.Preloaded()
	return r
}

func TestNoAddressOrTextOfAnOriginIsShown(t *testing.T) {
	o := options()
	o.Registry = loaded(t, sentinels)
	for _, path := range []string{"/actuator/toolBundles", "/actuator/health", "/actuator/health/readiness", "/actuator/info"} {
		body := ask(o, "GET", path, "").Body.String()
		if strings.Contains(strings.ToLower(body), "sentinel") || strings.Contains(body, "http") {
			t.Errorf("%s shows what it must not: %s", path, body)
		}
	}
	bundles := ask(o, "GET", "/actuator/toolBundles", "").Body.String()
	for _, kind := range []string{`"42"`, `"r1"`, `"status_500"`, `"invalid_manifest"`, `"undeclared"`} {
		if !strings.Contains(bundles, kind) {
			t.Errorf("this test no longer meets %s: %s", kind, bundles)
		}
	}
}

// sample is the view as its specification shows it, and the source of the Portal's answer.
const sample = `{ "identity": "mcp-insurance-core", "registryRevision": "42", "portal": { "status": "healthy", "source": "origin", "lastSuccessAt": "…", "lastAttemptAt": "…", "consecutiveFailures": 0, "lastFailureReason": null },
  "routes": [ { "routeKey": "claims", "tools": 12, "contentHash": "sha256:…", "lastCheckedAt": "…", "refusedReason": null,
    "bundles": [ { "id": "insurance-processing", "status": "healthy", "source": "origin", "revision": "…", "tools": 12,
      "lastSuccessAt": "…", "lastAttemptAt": "…", "consecutiveFailures": 0, "lastFailureReason": null } ] } ] }`

func TestToolBundlesHasTheSpecifiedMembers(t *testing.T) {
	o := options()
	o.Registry = loaded(t, origins{
		"/registry":               `{"registryRevision":"42","routes":[{"routeKey":"claims","toolServices":[` + declared("good", "") + `]}]}`,
		"/sentinel-manifest/good": sentinels["/sentinel-manifest/good"],
	})
	want, got := members(t, sample), members(t, ask(o, "GET", "/actuator/toolBundles", "").Body.String())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-specified +answered)\n%s", diff)
	}
}

// members lists the paths of all members of a JSON text, with the kind of value
// each has.
func members(t *testing.T, text string) []string {
	t.Helper()
	var document any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var paths []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				walk(path+"."+name, value)
			}
		case []any:
			for _, value := range v {
				walk(path+"[]", value)
			}
		case string:
			paths = append(paths, path+" string")
		case float64:
			paths = append(paths, path+" number")
		case nil:
			paths = append(paths, path+" null")
		}
	}
	walk("", document)
	slices.Sort(paths)
	return paths
}

func TestEmptyListsAreNotNull(t *testing.T) {
	o := options()
	o.Registry = loaded(t, origins{"/registry": `{"routes":[]}`})
	for _, path := range []string{"/actuator/toolBundles", "/actuator/health/readiness"} {
		w := ask(o, "GET", path, "")
		if null := regexp.MustCompile(`"(routes|bundles|readyRoutes|routesWithoutSnapshot)":null`).FindString(w.Body.String()); null != "" || w.Code != 200 {
			t.Errorf("%s: status %d, %s", path, w.Code, w.Body)
		}
	}
}

func TestRefresh(t *testing.T) {
	tests := map[string]struct {
		path       string
		done       registry.Refreshed
		err        error
		status     int
		retryAfter string
		body       string
	}{
		"checked": {"claims", registry.Refreshed{Checked: true}, nil, 200, "",
			`{"routeKey":"claims","checked":true,"tools":0,"contentHash":"sha256:0","lastCheckedAt":null,"refusedReason":null,"bundles":[]}`},
		"not yet": {"claims", registry.Refreshed{RetryAfter: 1200 * time.Millisecond}, nil, 429, "2", `{"error":"this route was checked a moment ago, or is waiting for its next try; see Retry-After"}`},
		"nothing to check": {"claims", registry.Refreshed{}, nil, 200, "",
			`{"routeKey":"claims","checked":false,"tools":0,"contentHash":"sha256:0","lastCheckedAt":null,"refusedReason":null,"bundles":[]}`},
		"unknown":       {"nothing", registry.Refreshed{}, registry.ErrRouteNotFound, 404, "", `{"error":"no route of that key is declared"}`},
		"removed by it": {"nothing", registry.Refreshed{Checked: true}, nil, 404, "", `{"error":"no route of that key is declared"}`},
		"nothing is known": {"claims", registry.Refreshed{}, &registry.UnavailableError{RetryAfter: 5 * time.Second}, 503, "5",
			`{"error":"no answer of the Portal was ever accepted, so it is not known which routes there are"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reg := withRoutes("claims")
			reg.refresh = func(_ context.Context, key registry.RouteKey) (registry.Refreshed, error) {
				if key != registry.RouteKey(test.path) {
					t.Errorf("route %q was refreshed", key)
				}
				return test.done, test.err
			}
			o := options()
			o.Registry = reg
			w := ask(o, "POST", "/actuator/refresh/"+test.path, "")
			if w.Code != test.status || w.Header().Get("Retry-After") != test.retryAfter || w.Body.String() != test.body+"\n" {
				t.Errorf("status %d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
			}
		})
	}
}

func TestARefreshIsWaitedForWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := withRoutes("claims")
		reg.refresh = func(ctx context.Context, _ registry.RouteKey) (registry.Refreshed, error) {
			<-ctx.Done()
			return registry.Refreshed{Checked: true}, ctx.Err()
		}
		var log bytes.Buffer
		o := options()
		o.Registry, o.Logger = reg, slog.New(slog.NewTextHandler(&log, nil))
		began := time.Now()
		w := ask(o, "POST", "/actuator/refresh/claims", "")
		if w.Code != http.StatusAccepted || !strings.HasPrefix(w.Body.String(), `{"routeKey":"claims","checked":false,`) || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: status %d, %s", time.Since(began), w.Code, w.Body)
		}

		ctx, leave := context.WithCancel(t.Context())
		leave()
		gone := httptest.NewRecorder()
		New(o).ServeHTTP(gone, httptest.NewRequestWithContext(ctx, "POST", "/actuator/refresh/claims", nil))
		if gone.Body.Len() != 0 || log.Len() != 0 {
			t.Errorf("a caller that has left is answered %s, logged %s", gone.Body, &log)
		}
	})
}

func TestOnlyTheOverallHealthAsksRedis(t *testing.T) {
	o, asked := options(), 0
	o.Redis = func(context.Context) RedisHealth {
		asked++
		return RedisHealth{Status: Down, ConsecutiveFailures: 1, LastFailureReason: "timeout"}
	}
	w := ask(o, "GET", "/actuator/health", "")
	if w.Code != 200 || asked != 1 || !strings.Contains(w.Body.String(), `"redis":{"status":"DOWN"`) {
		t.Errorf("asked %d times: status %d, %s", asked, w.Code, w.Body)
	}
	for _, path := range []string{"/actuator/health/readiness", "/actuator/health/liveness", "/actuator/toolBundles"} {
		if w := ask(o, "GET", path, ""); w.Code != 200 || asked != 1 {
			t.Errorf("%s: status %d, and Redis was asked", path, w.Code)
		}
	}
}
