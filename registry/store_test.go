package registry

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCopiesComeBackAsTheyWere(t *testing.T) {
	raw := "{ \"bundleId\":\"alpha\",\n\t\"tools\":[], \"x\":1.50e+2, \"y\":\"<&>\\u2028\" }"
	route := []manifestCopy{{"alpha", []byte(raw)}, {"beta", []byte(`{}`)}}
	value := encodeRouteCopy(route)
	got, why := decodeRouteCopy(value)
	if diff := cmp.Diff(route, got); why != sound || diff != "" {
		t.Errorf("%s (-want +got)\n%s", why, diff)
	}
	if want := "tollgate-registry 1 sha256:"; !strings.HasPrefix(string(value), want) || !strings.Contains(string(value), raw) {
		t.Errorf("the value is %s", value)
	}

	portal := portalCopy{Revision: `4"2<&>`, Routes: []declarationCopy{
		{"empty", []serviceCopy{}},
		{"never", nil},
		{"plant", []serviceCopy{{"alpha", "http://a.test/m?x=1", "http://a.test/mcp", "a.", true}, {"beta", "http://b.test/m", "http://b.test", "", false}}},
	}}
	back, why := decodePortalCopy(encodePortalCopy(portal, nil), nil)
	if diff := cmp.Diff(portal, back); why != sound || diff != "" {
		t.Errorf("%s (-want +got)\n%s", why, diff)
	}
	d := back.declaration()
	if len(d.Routes[0].Breaches) != 0 || len(d.Routes[1].Breaches) != 1 || len(d.Routes[2].Services) != 2 || d.Revision != portal.Revision {
		t.Errorf("as a declaration it is %+v", d)
	}
}

func TestUnusableCopies(t *testing.T) {
	service := func(text string) []byte {
		return seal([]byte(`{"registryRevision":"","routes":[{"routeKey":"r","toolServices":[` + text + `]}]}`))
	}
	good := `{"serviceKey":"a","manifestUrl":"http://a.test/m","baseEndpoint":"http://a.test/mcp","namePrefix":"","enabled":true}`
	if _, why := decodePortalCopy(service(good), nil); why != sound {
		t.Fatalf("the table is built on a value that is not sound: %s", why)
	}
	for name, test := range map[string]struct {
		value []byte
		want  defect
	}{
		"nothing":             {nil, foreignFormat},
		"something else":      {[]byte("hello"), foreignFormat},
		"another version":     {bytes.Replace(service(good), []byte("registry 1 "), []byte("registry 2 "), 1), foreignFormat},
		"only a header":       {bytes.SplitAfter(service(good), []byte("\n"))[0], badHash},
		"a header and no end": {bytes.TrimSuffix(bytes.SplitAfter(service(good), []byte("\n"))[0], []byte("\n")), badHash},
		"a changed byte":      {bytes.Replace(service(good), []byte("a.test"), []byte("b.test"), 1), badHash},
		"cut off":             {service(good)[:150], badHash},
		"no JSON":             {seal([]byte("{")), badForm},
		"no routes":           {seal([]byte(`{"registryRevision":"","routes":null}`)), badForm},
		"unknown members":     {seal([]byte(`{"registryRevision":"","routes":[],"more":1}`)), badForm},
		"other spelling":      {seal([]byte(`{"registryRevision":"", "routes":[]}`)), badForm},
		"twice the same":      {seal([]byte(`{"registryRevision":"","routes":[{"routeKey":"r","toolServices":[]},{"routeKey":"r","toolServices":[]}]}`)), badForm},
		"services not sorted": {service(strings.ReplaceAll(good, `"a"`, `"b"`) + "," + good), badForm},
		"a bad route key":     {seal([]byte(`{"registryRevision":"","routes":[{"routeKey":"../r","toolServices":[]}]}`)), badDeclaration},
		"a bad address":       {service(strings.Replace(good, "http://a.test/mcp", "file:///etc", 1)), badDeclaration},
		"credentials":         {service(strings.Replace(good, "http://a.test/mcp", "http://u:p@a.test/mcp", 1)), badDeclaration},
		"an unclean address":  {service(strings.Replace(good, "http://a.test/mcp", "http://a.test/mcp/", 1)), badDeclaration},
		"overlapping prefixes": {service(strings.Replace(good, `"namePrefix":""`, `"namePrefix":"x."`, 1) + "," +
			strings.NewReplacer(`"a"`, `"b"`, `"namePrefix":""`, `"namePrefix":"x.y."`).Replace(good)), badDeclaration},
	} {
		if _, why := decodePortalCopy(test.value, nil); why != test.want {
			t.Errorf("%s: %q, want %q", name, why, test.want)
		}
	}
	for name, test := range map[string]struct {
		value []byte
		want  defect
	}{
		"the Portal's":     {service(good), badForm},
		"no manifest":      {seal([]byte(`{"services":[{"key":"a"}]}`)), badForm},
		"not sorted":       {encodeRouteCopy([]manifestCopy{{"b", []byte("{}")}, {"a", []byte("{}")}}), badForm},
		"twice":            {encodeRouteCopy([]manifestCopy{{"a", []byte("{}")}, {"a", []byte("{}")}}), badForm},
		"a bad key":        {encodeRouteCopy([]manifestCopy{{"a/b", []byte("{}")}}), badForm},
		"members of other": {seal([]byte(`{"Services":[]}`)), badForm},
	} {
		if _, why := decodeRouteCopy(test.value); why != test.want {
			t.Errorf("%s: %q, want %q", name, why, test.want)
		}
	}
}

// FuzzCopy reads arbitrary text as the value of both kinds, as it is and with a
// header that makes it worth reading.
func FuzzCopy(f *testing.F) {
	f.Add([]byte(`{"services":[{"key":"a","manifest":{"bundleId":"a","tools":[]}},{"key":"b","manifest":null}]}`))
	f.Add([]byte(`{"registryRevision":"é","routes":[{"routeKey":"r","toolServices":null},{"routeKey":"s","toolServices":[{"serviceKey":"a","manifestUrl":"http://a.test/m","baseEndpoint":"http://a.test/mcp","namePrefix":"a.","enabled":true}]}]}`))
	f.Add(encodeRouteCopy([]manifestCopy{{"a", []byte(`{ "x" : 1e400 }`)}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, value := range [][]byte{data, seal(data)} {
			if entries, why := decodeRouteCopy(value); why == sound && !bytes.Equal(encodeRouteCopy(entries), value) {
				t.Errorf("the copy of a route changes when it is written again: %q", value)
			}
			if _, why := decodePortalCopy(value, ring{"k1"}); why == sound {
				t.Errorf("took a copy that nobody signed: %q", value)
			}
			p, why := decodePortalCopy(value, nil)
			if why != sound {
				continue
			}
			if same, _ := decodePortalCopy(encodePortalCopy(p, ring{"k1"}), ring{"k1"}); !bytes.Equal(same.body(), p.body()) {
				t.Errorf("a signed copy does not come back: %q", value)
			}
			if body, _ := unseal(value); !bytes.Equal(p.body(), body) {
				t.Errorf("the copy of the Portal changes when it is written again: %q", value)
			}
			for _, route := range p.declaration().Routes {
				if len(route.Breaches) == 0 && len(CheckRoute(route)) > 0 {
					t.Errorf("took a route that may not be declared: %+v", route)
				}
			}
		}
	})
}
