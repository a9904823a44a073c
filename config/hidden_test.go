package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const secret = "S3CR3T,p@w9"

// Whatever is wrong with a configuration, the message tells where and what is
// wanted, and nothing of a value that a variable brought to the wrong key.
func TestProblemsNeverShowWhatAVariableHolds(t *testing.T) {
	const portal = "registry: { portal: { url: \"http://h/x\" } }\n"
	route := func(service string) string {
		return "registry: { routes: { c: [ { " + service + " } ] } }\n"
	}
	for text, want := range map[string]string{
		portal + `redis: { mode: "${V}" }`:                                                                             "redis.mode: must be single, sentinel or cluster; the value is that of the environment variable V",
		portal + `redis: { keyPrefix: "${V}" }`:                                                                        "redis.keyPrefix: must be 1 to 64",
		portal + `redis: { url: "rediss://h", caFile: "${V}" }`:                                                        "redis.caFile: want the path of a PEM file with certificates: no such file or directory; the value is that of the environment variable V",
		portal + `redis: { url: "rediss://h", caFile: "x${V}" }`:                                                       "redis.caFile: want the path of a PEM file",
		portal + `redis: { url: "${V}" }`:                                                                              "redis.url: must be redis://",
		portal + `upstream: { caFile: "/etc/${V}" }`:                                                                   "upstream.caFile: want the path of a PEM file with certificates: no such file or directory",
		portal + `upstream: { passHeaders: ["x: ${V}"] }`:                                                              "upstream.passHeaders[0]: want the name of a header",
		portal + `upstream: { allowedHosts: ["u:${V}@h"] }`:                                                            "upstream.allowedHosts[0]: want a host name",
		portal + `http: { allowedHosts: ["u:${V}@h"] }`:                                                                "http.allowedHosts[0]: want a host name",
		portal + `http: { allowedOrigins: ["https://${V}:443"] }`:                                                      "http.allowedOrigins[0]: want an origin",
		portal + `http: { tls: { certFile: "${V}", keyFile: "${V}" } }`:                                                "http.tls.keyFile: want the path of a file that can be read: no such file",
		portal + `http: { maxRequestBytes: "${V}" }`:                                                                   "want a whole number, not the value of the environment variable V",
		portal + `upstream: { maxInFlightPerService: "${N}" }`:                                                         "upstream.maxInFlightPerService: must be at least 1; the value is that of",
		portal + `shutdown: { drain: "${D}" }`:                                                                         "shutdown.drain: want a duration of zero or more",
		portal + `listen: "${V}"`:                                                                                      "listen: want HOST:PORT",
		portal + `telemetry: { otlpEndpoint: "${V}" }`:                                                                 "telemetry.otlpEndpoint: must be host:port",
		`registry: { onMissingService: "${V}", portal: {url: "http://h"} }`:                                            "registry.onMissingService: want refuse or omit",
		`registry: { portal: { url: "http://h/x", refreshTTL: "${V}" } }`:                                              "want a duration such as 300s",
		route(`id: "${V}", manifestUrl: "http://h", baseEndpoint: "http://h"`):                                         "registry.routes.c[0].id: want 1 to 64",
		route(`id: a, manifestUrl: "${V}", baseEndpoint: "${V}"`):                                                      "registry.routes.c[0].baseEndpoint: want an absolute http or https URL",
		route(`id: a, manifestUrl: "http://h", baseEndpoint: "http://h", namePrefix: "${V}"`):                          "registry.routes.c[0].namePrefix: want at most 64",
		route(`id: a, manifestUrl: "http://h", baseEndpoint: "http://h", fallbackManifestFile: "${V}"`):                "fallbackManifestFile: want the path of a file that can be read: no such file",
		route(`id: a, manifestUrl: "http://h", baseEndpoint: "http://h", fallbackManifestFile: "${PEM}"`):              "fallbackManifestFile: holds the content of a file; want its path",
		portal + `http: { tls: { certFile: /dev/null, keyFile: "${PEM}" } }`:                                           "http.tls.keyFile: holds the content of a file; want its path; the value is that of the environment variable PEM",
		portal + `upstream: { caFile: "${PEM}" }`:                                                                      "upstream.caFile: holds the content of a file; want its path",
		portal + `handles: { keysFile: "${V}" }`:                                                                       "handles.keysFile: want the path of a file that can be read, relative to this one: no such file or directory; the value is that of the environment variable V",
		portal + `handles: { keysFile: "${PEM}" }`:                                                                     "handles.keysFile: holds the content of a file; want its path",
		portal + `handles: { keysFile: "${KEYS}" }`:                                                                    "handles.keysFile: holds the content of a file; want its path; the value is that of the environment variable KEYS",
		portal + `handles: { maxSignedBytes: "${N}" }`:                                                                 "handles.maxSignedBytes: must be from 128 to 65536; the value is that of",
		portal + `auth: { mode: "${V}" }`:                                                                              "auth.mode: want none or required; the value is that of",
		portal + `auth: { publicURL: "${V}" }`:                                                                         "auth.publicURL: want ",
		portal + `auth: { publicURL: "https://u:${V}@h" }`:                                                             "auth.publicURL: must not hold credentials",
		portal + `auth: { trustedPrincipalHeader: "x: ${V}" }`:                                                         "auth.trustedPrincipalHeader: want the name of a header",
		portal + `auth: { mode: required, keysFile: "${V}" }`:                                                          "auth.keysFile: want the path of a file that can be read, relative to this one: no such file or directory; the value is that of the environment variable V",
		portal + `auth: { mode: required, keysFile: "${PEM}" }`:                                                        "auth.keysFile: holds the content of a file; want its path",
		portal + `auth: { mode: required, publicURL: "https://h", oauth: { issuer: "https://u:${V}@h" } }`:             "auth.oauth.issuer: must not hold credentials",
		portal + `auth: { mode: required, publicURL: "https://h", oauth: { issuer: "https://h", audience: " ${V}" } }`: "auth.oauth.audience: want at most",
		portal + `auth: { oauth: { principalClaim: " ${V}" } }`:                                                        "auth.oauth.principalClaim: want the name of a claim",
		portal + `cost: { enforce: "${V}" }`:                                                                           "cost.enforce: must be auto, always or never; the value is that of the environment variable V",
		portal + `cost: { onStoreFailure: "${V}" }`:                                                                    "cost.onStoreFailure: must be local or closed; the value is that of",
		portal + `cost: { pageSize: "${N}" }`:                                                                          "cost.pageSize: must be from 1 to 1000000; the value is that of",
		portal + `cost: { minCharge: "${M}", tiers: { basic: { capacity: "${M}", hourly: 2 } } }`:                      "cost.minCharge: must be at most 2, because no more can be spent at once in the tier basic; the value is that of",
		portal + `cost: { tiers: { basic: { refillPerSecond: "${N}" } } }`:                                             "cost.tiers.basic.refillPerSecond: must be from 1 to the capacity, 1000000; the value is that of",
		portal + `cost: { tiers: { "S3CR3T@": { capacity: 0 } } }`:                                                     "cost.tiers: the name of a tier must be 1 to 32",
		portal + `redis: { caFile: "${PEM}" }`:                                                                         "redis.caFile: holds the content of a file; want its path",
		route(`id: a, manifestUrl: "http://h", baseEndpoint: "http://h", namePrefix: "${P}"}, {id: b, manifestUrl: "http://h", baseEndpoint: "http://h", namePrefix: "S3CR3Tp."`): "registry.routes.c[1].namePrefix: ",
	} {
		_, _, err := load(t, text, "V", secret, "PEM", "-----BEGIN PRIVATE KEY-----\nS3CR3T\n", "N", "-73921", "M", "73921", "D", "-73921s", "P", "S3CR3T",
			"KEYS", "k1:S3CR3Tq83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRW,k2:S3CR3Tq83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRW")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant …%s", text, err, want)
		}
		if show := fmt.Sprint(err); strings.Contains(show, "S3CR3T") || strings.Contains(show, "p@w9") || strings.Contains(show, "73921") {
			t.Errorf("%s shows the value: %v", text, err)
		}
	}
}

// A secret without quotes means something to YAML. What the parser makes of it
// is not shown either, but where it stands is.
func TestProblemsNeverShowPartsOfAnUnquotedValue(t *testing.T) {
	const s = "S3CR3T"
	const block = "registry:\n  portal:\n    url: \"http://h/x\"\n    "
	for _, text := range []string{
		block + "token: *" + s, block + "token: |" + s, block + "token: >" + s, block + "token: !" + s, block + "token: @" + s,
		block + "token: `" + s, block + "token: \"" + s, block + "token: '" + s, block + "token: \"\\q" + s + "\"",
		block + "token: a: " + s, block + "token: {" + s, block + "token: [" + s, block + "token: {" + s + "}", block + "token: [" + s + "]",
		block + "token \"" + s + "\"", block + "token:" + s, block + "token=" + s, block + s, block + "<<: *" + s,
		block + "refreshTTL: " + s, block + "maxBytes: " + s, block + "token: a${" + s + "x}b", block + "token: \"${" + s + "-}\"",
		block + "token: x\n    " + s + "@h: y", "redis: { url: redis://u:a," + s + "@h:6379 }", "redis: { url: redis://u:a," + s + ",x@h:6379 }",
		"redis: { mode: redis://u:" + s + "@h }", "upstream: { passAuthorization: " + s + " }",
		"registry: { routes: { http://u:" + s + "@h: [] } }", "redis: { caFile: \"" + s + "\\n\" }", "redis: redis://u:" + s + "@h",
		"http: { allowedHosts: [\"u:" + s + "@h\"] }", "upstream: { allowedHosts: [\"u:" + s + "@h\"] }",
		"%YAML " + s + "\n---\nredis: {}", "redis: &" + s + " *" + s,
	} {
		_, _, err := load(t, text+"\n")
		problems, ok := errors.AsType[*Problems](err)
		if !ok {
			t.Errorf("%s\nwant problems, got %v", text, err)
			continue
		}
		if strings.Contains(strings.ToLower(err.Error()), strings.ToLower(s)) {
			t.Errorf("%s\nshows the value: %v", text, err)
		}
		for _, p := range problems.List {
			if p.Line == 0 || p.Text == "" {
				t.Errorf("%s\nhas a problem without a place or text: %+v", text, p)
			}
		}
	}
}
