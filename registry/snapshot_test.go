package registry

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// awkward is a manifest with everything encoders like to change.
const awkward = `{"bundleId":"s","tools":[
  {"name":"z","title":"A & B <ok>","description":"Größe > \u00fc \ud83d\ude00 \"q\" \\ \n",
   "inputSchema": { "type" : "object", "x-z": 1, "x-a": [ 9007199254740993, 1.0, 1E+2 ], "x-html": "<>&\u003c\u2028", "description": "a  b" },
   "outputSchema": {"type":"object"},
   "annotations": { "readOnlyHint" : true, "title":"<b>" },
   "icons": [ { "src": "https://x.test/i.png?a=1&b=2" } ],
   "_meta": { "version": "1", "timeoutMillis": 5 } },
  {"name":"a","description":"d","inputSchema":{"type":"object"},"outputSchema":{"type":"array"},"_meta":{"version":"1"}}
]}`

const (
	publishedA = `{"name":"a","description":"d","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}`
	publishedZ = `{"name":"z","title":"A & B <ok>","description":"Größe > ü 😀 \"q\" \\ \n",` +
		`"inputSchema":{"type":"object","x-z":1,"x-a":[9007199254740993,1.0,1E+2],"x-html":"<>&\u003c\u2028","description":"a  b"},` +
		`"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"title":"<b>"},"icons":[{"src":"https://x.test/i.png?a=1&b=2"}]}`
)

func awkwardSnapshot(t *testing.T) *Snapshot {
	out := merge([]part{{service: declared("s", ""), newest: parsedRaw(t, awkward)}}, testLimits)
	return NewSnapshot("plant", out.tools)
}

func TestListIsPublishedAsItCame(t *testing.T) {
	s := awkwardSnapshot(t)
	if diff := cmp.Diff("["+publishedA+","+publishedZ+"]", string(s.List)); diff != "" {
		t.Errorf("List (-want +got)\n%s", diff)
	}
	if got := string(s.Tool("z").Published); got != publishedZ {
		t.Errorf("z is published as %s", got)
	}
	if got := string(s.Tool("a").Published); got != publishedA {
		t.Errorf("a is published as %s", got)
	}
	if !json.Valid(s.List) || !json.Valid(s.LegacyList) {
		t.Error("not JSON")
	}
}

func TestLegacyListHasObjectOutputsOnly(t *testing.T) {
	s := awkwardSnapshot(t)
	without := strings.Replace(publishedA, `,"outputSchema":{"type":"array"}`, "", 1)
	if diff := cmp.Diff("["+without+","+publishedZ+"]", string(s.LegacyList)); diff != "" {
		t.Errorf("LegacyList (-want +got)\n%s", diff)
	}
	same := NewSnapshot("plant", []*RoutedTool{s.Tool("z")})
	if !bytes.Equal(same.List, same.LegacyList) {
		t.Error("without other outputs the lists differ")
	}
}

func TestPublishedCannotGrowIntoTheList(t *testing.T) {
	s := awkwardSnapshot(t)
	before := string(s.List)
	_ = append(s.Tool("a").Published, "garbage"...)
	if string(s.List) != before {
		t.Error("appending to a tool's bytes changed the list")
	}
}

func TestEmptySnapshot(t *testing.T) {
	s := NewSnapshot("plant", nil)
	if string(s.List) != "[]" || string(s.LegacyList) != "[]" || s.Hash == "" || s.Tool("x") != nil {
		t.Errorf("%+v", s)
	}
}

func TestSnapshotKeepsCopies(t *testing.T) {
	tool := &RoutedTool{Tool: parsed(t, "s", "x").tools[0], Service: "s", URL: "http://one.test"}
	s := NewSnapshot("plant", []*RoutedTool{tool})
	tool.URL = "http://two.test"
	if tool.Published != nil || s.Tools[0].URL != "http://one.test" || s.Tool("x") != s.Tools[0] {
		t.Error("the snapshot shares its tools with the caller")
	}
}

// TestReplicasAgree shows the same content to two registries in different
// orders, one of which saw other content before: their lists are equal to the
// byte.
func TestReplicasAgree(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		services := []svc{{key: "s1", prefix: "one."}, {key: "s2", prefix: "two."}, {key: "s3"}}
		final := map[string][]string{"s1": {"one.b", "one.a", "one.C"}, "s2": {"two.x/y", "two.x-y", "two.x"}, "s3": {"zz", "aa"}}
		publish := func(tools map[string][]string) {
			rand.Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
			w.declare(map[string][]svc{"plant": services})
			for _, s := range services {
				list := tools[s.key]
				rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				w.serve(s, list...)
			}
		}
		publish(map[string][]string{"s1": {"one.old"}, "s2": {"two.old"}, "s3": {"old"}})
		first := w.loaded(t)
		w.at(300)
		publish(final)
		want := ask(t, first, "plant")
		for range 10 {
			publish(final)
			got := ask(t, w.loaded(t), "plant")
			if !bytes.Equal(got.List, want.List) || got.Hash != want.Hash {
				t.Fatalf("replicas differ:\n%s\n%s", want.List, got.List)
			}
		}
		synctest.Wait()
	})
}

func TestAddresses(t *testing.T) {
	for _, test := range []struct{ url, host, path string }{
		{"http://claims/tools/a", "claims", "/tools/a"},
		{"https://claims:8443/tools/a%2Fb", "claims:8443", "/tools/a%2Fb"},
		{"http://claims:/tools/a", "claims", "/tools/a"},
	} {
		tool := &RoutedTool{URL: test.url}
		first := tool.Address()
		if first == nil || first.Host != test.host || first.EscapedPath() != test.path {
			t.Errorf("%s is %v, want the host %s and the path %s", test.url, first, test.host, test.path)
		}
		if tool.Address() != first {
			t.Errorf("%s is parsed anew", test.url)
		}
	}
	for _, nowhere := range []string{"", "/tools/a", "claims/tools/a", "ftp://claims/a", "http:///a", "http://:/a", "http://claims/%zz"} {
		if address := (&RoutedTool{URL: nowhere}).Address(); address != nil {
			t.Errorf("%q is %v, want that no call can go there", nowhere, address)
		}
	}
}
