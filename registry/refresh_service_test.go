package registry

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestContentDecidesNotTheRevision(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		tools := `"tools":[{"name":"a.one","description":"x","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`
		w.declare(map[string][]svc{"plant": {alpha}})
		w.put(alpha.url(), says(`{"bundleId":"alpha","revision":"1",`+tools))
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		before := ask(t, r, "plant")
		w.put(alpha.url(), says(`{"revision":"2", "bundleId":"alpha",`+tools))
		w.at(300)
		if after := ask(t, r, "plant"); after != before {
			t.Error("a new revision with the same content made a new snapshot")
		}
		if got := r.Status().Routes[0].Bundles[0].Revision; got != "2" {
			t.Errorf("the status shows revision %s", got)
		}
		w.put(alpha.url(), says(strings.Replace(`{"revision":"2", "bundleId":"alpha",`+tools, `"x"`, `"y"`, 1)))
		w.at(600)
		if after := ask(t, r, "plant"); after.Hash == before.Hash {
			t.Error("changed content under the same revision is no change")
		}
		synctest.Wait()
		if got := heard.take(); len(got) != 2 {
			t.Errorf("OnChange told %q", got)
		}
	})
}

func TestChangedToolAtAnEqualVersionIsWarnedOf(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		w.serve(alpha, "a.same", "a.bumped", "a.sly")
		r := w.loaded(t)
		w.serve(alpha, "a.same", "a.bumped@1: better", "a.sly: better", "a.new")
		w.at(300)
		ask(t, r, "plant")
		got := w.log.with("WARN", "without a new _meta.version")
		if len(got) != 1 || !strings.Contains(got[0], `"tool":"a.sly"`) || !strings.Contains(got[0], `"service":"alpha"`) {
			t.Errorf("warned of %q", got)
		}
	})
}

// Published is what the service sends now, in its order: a replica that saw
// another order before must not differ from one that starts now.
func TestReorderedManifestIsPublishedAsItIs(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		document := `{"bundleId":"alpha","tools":[{"name":"a.one","description":"x","inputSchema":%s,"_meta":%s}]}`
		w.put(alpha.url(), says(fmt.Sprintf(document, `{"type":"object","title":"t"}`, `{"version":"1","enabled":true}`)))
		r := w.loaded(t)
		before := ask(t, r, "plant")
		w.put(alpha.url(), says(fmt.Sprintf(document, `{ "title":"t", "type":"object" }`, `{"version":"1","enabled":true}`)))
		w.at(300)
		after, fresh := ask(t, r, "plant"), ask(t, w.loaded(t), "plant")
		if string(after.List) != string(fresh.List) || after.Hash != fresh.Hash || after.Hash == before.Hash {
			t.Errorf("before %s, then %s; a replica that starts now has %s", before.List, after.List, fresh.List)
		}
		if got := w.log.with("_meta.version"); len(got) != 0 {
			t.Errorf("another order is no other content, but warned of %q", got)
		}
		w.put(alpha.url(), says(fmt.Sprintf(document, `{"title":"t","type":"object"}`, `{"enabled":true,"version":"1"}`)))
		w.at(600)
		if ask(t, r, "plant") != after {
			t.Error("white space and the order in _meta made a new snapshot")
		}
	})
}

func TestTheSameBytesAreNotParsedAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		var tools []string
		for i := range 100 {
			tools = append(tools, fmt.Sprintf("a.t%d", i))
		}
		document := "\ufeff" + manifestOf("alpha", tools...)
		w.put(alpha.url(), says(document))
		r := w.loaded(t)
		before := ask(t, r, "plant")
		w.at(10)
		s := r.route("plant").services[0]
		refresh := testing.AllocsPerRun(5, func() { r.checkService(t.Context(), s) })
		parse := testing.AllocsPerRun(5, func() { ParseManifest([]byte(document), ManifestRules{}) })
		if refresh > parse/10 {
			t.Errorf("a refresh that brings the same bytes allocates %v times, reading them as new %v times", refresh, parse)
		}
		if got := r.NextCheck("plant"); got != 300*time.Second {
			t.Errorf("due in %v: the check time must move", got)
		}
		if ask(t, r, "plant") != before {
			t.Error("the same bytes made a new snapshot")
		}
		w.serve(alpha, tools[:99]...)
		w.at(310)
		if got := len(ask(t, r, "plant").Tools); got != 99 {
			t.Errorf("%d tools after a change", got)
		}
	})
}
