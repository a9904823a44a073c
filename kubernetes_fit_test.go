package main

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"tollgate/config"
	"tollgate/transport/auth"
)

// podConfig is the configuration a pod finds.
func podConfig(t *testing.T) *config.Config {
	t.Helper()
	p := newPod(t, goodSecrets(t))
	c, err := config.Load(p.config, p.getenv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// given is what a field that has to be there points to.
func given[T any](t *testing.T, what string, field *T) T {
	t.Helper()
	if field == nil {
		t.Fatalf("there is no %s", what)
	}
	return *field
}

// TestManifestsFindThePods holds every selector against the labels of the pods.
func TestManifestsFindThePods(t *testing.T) {
	d := deployment(t)
	pods := labels.Set(d.Spec.Template.Labels)
	selects := func(what string, selector *metav1.LabelSelector) {
		t.Helper()
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(pods) {
			t.Errorf("%s selects %v (%v), which the pods' labels %v do not match, or anything does", what, s, err, pods)
		}
	}
	selects("the Deployment", d.Spec.Selector)
	for _, constraint := range d.Spec.Template.Spec.TopologySpreadConstraints {
		selects("the spread by "+constraint.TopologyKey, constraint.LabelSelector)
	}
	selects("the PodDisruptionBudget", manifest[*policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml", "tollgate").Spec.Selector)
	policy := manifest[*networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "tollgate")
	selects("the NetworkPolicy", &policy.Spec.PodSelector)
	selects("the PodMonitor", &manifest[*podMonitor](t, "podmonitor.yaml", "tollgate").Spec.Selector)
	for _, name := range []string{"tollgate", "tollgate-management"} {
		service := manifest[*corev1.Service](t, "service.yaml", name)
		selects("the Service "+name, &metav1.LabelSelector{MatchLabels: service.Spec.Selector})
		if service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			t.Errorf("the Service %s keeps clients at one pod", name)
		}
	}
	tools := manifest[*networkingv1.NetworkPolicy](t, "networkpolicy-tool-service.yaml", "tool-processing").Spec.Ingress
	if len(tools) != 1 || len(tools[0].From) != 1 || tools[0].From[0].NamespaceSelector == nil {
		t.Fatalf("a Tool Service admits %+v, want only one kind of pods, of one namespace", tools)
	}
	from := tools[0].From[0]
	selects("the policy of a Tool Service", from.PodSelector)
	if got := from.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]; got != d.Namespace {
		t.Errorf("a Tool Service admits pods of the namespace %q", got)
	}
}

// portsOf are a container's ports, by name.
func portsOf(c corev1.Container) map[string]int32 {
	ports := map[string]int32{}
	for _, port := range c.Ports {
		ports[port.Name] = port.ContainerPort
	}
	return ports
}

// TestTheContainerHasThePortsThatAreOpened: those of the configuration and of the image.
func TestTheContainerHasThePortsThatAreOpened(t *testing.T) {
	c, ports := podConfig(t), portsOf(container(t))
	for name, address := range map[string]string{"http": c.Transport.Listen, "management": c.Transport.Management.Listen} {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host != "0.0.0.0" || port != strconv.Itoa(int(ports[name])) {
			t.Errorf("the configuration has %q for the container's port %s, which is %d", address, name, ports[name])
		}
	}
	if len(ports) != 2 {
		t.Errorf("the container has the ports %v", ports)
	}
	expose := strings.Fields(strings.Join(all(instructions(t), "EXPOSE"), " "))
	if want := []string{strconv.Itoa(int(ports["http"])), strconv.Itoa(int(ports["management"]))}; !slices.Equal(expose, want) {
		t.Errorf("the image exposes %v, want %v", expose, want)
	}
}

// TestManifestsMeetAtThePorts: whoever names a port names one of the container, of
// the right listener.
func TestManifestsMeetAtThePorts(t *testing.T) {
	c := container(t)
	ports := portsOf(c)
	is := func(what string, port intstr.IntOrString, want string) {
		t.Helper()
		if port.String() != want && port.IntValue() != int(ports[want]) {
			t.Errorf("%s has port %s, want %s", what, port.String(), want)
		}
	}
	for name, want := range map[string]string{"tollgate": "http", "tollgate-management": "management"} {
		service := manifest[*corev1.Service](t, "service.yaml", name)
		if len(service.Spec.Ports) != 1 {
			t.Fatalf("the Service %s has %d ports", name, len(service.Spec.Ports))
		}
		is("the Service "+name, service.Spec.Ports[0].TargetPort, want)
		if headless := service.Spec.ClusterIP == corev1.ClusterIPNone; headless != (want == "management") {
			t.Errorf("the Service %s: headless is %v", name, headless)
		}
	}
	for name, probe := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe} {
		is(name, given(t, name+".httpGet", given(t, name, probe).HTTPGet).Port, "management")
	}
	is("the PodMonitor", intstr.FromString(manifest[*podMonitor](t, "podmonitor.yaml", "tollgate").Spec.PodMetricsEndpoints[0].Port), "management")

	var paths []string
	for _, path := range manifest[*networkingv1.Ingress](t, "ingress.yaml", "tollgate").Spec.Rules[0].HTTP.Paths {
		paths = append(paths, path.Path)
		backend := path.Backend.Service
		if service := manifest[*corev1.Service](t, "service.yaml", backend.Name); service.Spec.Ports[0].Name != backend.Port.Name {
			t.Errorf("%s of the Ingress leads to port %q of the Service, which has %q", path.Path, backend.Port.Name, service.Spec.Ports[0].Name)
		}
		if *path.PathType != networkingv1.PathTypePrefix {
			t.Errorf("%s of the Ingress is not for what is below it", path.Path)
		}
	}
	if want := []string{"/mcp", auth.WellKnown}; !slices.Equal(paths, want) {
		t.Errorf("the Ingress lets %v through, want %v", paths, want)
	}
}

// TestManifestsLetBodiesThrough: the ingress, whose own bound is lower, takes what
// the gateway would.
func TestManifestsLetBodiesThrough(t *testing.T) {
	const name = "nginx.org/client-max-body-size"
	ingress := manifest[*networkingv1.Ingress](t, "ingress.yaml", "tollgate")
	if got, want := ingress.Annotations[name], strconv.FormatInt(int64(podConfig(t).Transport.HTTP.MaxRequestBytes>>20), 10)+"m"; got != want {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// namespacesOf are those that peers of a policy are in.
func namespacesOf(t *testing.T, peers []networkingv1.NetworkPolicyPeer) (namespaces []string) {
	t.Helper()
	for _, peer := range peers {
		if peer.NamespaceSelector == nil || len(peer.NamespaceSelector.MatchLabels) == 0 {
			t.Errorf("a rule without a namespace, or for all: %+v", peer)
			continue
		}
		namespaces = append(namespaces, peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName])
	}
	return namespaces
}

// TestTheNetworkPolicyAdmitsFew looks at who gets in, at which port.
func TestTheNetworkPolicyAdmitsFew(t *testing.T) {
	policy := manifest[*networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "tollgate").Spec
	if !slices.Equal(policy.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
		t.Errorf("the policy is about %v, want both ways", policy.PolicyTypes)
	}
	admitted := map[string]string{}
	for _, rule := range policy.Ingress {
		for _, port := range rule.Ports {
			admitted[port.Port.String()] += strings.Join(namespacesOf(t, rule.From), " ")
		}
		if len(rule.Ports) == 0 || len(rule.From) == 0 {
			t.Errorf("a rule admits any port, or anybody: %+v", rule)
		}
	}
	if len(admitted) != 2 || admitted["http"] != "ingress" || admitted["management"] != "monitoring" {
		t.Errorf("admitted, by port: %v", admitted)
	}
}

// TestTheNetworkPolicyLetsOut, to what the configuration names and to nobody unnamed.
func TestTheNetworkPolicyLetsOut(t *testing.T) {
	reached := map[string]bool{}
	for _, rule := range manifest[*networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "tollgate").Spec.Egress {
		if len(rule.Ports) == 0 || len(rule.To) == 0 {
			t.Errorf("a rule lets out to any port, or to anybody: %+v", rule)
		}
		for _, port := range rule.Ports {
			for _, namespace := range namespacesOf(t, rule.To) {
				reached[namespace+" "+string(given(t, "protocol of a port "+port.Port.String(), port.Protocol))+" "+port.Port.String()] = true
			}
		}
	}
	url := podConfig(t).Registry.Portal.URL
	portal := regexp.MustCompile(`^http://[a-z-]+\.([a-z-]+)\.svc\.cluster\.local:(\d+)/`).FindStringSubmatch(url)
	if portal == nil {
		t.Fatalf("the Portal's URL is %q", url)
	}
	for _, want := range []string{"kube-system UDP 53", "kube-system TCP 53", portal[1] + " TCP " + portal[2], "redis TCP 6379", " TCP 8080"} {
		if !reached[want] {
			t.Errorf("%q is not reached; these are: %v", want, reached)
		}
	}
}

// TestPodsLeaveInTime holds the grace period against the drain, and what takes pods
// away against the number of them.
func TestPodsLeaveInTime(t *testing.T) {
	c := podConfig(t)
	spec := deployment(t).Spec
	grace := time.Duration(given(t, "terminationGracePeriodSeconds", spec.Template.Spec.TerminationGracePeriodSeconds)) * time.Second
	if least := c.Transport.Shutdown.Delay + c.Transport.Shutdown.Drain + 5*time.Second; grace < least {
		t.Errorf("terminationGracePeriodSeconds is %v, want %v or more", grace, least)
	}
	if c.Transport.Shutdown.Delay <= 0 {
		t.Error("without shutdown.delay, calls come to a listener that is closed")
	}
	replicas := given(t, "replicas", spec.Replicas)
	if replicas < 2 || c.Cost.Replicas != int64(replicas) || !c.ReplicasChosen {
		t.Errorf("%d replicas, and cost.replicas is %d; want the same, 2 or more", replicas, c.Cost.Replicas)
	}
	if missing := fmt.Sprintf("count(tollgate_ready) < %d\n", replicas); !strings.Contains(readText(t, "docs", "deploy", "prometheus-alerts.yaml"), missing) {
		t.Errorf("there are %d replicas, and no alert is about %q", replicas, missing)
	}
	update := given(t, "strategy.rollingUpdate", spec.Strategy.RollingUpdate)
	unavailable, surge := given(t, "maxUnavailable of the strategy", update.MaxUnavailable), given(t, "maxSurge of the strategy", update.MaxSurge)
	if spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || unavailable.IntValue() != 0 || surge.IntValue() < 1 {
		t.Errorf("the strategy is %+v: an old pod may go before a new one is ready, or none can come", spec.Strategy)
	}
	budget := given(t, "maxUnavailable of the budget", manifest[*policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml", "tollgate").Spec.MaxUnavailable)
	if may := budget.IntValue(); may < 1 || int(replicas)-may < 1 {
		t.Errorf("%d pods may go: of %d, one must be able to, and one has to stay", may, replicas)
	}
	if startup := given(t, "startupProbe", container(t).StartupProbe); startup.PeriodSeconds*startup.FailureThreshold < 30 {
		t.Errorf("a start may take %d s only", startup.PeriodSeconds*startup.FailureThreshold)
	}
	if len(spec.Template.Spec.TopologySpreadConstraints) == 0 {
		t.Error("all pods may be on one node")
	}
}

// TestPodsAreRestricted holds the pods against the restricted standard of pod
// security, which the namespace enforces, and against what is beyond it.
func TestPodsAreRestricted(t *testing.T) {
	if got := manifest[*corev1.Namespace](t, "namespace.yaml", "tollgate").Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("the namespace enforces %q", got)
	}
	pod, c := deployment(t).Spec.Template.Spec, container(t)
	account := manifest[*corev1.ServiceAccount](t, "serviceaccount.yaml", pod.ServiceAccountName)
	of, in := given(t, "securityContext of the pod", pod.SecurityContext), given(t, "securityContext of the container", c.SecurityContext)
	runs := fmt.Sprintf("%d:%d", given(t, "runAsUser", of.RunAsUser), given(t, "runAsGroup", of.RunAsGroup))
	capabilities := given(t, "capabilities", in.Capabilities)
	for what, ok := range map[string]bool{
		"runAsNonRoot":                              isTrue(of.RunAsNonRoot),
		"the image's user":                          slices.Equal(all(instructions(t), "USER"), []string{runs}),
		"seccompProfile":                            given(t, "seccompProfile", of.SeccompProfile).Type == corev1.SeccompProfileTypeRuntimeDefault,
		"readOnlyRootFilesystem":                    isTrue(in.ReadOnlyRootFilesystem),
		"no allowPrivilegeEscalation":               isFalse(in.AllowPrivilegeEscalation),
		"no capabilities":                           slices.Equal(capabilities.Drop, []corev1.Capability{"ALL"}) && len(capabilities.Add) == 0,
		"not privileged":                            in.Privileged == nil,
		"nothing of the node's":                     !pod.HostNetwork && !pod.HostPID && !pod.HostIPC,
		"no token of the cluster, said by the pod":  isFalse(pod.AutomountServiceAccountToken),
		"no token, said by the account":             isFalse(account.AutomountServiceAccountToken),
		"no variables of Services (TOLLGATE_PORT)":  isFalse(pod.EnableServiceLinks),
		"no command: the image's entry point":       len(c.Command) == 0,
		"no hook that the image has no program for": c.Lifecycle == nil,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	for _, volume := range pod.Volumes {
		if volume.ConfigMap == nil && volume.Secret == nil {
			t.Errorf("the volume %s is no ConfigMap and no Secret", volume.Name)
		}
	}
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

var goMemory = regexp.MustCompile(`^\d+MiB$`)

// TestMemoryLimitsBelongTogether: Go has to collect before the kernel kills, and must
// not collect all the time because of that.
func TestMemoryLimitsBelongTogether(t *testing.T) {
	c, env := container(t), map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	limit := c.Resources.Limits.Memory().Value()
	if request := c.Resources.Requests.Memory().Value(); request != limit || limit == 0 {
		t.Errorf("memory: a request of %d and a limit of %d", request, limit)
	}
	if !goMemory.MatchString(env["GOMEMLIMIT"]) {
		t.Fatalf("GOMEMLIMIT is %q", env["GOMEMLIMIT"])
	}
	soft := resource.MustParse(strings.TrimSuffix(env["GOMEMLIMIT"], "B")) // Go's MiB are Kubernetes' Mi
	if share := float64(soft.Value()) / float64(limit); share < 0.7 || share > 0.9 {
		t.Errorf("GOMEMLIMIT is %.0f %% of the limit", 100*share)
	}
	if percent, err := strconv.Atoi(env["GOGC"]); err != nil || percent <= 100 {
		t.Errorf("GOGC is %q: with GOMEMLIMIT there is no ballast, and a small gateway collects all the time", env["GOGC"])
	}
	readme := readText(t, "docs", "deploy", "README.md")
	for _, figure := range []string{"limit is " + strconv.FormatInt(limit>>20, 10) + " MiB", "`GOGC=" + env["GOGC"] + "`"} {
		if !strings.Contains(readme, figure) {
			t.Errorf("docs/deploy/README.md does not say %q", figure)
		}
	}
}
