package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// secrets are the values of Secrets, by their names and keys.
type secrets map[string]map[string]string

// with is a copy in which one value is another.
func (s secrets) with(name, key, value string) secrets {
	changed := maps.Clone(s)
	changed[name] = maps.Clone(s[name])
	changed[name][key] = value
	return changed
}

// templateSecrets are those of secret.yaml.
func templateSecrets(t *testing.T) secrets {
	t.Helper()
	s := secrets{}
	for _, object := range manifestsIn(t, "secret.yaml") {
		secret := object.(*corev1.Secret)
		s[secret.Name] = secret.StringData
	}
	return s
}

// goodSecrets are real values in the places that secret.yaml has.
func goodSecrets(t *testing.T) secrets {
	t.Helper()
	s := secrets{
		"tollgate-secrets": {
			"TOLLGATE_PORTAL_TOKEN": "token",
			"TOLLGATE_REDIS_URL":    "redis://tollgate:PASSWORD@127.0.0.1:1/0",
			"TOLLGATE_HANDLE_KEYS":  handleKey("k1"),
		},
		"tollgate-api-keys": {"keys.yaml": "[]\n"},
	}
	for name, values := range templateSecrets(t) {
		for key := range values {
			if _, ok := s[name][key]; !ok {
				t.Fatalf("secret.yaml has %s of %s, of which this test knows no good value", key, name)
			}
		}
	}
	return s
}

// pod is what the container of the Deployment is given: arguments, environment and
// files. Those are below a directory of the test that stands for the root.
type pod struct {
	args, env []string
	config    string // the file
}

// newPod makes what the kubelet would, from the manifests alone: of what they do not
// say, there is nothing. change is what has to be other in the configuration for a
// test, as pairs of old and new.
func newPod(t *testing.T, from secrets, change ...string) pod {
	t.Helper()
	c, root := container(t), t.TempDir()
	generator := manifest[*kustomization](t, "kustomization.yaml", "").ConfigMapGenerator[0]
	var places []string // old and new, in turn
	for _, mount := range c.VolumeMounts {
		if mount.SubPath != "" || mount.SubPathExpr != "" {
			t.Errorf("%s is mounted by subPath, and never changes", mount.MountPath)
		}
		places = append(places, mount.MountPath+"/", filepath.Join(root, mount.MountPath)+"/")
	}
	placed, adapted := strings.NewReplacer(places...), strings.NewReplacer(change...)
	volumes := map[string]map[string]string{}
	for _, volume := range deployment(t).Spec.Template.Spec.Volumes {
		switch {
		case volume.ConfigMap != nil && volume.ConfigMap.Name == generator.Name:
			text := readText(t, manifestDir, configFile)
			volumes[volume.Name] = map[string]string{configFile: placed.Replace(adapted.Replace(text))}
		case volume.Secret != nil && from[volume.Secret.SecretName] != nil:
			volumes[volume.Name] = from[volume.Secret.SecretName]
		default:
			t.Fatalf("the volume %s is made of nothing there is", volume.Name)
		}
	}
	for _, mount := range c.VolumeMounts {
		mountFiles(t, filepath.Join(root, mount.MountPath), volumes[mount.Name])
	}

	var p pod
	for i, arg := range c.Args {
		if p.args = append(p.args, placed.Replace(arg)); arg == "--config" {
			p.config = placed.Replace(c.Args[i+1])
		}
	}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil {
			ref, ok := v.ValueFrom.SecretKeyRef, false
			if ref == nil {
				t.Fatalf("%s is of no Secret", v.Name)
			}
			if value, ok = from[ref.Name][ref.Key]; !ok {
				t.Fatalf("the Secret %s has no %s", ref.Name, ref.Key)
			}
		}
		p.env = append(p.env, v.Name+"="+value)
	}
	return p
}

// mountFiles lays files out as the kubelet does, behind two symbolic links that it
// can change at once.
func mountFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	data := filepath.Join(dir, "..2026_11_30")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"..data": "..2026_11_30"}
	for name, text := range files {
		writeFile(t, filepath.Join(data, name), text)
		links[name] = filepath.Join("..data", name)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// getenv looks a variable up in the pod's environment.
func (p pod) getenv(name string) (string, bool) {
	for _, pair := range p.env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
