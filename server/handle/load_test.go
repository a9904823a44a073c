package handle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// environment looks variables up; one is set: TOLLGATE_HANDLE_KEYS.
func environment(keys string, set bool) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name != "TOLLGATE_HANDLE_KEYS" {
			return "another variable", true
		}
		return keys, set
	}
}

// keysIn writes a file and returns its path.
func keysIn(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "handle-keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeysOfAConfiguration(t *testing.T) {
	one, two := "k1:"+secretText(1, 32), "k2:"+secretText(2, 32)
	file := keysIn(t, two+"\n"+one+"\n")
	first, second := fingerprint("k1", 1, 32), fingerprint("k2", 2, 32)
	for _, test := range []struct {
		name, variable string
		set            bool
		file           string
		want           []Fingerprint
	}{
		{"nothing", "", false, "", nil},
		{"an empty variable", "", true, "", nil},
		{"a variable", one + "," + two, true, "", []Fingerprint{first, second}},
		{"a file", "", false, file, []Fingerprint{second, first}},
		{"a file and an empty variable", "", true, file, []Fingerprint{second, first}},
	} {
		keys, err := Config{KeysFile: test.file}.Keys(environment(test.variable, test.set))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if keys == nil {
			if test.want != nil {
				t.Errorf("%s: no keys", test.name)
			}
			continue
		}
		if diff := cmp.Diff(test.want, keys.Fingerprints()); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// Whoever reads the error finds the mistake: by the line, where there are lines.
func TestMistakesOfAConfigurationsKeys(t *testing.T) {
	const secret = "c2VjcmV0" // a piece of every key
	good := "k1:" + strings.Repeat(secret, 6)
	both := "TOLLGATE_HANDLE_KEYS and handles.keysFile both give keys: keep one of them"
	missing := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		name, variable, file string
		want                 []string
	}{
		{"both", good, keysIn(t, good), []string{both}},
		{"blanks are a value", " ", "", []string{"TOLLGATE_HANDLE_KEYS: there is no key"}},
		{"a variable", good + ",\n" + good, "", []string{"TOLLGATE_HANDLE_KEYS: key number 2: " + wantNew}},
		{"a file", "", keysIn(t, "\ufeff"+good+"\r\n\r\n "+secret+"\n,k2:"+secret+"\n"), []string{
			"handles.keysFile: FILE: line 3, key number 2: " + wantForm,
			"handles.keysFile: FILE: line 4, key number 3: has 6 bytes; at least 32 are needed"}},
		{"an empty file", "", keysIn(t, "\n"), []string{"handles.keysFile: FILE: there is no key"}},
		{"a file with a variable's name", "", keysIn(t, "TOLLGATE_HANDLE_KEYS=\""+good+"\"\n"), []string{
			"handles.keysFile: FILE: line 1, key number 1: begins with TOLLGATE_HANDLE_KEYS=; write the value only"}},
		{"another file", "", keysIn(t, good+"\n"+strings.Repeat(secret+" "+secret+"\n", 3)), []string{
			"handles.keysFile: FILE: line 2, key number 2: " + wantForm,
			"handles.keysFile: FILE: line 2, key number 3: " + wantForm,
			"handles.keysFile: FILE: line 3, key number 4: " + wantForm,
			"handles.keysFile: FILE: line 3, key number 5: " + wantForm,
			"handles.keysFile: FILE: line 4, key number 6: " + wantForm,
			"handles.keysFile: FILE: and 1 more"}},
		{"no file", "", missing, []string{"handles.keysFile: open FILE: no such file or directory"}},
		{"a directory", "", filepath.Dir(missing), []string{"handles.keysFile: read FILE: is a directory"}},
		{"a large file", "", keysIn(t, strings.Repeat("\n", 64<<10)+"\n"), []string{"handles.keysFile: FILE is larger than 65536 bytes"}},
	} {
		keys, err := Config{KeysFile: test.file}.Keys(environment(test.variable, true))
		if keys != nil || err == nil {
			t.Errorf("%s: keys %v, error %v", test.name, keys, err)
			continue
		}
		said := err.Error()
		if test.file != "" {
			said = strings.ReplaceAll(said, test.file, "FILE")
		}
		if diff := cmp.Diff(test.want, strings.Split(said, "\n")); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("%s: a key is shown: %v", test.name, err)
		}
	}
}
