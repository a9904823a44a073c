package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifestDir is the directory that kubectl apply -k gets.
var manifestDir = filepath.Join("docs", "deploy", "kubernetes")

// configFile is the file of manifestDir that is no manifest: a ConfigMap is made of it.
const configFile = "tollgate.yaml"

// notApplied are the files of manifestDir that kustomization.yaml leaves out: the
// template of Secrets, which would overwrite the real ones, and what belongs elsewhere.
var notApplied = []string{"ingress.yaml", "networkpolicy-tool-service.yaml", "podmonitor.yaml", "secret.yaml"}

// kustomization is what kustomization.yaml may have: what these tests understand.
type kustomization struct {
	metav1.TypeMeta    `json:",inline"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name      string   `json:"name"`
		Namespace string   `json:"namespace"`
		Files     []string `json:"files"`
	} `json:"configMapGenerator"`
}

// DeepCopyObject makes it a runtime.Object; nobody here copies one.
func (k *kustomization) DeepCopyObject() runtime.Object { return k }

// podMonitor is the part of the Prometheus Operator's kind that is used; its own
// package would bring the operator along.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string          `json:"port"`
			Path     string          `json:"path"`
			Interval metav1.Duration `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// DeepCopyObject makes it a runtime.Object; nobody here copies one.
func (p *podMonitor) DeepCopyObject() runtime.Object { return p }

// newManifestDecoder decodes as the API server does: by apiVersion and kind, with
// regard to case, and with unknown fields and duplicate keys as errors.
func newManifestDecoder() *json.Serializer {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two kinds of one name
		}
	}
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "kustomize.config.k8s.io", Version: "v1beta1", Kind: "Kustomization"}, &kustomization{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}, &podMonitor{})
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
}

// decodeManifests decodes the documents of one file.
func decodeManifests(text string) (objects []runtime.Object, err error) {
	decoder, documents := newManifestDecoder(), yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

// manifests are all manifests of the directory, by file.
func manifests(t *testing.T) map[string][]runtime.Object {
	t.Helper()
	entries, err := os.ReadDir(manifestDir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]runtime.Object{}
	for _, entry := range entries {
		if name := entry.Name(); name != configFile {
			files[name] = manifestsIn(t, name)
		}
	}
	return files
}

// manifestsIn are those of one file.
func manifestsIn(t *testing.T, file string) []runtime.Object {
	t.Helper()
	objects, err := decodeManifests(readText(t, manifestDir, file))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(objects) == 0 {
		t.Errorf("%s has nothing in it", file)
	}
	return objects
}

// manifest is the only object of its type and name in a file.
func manifest[T runtime.Object](t *testing.T, file, name string) (found T) {
	t.Helper()
	count := 0
	for _, object := range manifestsIn(t, file) {
		typed, ok := object.(T)
		if !ok {
			continue
		}
		if meta, ok := object.(metav1.Object); ok && meta.GetName() != name {
			continue
		}
		found, count = typed, count+1
	}
	if count != 1 {
		t.Fatalf("%s has %d %T named %q, want one", file, count, found, name)
	}
	return found
}

func deployment(t *testing.T) *appsv1.Deployment {
	return manifest[*appsv1.Deployment](t, "deployment.yaml", "tollgate")
}

// container is the only container of the Deployment's pods.
func container(t *testing.T) corev1.Container {
	t.Helper()
	pod := deployment(t).Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) > 0 {
		t.Fatalf("a pod has %d containers and %d before them; these tests know of one", len(pod.Containers), len(pod.InitContainers))
	}
	return pod.Containers[0]
}

// TestManifestsAreApplied holds the files against kustomization.yaml, which has to
// name each, and to leave out those that would do harm.
func TestManifestsAreApplied(t *testing.T) {
	files := manifests(t)
	k := manifest[*kustomization](t, "kustomization.yaml", "")
	var applied []string
	for name, objects := range files {
		if name == "kustomization.yaml" {
			continue
		}
		if slices.Contains(notApplied, name) {
			if !strings.Contains(readText(t, manifestDir, "kustomization.yaml"), name) {
				t.Errorf("kustomization.yaml does not say that %s is left out", name)
			}
		} else {
			applied = append(applied, name)
		}
		for _, object := range objects {
			if meta := object.(metav1.Object); name != "namespace.yaml" && name != "networkpolicy-tool-service.yaml" && meta.GetNamespace() != "tollgate" {
				t.Errorf("%s: %T %s is in the namespace %q", name, object, meta.GetName(), meta.GetNamespace())
			}
		}
	}
	slices.Sort(applied)
	slices.Sort(k.Resources)
	if diff := cmp.Diff(applied, k.Resources); diff != "" {
		t.Errorf("kustomization.yaml (-files +resources):\n%s", diff)
	}
	generators := k.ConfigMapGenerator
	if len(generators) != 1 || generators[0].Namespace != "tollgate" || !slices.Equal(generators[0].Files, []string{configFile}) {
		t.Errorf("configMapGenerator is %+v, want one of %s, in the Deployment's namespace", generators, configFile)
	}
}

// TestTheManifestCheckFindsMistakes tries what the tests of manifests rely on: that
// what Kubernetes would drop or refuse does not get through.
func TestTheManifestCheckFindsMistakes(t *testing.T) {
	good := readText(t, manifestDir, "deployment.yaml")
	if _, err := decodeManifests(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a misspelt field":         {"readOnlyRootFilesystem:", "readOnlyRootFileSytem:"},
		"another case":             {"readOnlyRootFilesystem:", "readonlyRootFilesystem:"},
		"a field in another place": {"      enableServiceLinks: false", "enableServiceLinks: false"},
		"a key twice":              {"  replicas: 2", "  replicas: 2\n  replicas: 3"},
		"a word for a number":      {"replicas: 2", "replicas: two"},
		"no quantity":              {"limits: {memory: 512Mi}", "limits: {memory: plenty}"},
		"an unknown kind":          {"kind: Deployment", "kind: Deployments"},
		"an unknown version":       {"apiVersion: apps/v1", "apiVersion: apps/v1beta9"},
		"no kind":                  {"kind: Deployment\n", ""},
		"no YAML":                  {"spec:", "spec: ]"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Errorf("%s: the manifest has no %q", name, change[0])
		}
		if _, err := decodeManifests(text); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// TestTheNetworkPolicyIsOfEveryPod: a pod of the namespace that no policy is about is
// closed, and the port that asks nobody who is calling is for some pods only.
func TestTheNetworkPolicyIsOfEveryPod(t *testing.T) {
	rest := manifest[*networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "default-deny").Spec
	if len(rest.PodSelector.MatchLabels)+len(rest.PodSelector.MatchExpressions)+len(rest.Ingress)+len(rest.Egress) > 0 || len(rest.PolicyTypes) != 2 {
		t.Errorf("the policy of all pods is %+v, want nothing let through, both ways", rest)
	}
	for _, rule := range manifest[*networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "tollgate").Spec.Ingress {
		for _, from := range rule.From {
			if rule.Ports[0].Port.String() == "management" && (from.PodSelector == nil || len(from.PodSelector.MatchLabels) == 0) {
				t.Errorf("every pod of a namespace may change what the gateway does: %+v", from)
			}
		}
	}
}
