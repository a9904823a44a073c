package registry

import (
	"strings"
	"testing"
	"testing/synctest"
)

// spacious is a manifest with white space everywhere and a member nobody reads.
const spacious = "\ufeff \n" + `{ "bundleId" : "alpha", "made": "today",
	"tools" : [
		{ "name": "a.two", "title": "T\u00e9", "description": "Does two.", "inputSchema": { "type" : "object", "properties" : { "n" : { "maximum" : 1.50 } } },
		  "outputSchema": { "type": [ "object", "null" ] }, "annotations": { "readOnlyHint" : true }, "icons": [ { "src" : "https://x.example/a.png" } ],
		  "_meta": { "version": "1" } },
		{ "name": "a.off", "description": "Is off.", "inputSchema": { "type" : "object" }, "_meta": { "version": "1", "enabled": false } },
		{ "name": "a.one", "description": "Does one.", "inputSchema": { "type" : "object" }, "outputSchema": { "type" : "object" }, "_meta": { "version": "1" } }
	] }` + " \n"

// What a Registry keeps of a manifest is not the document, but nobody can tell.
func TestManifestsAtRest(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		alpha, beta := svc{key: "alpha", prefix: "a."}, svc{key: "beta", prefix: "b."}
		w.put(alpha.url(), says(spacious))
		w.serve(beta, "b.one")
		w.declare(map[string][]svc{"alone": {alpha}, "both": {alpha, beta}})
		store := newStore(w)
		r := w.loaded(t, store.in)

		read := func(document string) (tools []*RoutedTool) {
			for _, tool := range accepted(t, document).Tools {
				if tool.Enabled {
					tools = append(tools, &RoutedTool{Tool: tool})
				}
			}
			return tools
		}
		alone := ask(t, r, "alone")
		if want := NewSnapshot("alone", read(spacious)); string(alone.List) != string(want.List) ||
			string(alone.LegacyList) != string(want.LegacyList) || alone.Hash != want.Hash {
			t.Errorf("the list is\n%s\n%s, want\n%s\n%s", alone.List, alone.LegacyList, want.List, want.LegacyList)
		}
		for _, tool := range alone.Tools {
			if !strings.HasPrefix(string(tool.Published), `{"name":"`+string(tool.Name)+`"`) {
				t.Errorf("%s is published as %s", tool.Name, tool.Published)
			}
		}
		if s := ask(t, r, "both"); !strings.HasPrefix(string(s.List), strings.TrimSuffix(string(alone.List), "]")+`,{"name":"b.one"`) {
			t.Errorf("the list of both is %s", s.List)
		}
		two := alone.Tool("a.two")
		if got := two.Input.Validate([]byte(`{"n":1.6}`)); len(got) != 1 || got[0].Pointer != "/n" {
			t.Errorf("breaches %v, want one at /n", got)
		}
		if got := two.Output.Validate([]byte(`1`)); len(got) != 1 || two.Output.DescribesObject() {
			t.Errorf("breaches %v, want one of a schema that describes more than objects", got)
		}

		synctest.Wait()
		entries, _ := decodeRouteCopy([]byte(store.value(routeCopyKey("alone"))))
		if got, want := string(rawOf(entries, "alpha")), strings.Trim(spacious, "\ufeff \n"); got != want {
			t.Errorf("the copy is\n%s\nwant\n%s", got, want)
		}
	})
}

// Routes of one and the same service cost one list.
func TestEqualListsAreOne(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		alpha := svc{key: "alpha", prefix: "a."}
		w.serve(alpha, "a.two", "a.one")
		w.declare(map[string][]svc{"one": {alpha}, "two": {alpha}})
		r := w.loaded(t)
		if one, two := ask(t, r, "one"), ask(t, r, "two"); &one.List[0] != &two.List[0] || &one.LegacyList[0] != &two.LegacyList[0] {
			t.Error("two lists")
		}
	})
}

// A manifest is what it was when another form of it is kept.
func TestRestLeavesTheManifestAlone(t *testing.T) {
	m, same := accepted(t, spacious), accepted(t, spacious)
	kept := rest(m, true)
	if string(m.Raw) != string(same.Raw) {
		t.Errorf("the document is %s", m.Raw)
	}
	for i, tool := range m.Tools {
		if string(tool.InputSchema) != string(same.Tools[i].InputSchema) || string(tool.Icons) != string(same.Tools[i].Icons) || tool == kept.tools[i] {
			t.Errorf("%s was changed", tool.Name)
		}
	}
	if text, err := kept.text(); err != nil || string(text) != strings.Trim(spacious, "\ufeff \n") {
		t.Errorf("%v; at rest the document is\n%s", err, text)
	}
}

// A copy is whole or is not written.
func TestDamagedManifestsAreNotCopied(t *testing.T) {
	whole, cut, none := parsed(t, "alpha", "a.one"), *parsed(t, "beta", "b.one"), *parsed(t, "beta", "b.one")
	cut.packed, none.packed = cut.packed[:len(cut.packed)/2], nil
	for _, damaged := range []*resting{&cut, &none} {
		h := &holding{
			declared: []Service{declared("alpha", ""), declared("beta", "")},
			atHand:   map[ServiceKey]*resting{"alpha": whole, "beta": damaged},
		}
		ready := contents{"alpha": whole.document, "beta": damaged.document}
		if entries, err := h.over(nil, ready, false); err == nil || !strings.Contains(err.Error(), "service beta") {
			t.Errorf("%v, with the error %v", entries, err)
		}
	}
}
