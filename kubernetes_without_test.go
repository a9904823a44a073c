package main

import (
	"regexp"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// TestThePodDoesWithout: what docs/deploy/README.md says can be left out can be, with
// the changes of its table alone.
func TestThePodDoesWithout(t *testing.T) {
	const portal = "  portal:\n    url: http://portal.platform.svc.cluster.local:8080/api/mcp/registry\n    token: ${TOLLGATE_PORTAL_TOKEN}\n"
	const token = "    token: ${TOLLGATE_PORTAL_TOKEN}\n"
	const redis = "redis:\n  url: ${TOLLGATE_REDIS_URL}\n  keyPrefix: tollgate\n"
	const routes = "  routes:\n    claims:\n      - id: processing\n        manifestUrl: http://tool-processing.claims.svc.cluster.local:8080/tool-manifest\n        baseEndpoint: http://tool-processing.claims.svc.cluster.local:8080/mcp\n"
	page := readText(t, "docs", "deploy", "README.md")
	documented := map[string][]string{}
	for _, row := range tableRows(t, page, "without") {
		documented[row[0]] = row
	}
	for what, test := range map[string]struct{ old, new, variable, rule string }{
		"a Portal":         {portal, routes, "TOLLGATE_PORTAL_TOKEN", "# The Portal."},
		"a Portal's token": {token, "", "TOLLGATE_PORTAL_TOKEN", ""},
		"Redis":            {redis, "", "TOLLGATE_REDIS_URL", "# Redis."},
	} {
		t.Run(what, func(t *testing.T) {
			row := documented[what]
			if len(row) < 6 || row[2] != "`"+test.variable+"`" && row[2] != "the same" {
				t.Fatalf("the table says %q", row)
			}
			if (row[3] == "nothing") != (test.rule == "") || !strings.Contains(readText(t, manifestDir, "networkpolicy.yaml"), test.rule) {
				t.Errorf("the table speaks of the rule %q", row[3])
			}
			p := newPod(t, goodSecrets(t), test.old, test.new)
			var env []string
			for _, v := range p.env {
				if !strings.HasPrefix(v, test.variable+"=") {
					env = append(env, v)
				}
			}
			if len(env) != len(p.env)-1 {
				t.Fatalf("the pod has no %s", test.variable)
			}
			if o := (command{args: []string{"check", "--config", p.config}, env: env}).run(t); o.code != 0 {
				t.Errorf("exit code %d\n%s", o.code, o.stderr)
			}
		})
	}
}

var commentedRule = regexp.MustCompile(`(?m)^    # (- to:|    - ipBlock|  ports:|    - \{protocol)`)

// TestTheRulesInCommentsAreGood: those of networkpolicy.yaml that are for what is
// outside the cluster let out to it, and to nothing else, without their comment signs.
func TestTheRulesInCommentsAreGood(t *testing.T) {
	text := readText(t, manifestDir, "networkpolicy.yaml")
	objects, err := decodeManifests(commentedRule.ReplaceAllString(text, "    $1"))
	if err != nil {
		t.Fatal(err)
	}
	rules, outside := objects[0].(*networkingv1.NetworkPolicy).Spec.Egress, 0
	for _, rule := range rules {
		if rule.To[0].IPBlock != nil && len(rule.To) == 1 && len(rule.Ports) == 1 && rule.Ports[0].Port.IntValue() == 443 {
			outside++
		}
	}
	applied := manifest[*networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "tollgate").Spec.Egress
	if outside != 2 || len(rules) != len(applied)+outside {
		t.Errorf("%d rules with an address of %d, %d of them applied", outside, len(rules), len(applied))
	}
}

// TestTheLimitInCommentsIsGood: the annotations of ingress.yaml that are comments are
// annotations without their comment signs.
func TestTheLimitInCommentsIsGood(t *testing.T) {
	text := strings.ReplaceAll(readText(t, manifestDir, "ingress.yaml"), "    # nginx.org/", "    nginx.org/")
	objects, err := decodeManifests(text)
	if err != nil {
		t.Fatal(err)
	}
	all := objects[0].(*networkingv1.Ingress).Annotations
	applied := manifest[*networkingv1.Ingress](t, "ingress.yaml", "tollgate").Annotations
	if all["nginx.org/limit-req-rate"] == "" || all["nginx.org/limit-req-key"] == "" || len(all) != len(applied)+3 {
		t.Errorf("the annotations are %v", all)
	}
}
