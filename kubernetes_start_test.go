package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// kubectl stands in for the program of that name: it keeps the Secrets it is to
// create, and what it is to apply has to be there.
const kubectl = `#!/usr/bin/env bash
set -euo pipefail
if [ "$1" = -n ]; then
  [ "$2" = tollgate ]
  shift 2
fi
case "$1 $2" in
"create secret")
  [ "$3" = generic ]
  dir=$KEPT/$4
  shift 4
  mkdir -p "$dir"
  for arg; do
    case $arg in
    --from-file=*) cp "${arg#--from-file=}" "$dir/" ;;
    --dry-run=client | -o | yaml) ;;
    *) exit 1 ;;
    esac
  done
  ;;
"apply -f") if [ "$3" = - ]; then cat >"$KEPT/applied.yaml"; else [ -f "$3" ]; fi ;;
"apply -k" | "delete -k") [ -f "$3/kustomization.yaml" ] ;;
"rollout status" | "rollout restart") [ "$3" = deployment/tollgate ] ;;
*) exit 1 ;;
esac
`

// operator is somebody who follows docs/deploy/README.md in one shell.
type operator struct {
	kept string // where kubectl keeps what it gets
	dir  string // where the secrets are
}

// follow runs the shell blocks of sections, in order, and returns what they print.
func (o *operator) follow(t *testing.T, before string, sections ...string) (out string) {
	t.Helper()
	page := readText(t, "docs", "deploy", "README.md")
	script := "set -euo pipefail\n" + before + "\n"
	for _, heading := range sections {
		blocks := shellBlock.FindAllStringSubmatch(section(t, page, heading), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has nothing to run", heading)
		}
		for _, block := range blocks {
			script += block[1]
		}
	}
	if o.kept == "" {
		o.kept = t.TempDir()
		programs := filepath.Join(o.kept, "bin")
		if err := os.Mkdir(programs, 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(programs, "kubectl"), kubectl)
		if err := os.Chmod(filepath.Join(programs, "kubectl"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(binary, filepath.Join(programs, "tollgate")); err != nil {
			t.Fatal(err)
		}
	}
	setup := "export KEPT=" + o.kept + " TMPDIR=" + o.kept + " PATH=" + filepath.Join(o.kept, "bin") + ":$PATH\n"
	out = shell(t, setup+script+"\npwd")
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

const operatorsInput = "PORTAL_TOKEN=token REDIS_URL=redis://tollgate:PASSWORD@127.0.0.1:1/0"

// TestThePageLeadsToAGateway follows docs/deploy/README.md from the secrets to a
// call, with a gateway in the place of the cluster's.
func TestThePageLeadsToAGateway(t *testing.T) {
	var o operator
	out := o.follow(t, operatorsInput, "## 2. Secrets", "## 3. Configuration", "## 4. Apply")
	page := readText(t, "docs", "deploy", "README.md")
	for line := range strings.Lines(shellBlock.FindStringSubmatch(section(t, page, "## 3. Configuration"))[2]) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), " …"); !strings.Contains(out, line) {
			t.Errorf("the page shows %q, which check does not print:\n%s", line, out)
		}
	}

	program := strings.Trim(all(instructions(t), "ENTRYPOINT")[0], `[]"`)
	if inThePod := program + " check --live --config " + container(t).Args[2]; !strings.Contains(page, inThePod) {
		t.Errorf("the page does not say %q, which is how the pod has it", inThePod)
	}

	g, letPortal := startPod(t, o.made(t), newFleet(t, fleetSize{routes: 1, services: 1, tools: 1}))
	letPortal()
	g.stderr.await(t, g.exited, loadedLine)
	here := strings.NewReplacer("http://127.0.0.1:8080", g.URL, "http://127.0.0.1:9090", g.operator, "/mcp/claims", "/mcp/route-0000")
	commands := curlCommands(section(t, page, "## 5. Look whether it works"))
	if len(commands) != 3 {
		t.Fatalf("the page has %d commands to look", len(commands))
	}
	wants := []string{`"status":"UP"`, `"routeKey":"route-0000"`, `"tool_00000_00"`}
	for i, line := range commands {
		if out := shell(t, "cd "+o.dir+" && "+here.Replace(line)); !strings.Contains(out, wants[i]) {
			t.Errorf("%s\nprints %s, want %s in it", line, out, wants[i])
		}
	}
}

// TestThePageReplacesKeys follows the first step of a new key for handles, and a
// change of API keys.
func TestThePageReplacesKeys(t *testing.T) {
	var o operator
	o.follow(t, operatorsInput, "## 2. Secrets")
	o.follow(t, "cd "+o.dir+"; cp TOLLGATE_HANDLE_KEYS k1; tollgate key handle --id k2 >k2", "## Replace keys")
	p := newPod(t, o.made(t))
	check := command{args: []string{"check", "--config", p.config}, env: p.env}.run(t)
	if check.code != 0 || !regexp.MustCompile(`handle keys: k1 \w+ \(signs\), k2 `).MatchString(check.stdout) {
		t.Errorf("exit code %d\n%s%s", check.code, check.stdout, check.stderr)
	}
}

// TestThePageMakesAPrometheusRule: the alert rules, as the Prometheus Operator takes
// them, are those of the file.
func TestThePageMakesAPrometheusRule(t *testing.T) {
	var o operator
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
