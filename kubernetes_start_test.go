package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"tollgate/config"
)

// TestThePodsVariablesAreRead finds variables that do nothing, and ones that
// Kubernetes could overwrite.
func TestThePodsVariablesAreRead(t *testing.T) {
	p := newPod(t, goodSecrets(t))
	_, variables, err := config.Inspect(p.config, p.getenv)
	if err != nil {
		t.Fatal(err)
	}
	read := append(variables, "TOLLGATE_HANDLE_KEYS", "GOMEMLIMIT", "GOGC", "GOMAXPROCS") // by the file, by main, by Go
	var given []string
	c := container(t)
	for _, v := range c.Env {
		given = append(given, v.Name)
		if !slices.Contains(read, v.Name) {
			t.Errorf("nothing reads %s", v.Name)
		}
		if strings.HasSuffix(v.Name, "_PORT") {
			t.Errorf("%s has the name of a Service's variable", v.Name)
		}
	}
	for _, name := range read {
		if !slices.Contains(given, name) {
			t.Errorf("%s is read, and the Deployment does not give it", name)
		}
	}
	if len(c.EnvFrom) > 0 {
		t.Error("whatever is in a Secret becomes a variable")
	}
	for name, values := range templateSecrets(t) {
		for key := range values {
			if name == "tollgate-secrets" && !slices.Contains(given, key) {
				t.Errorf("no pod gets %s of %s", key, name)
			}
		}
	}
}

// TestPlaceholdersDoNotStart: a gateway with a value that nobody has replaced in
// secret.yaml does not start, and names the variable or the file.
func TestPlaceholdersDoNotStart(t *testing.T) {
	good := goodSecrets(t)
	for name, values := range templateSecrets(t) {
		for key, value := range values {
			p := newPod(t, good.with(name, key, value))
			o := command{args: append(p.args, "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"), env: p.env}.run(t)
			if o.code != exitFailed || !strings.Contains(o.stderr, key) {
				t.Errorf("with the placeholder of %s: exit code %d\n%s", key, o.code, o.stderr)
			}
		}
	}
}

// TestThePodNeedsItsValues tries each variable empty, which is as good as not set.
// Without keys for handles a gateway starts, so the check has to show it.
func TestThePodNeedsItsValues(t *testing.T) {
	good := goodSecrets(t)
	for _, name := range []string{"TOLLGATE_PORTAL_TOKEN", "TOLLGATE_REDIS_URL"} {
		p := newPod(t, good.with("tollgate-secrets", name, ""))
		o := command{args: append(p.args, "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"), env: p.env}.run(t)
		if o.code != exitFailed || !strings.Contains(o.stderr, name+" is not set") {
			t.Errorf("with an empty %s: exit code %d\n%s", name, o.code, o.stderr)
		}
	}
	p := newPod(t, good.with("tollgate-secrets", "TOLLGATE_HANDLE_KEYS", ""))
	o := command{args: []string{"check", "--config", p.config}, env: p.env}.run(t)
	if o.code != 0 || !strings.Contains(o.stdout, "handle keys: none\n") {
		t.Errorf("without keys for handles: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	page := readText(t, "docs", "deploy", "README.md")
	for _, said := range []string{"`handle keys: none` is a mistake here", "with kind `handle_keys_missing` |", "variable that `is not set` |"} {
		if !strings.Contains(page, said) {
			t.Errorf("the page does not say %q", said)
		}
	}
}

// slowPortal answers as the fleet's does, once it is let.
func slowPortal(t *testing.T, f *fleet) (url string, let func()) {
	t.Helper()
	may := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-may:
			w.Write(f.declaration())
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() { close(may) }
}

// startPod starts a gateway as the pod's container, but for the ports. Its Portal
// says nothing before it is let.
func startPod(t *testing.T, from secrets, f *fleet) (g *gateway, letPortal func()) {
	t.Helper()
	portal, let := slowPortal(t, f)
	p := newPod(t, from,
		"http://portal.platform.svc.cluster.local:8080/api/mcp/registry", portal,
		"tool-processing.claims.svc.cluster.local", "127.0.0.1")
	if p.args[0] != "serve" {
		t.Fatalf("the container runs %q", p.args)
	}
	return start(t, command{args: p.args[1:], env: p.env}), let
}

// TestProbesAskWhatThereIs sends the pod's probes, with and without a list.
func TestProbesAskWhatThereIs(t *testing.T) {
	g, letPortal := startPod(t, goodSecrets(t), newFleet(t, fleetSize{routes: 1, services: 1, tools: 1}))
	c := container(t)
	probe := func(p *corev1.Probe, want int) {
		t.Helper()
		if p.HTTPGet.Scheme != "" && p.HTTPGet.Scheme != corev1.URISchemeHTTP || len(p.HTTPGet.HTTPHeaders) > 0 {
			t.Errorf("the probe is more than a GET: %+v", p.HTTPGet)
		}
		if a := g.management(t, http.MethodGet, p.HTTPGet.Path); a.status != want {
			t.Errorf("%s answers %d %s, want %d", p.HTTPGet.Path, a.status, a.body, want)
		}
	}
	probe(c.StartupProbe, http.StatusOK)
	probe(c.LivenessProbe, http.StatusOK)
	probe(c.ReadinessProbe, http.StatusServiceUnavailable)
	letPortal()
	g.stderr.await(t, g.exited, loadedLine)
	probe(c.StartupProbe, http.StatusOK)
	probe(c.LivenessProbe, http.StatusOK)
	probe(c.ReadinessProbe, http.StatusOK)
	for _, endpoint := range manifest[*podMonitor](t, "podmonitor.yaml", "tollgate").Spec.PodMetricsEndpoints {
		if a := g.management(t, http.MethodGet, endpoint.Path); a.status != http.StatusOK || !strings.Contains(a.body, "tollgate_build_info") {
			t.Errorf("%s, which the PodMonitor reads, answers %d", endpoint.Path, a.status)
		}
	}
}

// TestASidecarMayUseTheNames: over loopback, where a sidecar comes from, the names
// of Services and Ingress are admitted, and others are not.
func TestASidecarMayUseTheNames(t *testing.T) {
	g, letPortal := startPod(t, goodSecrets(t), newFleet(t, fleetSize{routes: 1, services: 1, tools: 1}))
	letPortal()
	status := func(base, path, host string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	names := []string{manifest[*networkingv1.Ingress](t, "ingress.yaml", "tollgate").Spec.Rules[0].Host}
	for _, name := range []string{"tollgate", "tollgate-management"} {
		service := manifest[*corev1.Service](t, "service.yaml", name)
		names = append(names, service.Name+"."+service.Namespace+".svc.cluster.local:9090")
	}
	for _, name := range names {
		if got := status(g.URL, "/mcp/route-0000", name); got == http.StatusForbidden {
			t.Errorf("Host %s is refused", name)
		}
		if got := status(g.operator, "/actuator/health/liveness", name); got != http.StatusOK {
			t.Errorf("Host %s on the management listener: %d", name, got)
		}
	}
	if got := status(g.URL, "/mcp/route-0000", "rebound.example"); got != http.StatusForbidden {
		t.Errorf("Host rebound.example: %d", got)
	}
}

// kubectl stands in for the program of that name: it keeps the Secrets that are
// created and then applied, and what it is to apply has to be there.
const kubectl = `#!/usr/bin/env bash
set -euo pipefail
if [ "$1" = -n ]; then
  [ "$2" = tollgate ]
  shift 2
fi
case "$*" in
"get pods -o wide") ;;
"get pods -l app.kubernetes.io/name=tollgate -o name") printf 'pod/tollgate-%s\n' 1 2 ;;
"logs -l app.kubernetes.io/name=tollgate --prefix --tail=100") ;;
"port-forward deployment/tollgate 8080 9090") ;;
"exec pod/tollgate-"?" -- "*) echo "$*" ;;
"get deployment tollgate -o json") cat "$KEPT/deployment.json" ;;
"logs --follow tollgate-check" | "delete pod tollgate-check") ;;
"get secret "*" -o jsonpath={.data."*)
  key=${5#jsonpath=?.data.}
  key=${key%?}
  base64 <"$KEPT/$3/${key//\\/}"
  ;;
"create secret generic "*" --dry-run=client -o yaml")
  made=$KEPT/made/$4
  shift 4
  mkdir -p "$made"
  while [ "$1" != --dry-run=client ]; do
    cp "${1#--from-file=}" "$made/"
    shift
  done
  echo "Secret ${made##*/}"
  ;;
"apply -f -")
  cat >"$KEPT/applied.yaml"
  read -r kind name <"$KEPT/applied.yaml"
  if [ "$kind" = Secret ]; then
    rm -rf "$KEPT/$name"
    mv "$KEPT/made/$name" "$KEPT/$name"
  fi
  ;;
"apply -f "*) [ -f "$3" ] ;;
"apply -k "*) [ -f "$3/kustomization.yaml" ] ;;
"rollout status deployment/tollgate "* | "rollout restart deployment/tollgate") ;;
*) echo "kubectl does not know: $*" >&2; exit 1 ;;
esac
`

// operator is somebody who follows docs/deploy/README.md in a clone.
type operator struct {
	kept  string // where kubectl keeps what it gets
	dir   string // where the shell was at the end
	input string // what is typed where a command asks
}

// newOperator has a clone in which tollgate was built; it is on no PATH.
func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{kept: t.TempDir(), input: "token\nredis://tollgate:PASSWORD@127.0.0.1:1/0\n"}
	for _, dir := range []string{"bin", "clone"} {
		if err := os.Mkdir(filepath.Join(o.kept, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(o.kept, "bin", "kubectl"), kubectl)
	if err := os.Chmod(filepath.Join(o.kept, "bin", "kubectl"), 0o755); err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Abs("docs")
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"docs": docs, "tollgate": binary} {
		if err := os.Symlink(target, filepath.Join(o.kept, "clone", name)); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// script is what the shell blocks of sections do, in order, after before.
func (o *operator) script(t *testing.T, before string, sections ...string) string {
	t.Helper()
	page := readText(t, "docs", "deploy", "README.md")
	writeFile(t, filepath.Join(o.kept, "input"), o.input)
	script := "export KEPT=" + o.kept + " TMPDIR=" + o.kept + " PATH=" + filepath.Join(o.kept, "bin") + ":$PATH\n" +
		"set -euo pipefail; cd $KEPT/clone; exec <$KEPT/input\n" + before + "\n"
	for _, heading := range sections {
		blocks := shellBlock.FindAllStringSubmatch(section(t, page, heading), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has nothing to run", heading)
		}
		for _, block := range blocks {
			script += block[1]
		}
	}
	return script
}

// follow runs the shell blocks of sections, and returns what they print.
func (o *operator) follow(t *testing.T, before string, sections ...string) (out string) {
	t.Helper()
	out = shell(t, o.script(t, before, sections...)+"\npwd")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	o.dir = lines[len(lines)-1]
	return out
}

// made are the Secrets that kubectl was to create.
func (o *operator) made(t *testing.T) secrets {
	t.Helper()
	s := secrets{}
	for name, values := range templateSecrets(t) {
		s[name] = map[string]string{}
		for key := range values {
			s[name][key] = readText(t, o.kept, name, key)
		}
	}
	return s
}

// TestThePageLeadsToAGateway follows docs/deploy/README.md from the secrets to a
// call, with a gateway in the place of the cluster's.
func TestThePageLeadsToAGateway(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	o := newOperator(t)
	out := o.follow(t, "", "## 2. Secrets", "## 3. Configuration", "## 4. Apply")
	page := readText(t, "docs", "deploy", "README.md")
	for line := range strings.Lines(shellBlock.FindStringSubmatch(section(t, page, "## 3. Configuration"))[2]) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), " …"); !strings.Contains(out, line) {
			t.Errorf("the page shows %q, which check does not print:\n%s", line, out)
		}
	}

	g, letPortal := startPod(t, o.made(t), newFleet(t, fleetSize{routes: 1, services: 1, tools: 1}))
	letPortal()
	g.stderr.await(t, g.exited, loadedLine)
	here := strings.NewReplacer("http://127.0.0.1:8080", g.URL, "http://127.0.0.1:9090", g.operator, "/mcp/claims", "/mcp/route-0000")
	there, err := json.Marshal(deployment(t))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(o.kept, "deployment.json"), string(there))
	out = shell(t, here.Replace(o.script(t, "cd "+o.dir, "## 5. Look whether it works")))
	check := strings.Trim(all(instructions(t), "ENTRYPOINT")[0], `[]"`) + " check --config " + container(t).Args[2]
	for _, want := range []string{`"status":"UP"`, `"routeKey":"route-0000"`, `"tool_00000_00"`, "pod/tollgate-1 -- " + check + "\n", "pod/tollgate-2 -- " + check + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("want %s in what the page's commands print:\n%s", want, out)
		}
	}
	o.checksApart(t)
}

// checksApart holds the pod in which everything is tried against a gateway's: it sees
// the same, and no call comes to it.
func (o *operator) checksApart(t *testing.T) {
	t.Helper()
	objects, err := decodeManifests(readText(t, o.kept, "applied.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod, ok := objects[0].(*corev1.Pod)
	if !ok {
		t.Fatalf("the page makes a %T", objects[0])
	}
	template := deployment(t).Spec.Template
	if diff := cmp.Diff(template.Labels, pod.Labels); diff != "" {
		t.Errorf("labels, by which policies let it through (-gateway +check):\n%s", diff)
	}
	want := template.Spec
	want.RestartPolicy, want.TopologySpreadConstraints = corev1.RestartPolicyNever, nil
	c := &want.Containers[0]
	c.Args = slices.Concat([]string{"check", "--live"}, c.Args[1:])
	c.StartupProbe, c.LivenessProbe = nil, nil // they would end it
	if diff := cmp.Diff(want, pod.Spec); diff != "" || c.ReadinessProbe == nil {
		t.Errorf("the pod (-gateway, changed +check):\n%s", diff)
	}
}

// TestThePageSaysWhatIsMissing: no secret is made of a program that is not there, or
// of nothing, and the operator is told.
func TestThePageSaysWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct{ before, input, want string }{
		"no tollgate": {"rm tollgate", "token\nredis://127.0.0.1:1/0\n", "clone/tollgate: No such file"},
		"no token":    {"", "\nredis://127.0.0.1:1/0\n", "TOLLGATE_PORTAL_TOKEN is empty"},
		"no Redis":    {"", "token\n\n", "TOLLGATE_REDIS_URL is empty"},
	} {
		o := newOperator(t)
		o.input = test.input
		if out := shellFailing(t, o.script(t, test.before, "## 2. Secrets")); !strings.Contains(out, test.want) || strings.Contains(out, "all made") {
			t.Errorf("%s: want %q in\n%s", name, test.want, out)
		}
	}
}

// TestThePageReplacesKeys follows the first step of a new key for handles, and a
// change of API keys, by somebody who has kept no file.
func TestThePageReplacesKeys(t *testing.T) {
	o := newOperator(t)
	o.follow(t, "", "## 2. Secrets")
	before := o.made(t)
	o.follow(t, `tollgate() { "$KEPT/clone/tollgate" "$@"; }`, "## Replace keys")
	after := o.made(t)
	before["tollgate-secrets"]["TOLLGATE_HANDLE_KEYS"] += readText(t, o.dir, "k2")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("Secrets (-before, with the new key +after):\n%s", diff)
	}
	p := newPod(t, after)
	check := command{args: []string{"check", "--config", p.config}, env: p.env}.run(t)
	if check.code != 0 || !regexp.MustCompile(`handle keys: k1 \w+ \(signs\), k2 `).MatchString(check.stdout) {
		t.Errorf("exit code %d\n%s%s", check.code, check.stdout, check.stderr)
	}
}

// TestThePageMakesAPrometheusRule: the alert rules, as the Prometheus Operator takes
// them, are those of the file.
func TestThePageMakesAPrometheusRule(t *testing.T) {
	o := newOperator(t)
	o.follow(t, "manifests="+manifestDir, "### The alert rules")
	var rule struct {
		APIVersion string         `yaml:"apiVersion"`
		Kind       string         `yaml:"kind"`
		Metadata   map[string]any `yaml:"metadata"`
		Spec       any            `yaml:"spec"`
	}
	var rules any
	decodeYAML(t, readText(t, o.kept, "applied.yaml"), &rule)
	decodeYAML(t, readText(t, "docs", "deploy", "prometheus-alerts.yaml"), &rules)
	if rule.Kind != "PrometheusRule" || rule.Metadata["namespace"] != "tollgate" || !reflect.DeepEqual(rule.Spec, rules) {
		t.Errorf("the command makes another rule: %+v", rule)
	}
}
