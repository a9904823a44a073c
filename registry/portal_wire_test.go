package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

// serviceText is a correct Tool Service entry with the changes.
func serviceText(changed change) string {
	return objectText(change{
		"serviceKey":    `"processing"`,
		"serviceDomain": `"http://tools.example:8080"`,
		"manifestPath":  `"/tool-manifest"`,
	}, changed)
}

func routeText(key string, services ...string) string {
	return `{"routeKey":"` + key + `","toolServices":[` + strings.Join(services, ",") + `]}`
}

func portalText(routes ...string) string {
	return `{"registryRevision":"42","routes":[` + strings.Join(routes, ",") + `]}`
}

func TestParsePortal(t *testing.T) {
	text := "\ufeff" + `{"registryRevision":"42","future":{"a":1,"a":2},"routes":[
		{"routeKey":"claims","future":[],"toolServices":[
			{"serviceKey":"insurance-processing","serviceDomain":"http://tool-processing.ax-hub.svc.cluster.local:8080","manifestPath":"/tool-manifest",
			 "executionPath":"/mcp","namePrefix":"processing.","enabled":true,"future":true},
			{"serviceKey":"A.b_C-9","serviceDomain":"https://[::1]:8443/","manifestPath":"/m?format=json&q=%20","executionPath":"/","namePrefix":"a/","enabled":false}]},
		{"routeKey":"Plain.2","toolServices":[
			{"serviceKey":"one","serviceDomain":"HTTP://one","manifestPath":"/","executionPath":"/api/v1/"},
			{"serviceKey":"two","serviceDomain":"http://bücher.example","manifestPath":"/a//b","executionPath":null,"namePrefix":null,"enabled":null},
			{"serviceKey":"three","serviceDomain":"http://10.0.0.1:65535","manifestPath":"/t","executionPath":"/x?y=1","namePrefix":""}]},
		{"routeKey":"empty","toolServices":[]}]}`
	got, findings := registry.ParsePortal([]byte(text))
	if len(findings) > 0 {
		t.Fatal(lines(findings))
	}
	want := &registry.Declaration{Revision: "42", Routes: []registry.Route{
		{Key: "claims", Services: []registry.Service{
			{Key: "insurance-processing", ManifestURL: "http://tool-processing.ax-hub.svc.cluster.local:8080/tool-manifest",
				BaseEndpoint: "http://tool-processing.ax-hub.svc.cluster.local:8080/mcp", NamePrefix: "processing.", Enabled: true},
			{Key: "A.b_C-9", ManifestURL: "https://[::1]:8443/m?format=json&q=%20", BaseEndpoint: "https://[::1]:8443", NamePrefix: "a/", Enabled: false},
		}},
		{Key: "Plain.2", Services: []registry.Service{
			{Key: "one", ManifestURL: "HTTP://one/", BaseEndpoint: "HTTP://one/api/v1", Enabled: true},
			{Key: "two", ManifestURL: "http://bücher.example/a//b", BaseEndpoint: "http://bücher.example/mcp", Enabled: true},
			{Key: "three", ManifestURL: "http://10.0.0.1:65535/t", BaseEndpoint: "http://10.0.0.1:65535/x", Enabled: true},
		}},
		{Key: "empty", Services: []registry.Service{}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParsePortalNoRoutes(t *testing.T) {
	for text, revision := range map[string]string{
		`{"routes":[]}`:                             "",
		`{"registryRevision":null,"routes":[]}`:     "",
		`{"registryRevision":7,"routes":[]}`:        "7",
		`{"registryRevision":["a"],"routes":[]}`:    "",
		`{"registryRevision":"\u00e9","routes":[]}`: "é",
	} {
		got, findings := registry.ParsePortal([]byte(text))
		if got == nil || len(findings) > 0 || len(got.Routes) != 0 || got.Revision != revision {
			t.Errorf("%s gives %+v, %v", text, got, findings)
		}
	}
}

func TestPortalAnswerRefused(t *testing.T) {
	ok := routeText("ok")
	tests := []breachCase{
		{"empty", ``, []string{": not usable JSON"}},
		{"a page", `<html>`, []string{": not usable JSON: it looks like HTML"}},
		{"a fault on another line", "{\"routes\":\n[}", []string{"/routes/0: at line 2, column 2"}},
		{"trailing bytes", portalText() + `{}`, []string{": not usable JSON"}},
		{"invalid UTF-8", "{\"routes\":[],\"a\":\"\xff\"}", []string{"/a: UTF-8"}},
		{"nested too deep", `{"routes":[],"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, []string{"/a" + strings.Repeat("/0", 63) + ": deeper than 64"}},
		{"an array", `[]`, []string{": must be an object"}},
		{"null", `null`, []string{": must be an object"}},
		{"routes missing", `{}`, []string{"/routes: is missing"}},
		{"routes null", `{"routes":null}`, []string{"/routes: is null"}},
		{"routes in another case", `{"Routes":[]}`, []string{`/routes: "Routes" is another name`}},
		{"routes of another type", `{"routes":{}}`, []string{"/routes: is an object"}},
		{"routes named twice", `{"routes":[],"routes":[]}`, []string{"/routes: more than once"}},
		{"entries that are no route", portalText(ok, `null`, `"claims"`), []string{"/routes/1: is null", "/routes/2: is the string"}},
		{"routeKey missing", portalText(ok, `{"toolServices":[]}`), []string{"/routes/1/routeKey: is missing"}},
		{"routeKey null", portalText(`{"routeKey":null,"toolServices":[]}`), []string{"/routes/0/routeKey: is null"}},
		{"routeKey of another type", portalText(`{"routeKey":1,"toolServices":[]}`), []string{"/routes/0/routeKey: is the number 1"}},
		{"routeKey named twice", portalText(`{"routeKey":"a","routeKey":"b","toolServices":[]}`), []string{"/routes/0/routeKey: more than once"}},
		{"routeKey twice", portalText(ok, routeText("a"), ok, ok), []string{"/routes/2/routeKey: route 0", "/routes/3/routeKey: route 0"}},
	}
	for _, key := range []string{``, `.`, `..`, `a/b`, `a b`, `ä`, `a%2f`, strings.Repeat("a", 65)} {
		tests = append(tests, breachCase{"routeKey " + key, portalText(ok, routeText(key)), []string{"/routes/1/routeKey: 1 to 64 of the characters"}})
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			declaration, findings := registry.ParsePortal([]byte(test.text))
			if declaration != nil {
				t.Errorf("accepted: %.300s", test.text)
			}
			expectFindings(t, findings, test.want...)
		})
	}
}

func TestPortalRouteBreaches(t *testing.T) {
	tests := []breachCase{
		{"toolServices missing", `{"routeKey":"claims"}`, []string{"/toolServices: is missing"}},
		{"toolServices null", `{"routeKey":"claims","toolServices":null}`, []string{"/toolServices: is null"}},
		{"toolServices of another type", `{"routeKey":"claims","toolServices":{}}`, []string{"/toolServices: is an object"}},
		{"toolServices named twice", `{"routeKey":"claims","toolServices":[],"toolServices":[]}`, []string{"/toolServices: more than once"}},
		{"services that are none", routeText("claims", `1`, `null`), []string{"/toolServices/0: is the number 1", "/toolServices/1: is null"}},
		{"nothing", routeText("claims", `{}`), []string{"/toolServices/0/serviceKey: is missing", "/toolServices/0/serviceDomain: is missing", "/toolServices/0/manifestPath: is missing"}},
		{"names in another case", routeText("claims", `{"ServiceKey":"a","servicedomain":"http://a","ManifestPath":"/m"}`),
			[]string{`/toolServices/0/serviceKey: "ServiceKey" is another name`, `/toolServices/0/serviceDomain: "servicedomain" is another name`, `/toolServices/0/manifestPath: "ManifestPath"`}},
		{"members named twice", routeText("claims", `{"serviceKey":"a","serviceDomain":"http://a","manifestPath":"/m","enabled":true,"enabled":false,"unknown":1,"unknown":2}`),
			[]string{"/toolServices/0/enabled: more than once"}},
		{"other types", routeText("claims", serviceText(change{"serviceKey": `1`, "serviceDomain": `2`, "manifestPath": `3`, "executionPath": `4`, "namePrefix": `5`, "enabled": `"true"`})),
			[]string{"/toolServices/0/serviceKey: is the number 1", "/toolServices/0/serviceDomain: is the number 2", "/toolServices/0/manifestPath: is the number 3",
				"/toolServices/0/executionPath: is the number 4", "/toolServices/0/namePrefix: is the number 5", `/toolServices/0/enabled: is the string "true"`}},
		{"serviceKey", routeText("claims", serviceText(change{"serviceKey": `"a b"`}), serviceText(change{"serviceKey": `".."`}), serviceText(change{"serviceKey": `""`})),
			[]string{"/toolServices/0/serviceKey: 1 to 64", "/toolServices/1/serviceKey: 1 to 64", "/toolServices/2/serviceKey: 1 to 64"}},
		{"serviceKey twice", routeText("claims", serviceText(nil), serviceText(nil)), []string{"/toolServices/1/serviceKey: service 0"}},
		{"namePrefix", routeText("claims", serviceText(change{"namePrefix": `"a:"`})), []string{"/toolServices/0/namePrefix: at most 64"}},
		{"namePrefix too long", routeText("claims", serviceText(change{"namePrefix": `"` + strings.Repeat("a", 65) + `"`})), []string{"/toolServices/0/namePrefix: at most 64"}},
	}
	for _, domain := range []string{``, `tools.example`, `tools.example:8080`, `//tools.example`, `ftp://tools.example`, `http:`, `http://`, `http:tools.example`, `http:///x`, `http://u@tools.example`,
		`http://u:p@tools.example`, `http://@tools.example`, `http://tools.example/base`, `http://tools.example//`, `http://tools.example?x=1`, `http://tools.example?`, `http://tools.example#f`, `http://tools.example#`,
		`http://tools.example:0`, `http://tools.example:65536`, `http://tools.example:`, `http://tools.example:http`, ` http://tools.example`, `http://tools .example`, `http://tools.example\\@evil.example`,
		`http://tools%2eexample`, `http://[::1`, `http://[fe80::1%25eth0]`, `http://::1`, `http://a,b`, `http://a\u0000b`, `http://a\u200bb`, `unix:///run/x`} {
		tests = append(tests, breachCase{"serviceDomain " + domain, routeText("claims", serviceText(change{"serviceDomain": `"` + domain + `"`})), []string{"/toolServices/0/serviceDomain: must be an origin"}})
	}
	for _, path := range []string{``, `mcp`, `?x`, `http://evil.example/`, `//evil.example/`, `/\\evil.example`, `\\\\evil.example`, `/a b`, `/a\nb`, `/a#b`, `/a%zz`, `/..`, `/../x`, `/a/./b`, `/a/%2e%2e/b`, `@evil.example`, `.evil.example`, `:80@evil.example`} {
		tests = append(tests, breachCase{"paths " + path, routeText("claims", serviceText(change{"manifestPath": `"` + path + `"`, "executionPath": `"` + path + `"`})),
			[]string{"/toolServices/0/manifestPath: must be a path", "/toolServices/0/executionPath: must be a path"}})
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			for i := range test.want {
				test.want[i] = "/routes/1" + test.want[i]
			}
			declaration, findings := registry.ParsePortal([]byte(portalText(routeText("first"), test.text, routeText("last", serviceText(nil)))))
			if declaration == nil || len(findings) > 0 || len(declaration.Routes) != 3 {
				t.Fatalf("one route's breach refuses the answer: %s", lines(findings))
			}
			for _, i := range []int{0, 2} {
				expectFindings(t, declaration.Routes[i].Breaches)
			}
			expectFindings(t, declaration.Routes[1].Breaches, test.want...)
			for _, f := range declaration.Routes[1].Breaches {
				if f.Level != registry.Breach || strings.Contains(f.Text, "u:p") {
					t.Errorf("not a breach, or quotes credentials: %v", f)
				}
			}
		})
	}
}

func TestPortalRouteBreachesAreBounded(t *testing.T) {
	services := make([]string, 50)
	for i := range services {
		services[i] = "1"
	}
	declaration, _ := registry.ParsePortal([]byte(portalText(routeText("a", services...))))
	breaches := declaration.Routes[0].Breaches
	if len(breaches) != 21 {
		t.Fatalf("%d breaches", len(breaches))
	}
	expectFindings(t, breaches[20:], "/routes/0: 30 more breaches")
	if all := registry.LintPortal([]byte(portalText(routeText("a", services...)))); len(all) != 50 {
		t.Errorf("lint shows %d of 50", len(all))
	}
}

// The route rules hold for the Portal's routes and for static ones alike.
func TestRoutePrefixes(t *testing.T) {
	tests := []struct {
		prefixes []string
		want     []string
	}{
		{[]string{"", "", "a.", "b.", "ab", "a"}, []string{`2: "a." belongs to`, `4: "ab" belongs to`}},
		{[]string{"", "a.", "", "b."}, nil},
		{[]string{"a.", "a."}, []string{"1"}},
		{[]string{"a.b.", "a."}, []string{"0"}},
		{[]string{"a.", "x.", "a.b.", "a.b.c."}, []string{"2", "3"}},
		{[]string{"a.b", "a.c", "a-"}, nil},
		{[]string{"a.", "A."}, nil},
	}
	for _, test := range tests {
		route := registry.Route{Key: "claims"}
		var services, want []string
		for i, prefix := range test.prefixes {
			key := fmt.Sprintf("s%d", i)
			services = append(services, serviceText(change{"serviceKey": `"` + key + `"`, "namePrefix": `"` + prefix + `"`, "enabled": fmt.Sprint(i%2 == 0)}))
			route.Services = append(route.Services, registry.Service{Key: registry.ServiceKey(key), ManifestURL: "http://a/m", BaseEndpoint: "http://a", NamePrefix: prefix, Enabled: i%2 == 0})
		}
		for _, w := range test.want {
			i, _, _ := strings.Cut(w, ":")
			want = append(want, "/"+i+"/namePrefix: nobody could tell")
		}
		got := registry.CheckRoute(route)
		expectFindings(t, got, want...)

		declaration, _ := registry.ParsePortal([]byte(portalText(routeText("claims", services...))))
		for i := range want {
			want[i] = "/routes/0/toolServices" + want[i]
		}
		expectFindings(t, declaration.Routes[0].Breaches, want...)
	}
}

func TestCheckRoute(t *testing.T) {
	good := registry.Service{Key: "processing", ManifestURL: "http://a:8080/m?x=1", BaseEndpoint: "https://b/mcp/?x=1"}
	with := func(change func(*registry.Service)) registry.Service {
		s := good
		change(&s)
		return s
	}
	tests := []struct {
		route registry.Route
		want  []string
	}{
		{registry.Route{Key: "claims"}, nil},
		{registry.Route{Key: "claims", Services: []registry.Service{good}}, nil},
		{registry.Route{Key: "a/b", Services: []registry.Service{good, good}}, []string{": routeKey", "/1/serviceKey: service 0"}},
		{registry.Route{Key: "claims", Services: []registry.Service{{}}}, []string{
			`/0/serviceKey: is "" or missing; it must be 1 to 64`, `/0/manifestUrl: is "" or missing; it must be an address`, `/0/baseEndpoint: is "" or missing; it must be an address`}},
		{registry.Route{Key: "claims", Services: []registry.Service{with(func(s *registry.Service) { s.Key = "a b" })}}, []string{`/0/serviceKey: is "a b"; it must be 1 to 64`}},
		{registry.Route{Key: "claims", Services: []registry.Service{good, with(func(s *registry.Service) {
			s.Key, s.ManifestURL, s.BaseEndpoint, s.NamePrefix = "b", "http://u:secret@a/m", "file:///x", "ä"
		})}}, []string{"/1/manifestUrl: user information", "/1/baseEndpoint: not an absolute", "/1/namePrefix: at most 64"}},
		{registry.Route{Key: "claims", Services: []registry.Service{with(func(s *registry.Service) {
			s.ManifestURL, s.BaseEndpoint = "/tool-manifest", "http://a/#x"
		})}}, []string{"/0/manifestUrl: not an absolute", "/0/baseEndpoint: fragment"}},
	}
	for _, test := range tests {
		got := registry.CheckRoute(test.route)
		expectFindings(t, got, test.want...)
		if strings.Contains(lines(got), "secret") {
			t.Error("a finding quotes an address")
		}
	}
}

func TestLintPortal(t *testing.T) {
	bad := portalText(routeText("a", serviceText(change{"serviceDomain": `"x"`, "Enabled": `false`, "executionPath": `"/m?x=1"`})), `{"routeKey":1}`,
		routeText("b", serviceText(change{"namePrefix": `"ä"`})))
	bad = strings.Replace(bad, `"registryRevision":"42"`, `"registryRevision":true,"Routes":1`, 1)
	findings := registry.LintPortal([]byte(bad))
	expectFindings(t, findings, "/Routes: is ignored", "/registryRevision: ignored", "/routes/1/routeKey: is the number 1", "/routes/0/toolServices/0/Enabled: is ignored",
		"/routes/0/toolServices/0/serviceDomain: must be an origin", "/routes/0/toolServices/0/executionPath: query", "/routes/1/toolServices: is missing", "/routes/2/toolServices/0/namePrefix: at most 64")
	var warnings []int
	for i, f := range findings {
		if f.Level == registry.Warning {
			warnings = append(warnings, i)
		}
	}
	if !slices.Equal(warnings, []int{0, 1, 3, 5}) {
		t.Errorf("warnings are %v of\n%s", warnings, lines(findings))
	}
	expectFindings(t, registry.LintPortal([]byte(portalText(routeText("a", serviceText(nil))))))

	findings = registry.LintPortal([]byte(portalText(`{"routeKey":"a b","toolServices":[`+serviceText(change{"enabled": `"yes"`, "manifestPath": ""})+`]}`,
		strings.Replace(routeText("x", serviceText(change{"executionPath": `"x"`})), `"routeKey":"x",`, "", 1))))
	expectFindings(t, findings, "/routes/0/routeKey: 1 to 64", "/routes/1/routeKey: is missing",
		`/routes/0/toolServices/0/manifestPath: is missing; it must be a path such as "/tool-manifest"`, `/routes/0/toolServices/0/enabled: is the string "yes"`,
		`/routes/1/toolServices/0/executionPath: it must be a path such as "/mcp"`)
	odd := `{"registryRevison":"1","routes":[{"routeKey":"a","toolService":[],"toolServices":[` +
		serviceText(change{"enbled": `false`, "prefix": `"a."`, "serviceUrl": `"http://a"`, "manifestUrl": `"/m"`, "region": `"eu"`}) + `]}]}`
	findings = registry.LintPortal([]byte(odd))
	expectFindings(t, findings, `/registryRevison: did you mean "registryRevision"?`, `/routes/0/toolService: did you mean "toolServices"?`,
		`/routes/0/toolServices/0/enbled: did you mean "enabled"?`, `/routes/0/toolServices/0/manifestUrl: did you mean "manifestPath"?`,
		`/routes/0/toolServices/0/prefix: did you mean "namePrefix"?`, `/routes/0/toolServices/0/region: no such member is known`,
		`/routes/0/toolServices/0/serviceUrl: is ignored: no such member is known`)
	if d, refused := registry.ParsePortal([]byte(odd)); d == nil || len(refused) > 0 || len(d.Routes[0].Breaches) > 0 {
		t.Errorf("a gateway must accept it without a word: %v", refused)
	}
}
