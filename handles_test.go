package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"tollgate/redistest"
)

// testKey is a key of 32 equal bytes, as TOLLGATE_HANDLE_KEYS has it, and what
// /actuator/info says of it.
func testKey(id string, b byte) (key, fingerprint string) {
	secret := bytes.Repeat([]byte{b}, 32)
	sum := sha256.Sum256(secret)
	return id + ":" + base64.StdEncoding.EncodeToString(secret), fmt.Sprintf(`{"id":%q,"sha256":%q}`, id, hex.EncodeToString(sum[:])[:8])
}

// lineOfFile is where in a file of keys one of them stands.
var lineOfFile = regexp.MustCompile(`line [1-9], `)

// TestMistakesInKeysAreToldWithoutTheKeys: whoever starts a gateway is told which
// key is wrong, and the text can go into a ticket.
func TestMistakesInKeysAreToldWithoutTheKeys(t *testing.T) {
	good, _ := testKey("good", 'G')
	const piece = "q83vEjRWeJ" // of every secret here but good's, in base64
	short := "short:" + piece + "o="
	unfinished := "unfinished:" + strings.Repeat(piece, 5)
	service := newStatefulService(t, "signed")
	for name, test := range map[string]struct {
		keys string
		want []string // after the place where the keys are, and the line in a file
	}{
		"nothing but separators": {" , \t", []string{"there is no key"}},
		"too short":              {short, []string{"key number 1: has 8 bytes; at least 32 are needed"}},
		"no base64":              {good + "," + unfinished, []string{"key number 2: what follows the colon is not base64"}},
		"no id":                  {strings.Repeat(piece, 4) + "qrs=", []string{"key number 1: want ID:BASE64"}},
		"the secret as an id":    {strings.Repeat(piece, 4) + ":" + good, []string{"key number 1: the id before the colon must be"}},
		"one id twice":           {good + " " + good, []string{"key number 2: a key before it has the same id"}},
		"all of it":              {short + "," + good + "," + piece + "," + good, []string{"key number 1: has 8 bytes", "key number 3: want ID:BASE64", "key number 4: a key before it has the same id"}},
	} {
		t.Run(name, func(t *testing.T) {
			inFile, file := "", filepath.Join(t.TempDir(), "handle-keys")
			writeFile(t, file, strings.ReplaceAll(test.keys, ",", "\n"))
			inFile = service.config(t, fmt.Sprintf("handles: {keysFile: %q}", file))
			for place, c := range map[string]command{
				"TOLLGATE_HANDLE_KEYS":      {args: []string{"--config", service.config(t)}, env: []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}},
				"handles.keysFile: " + file: {args: []string{"--config", inFile}},
			} {
				for _, args := range [][]string{
					{"check"}, {"check", "--live"}, {"serve", "--listen", "127.0.0.1:0", "--management="}, {"stdio", "--route", "first"},
					{"tools", "--route", "first"}, {"call", "--route", "first", "create"},
				} {
					o := command{args: append(args, c.args...), env: c.env}.run(t)
					lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(o.stderr, "tollgate: "), "\n"), "\n")
					if o.code != exitFailed || o.stdout != "" || len(lines) != len(test.want) {
						t.Fatalf("%v: exit code %d, stdout %q, want %d mistakes:\n%s", args, o.code, o.stdout, len(test.want), o.stderr)
					}
					for i, want := range test.want {
						if line := lineOfFile.ReplaceAllString(lines[i], ""); !strings.HasPrefix(line, place+": "+want) {
							t.Errorf("%v: line %d is %q, want %s: %s", args, i+1, lines[i], place, want)
						}
					}
					_, secret, _ := strings.Cut(good, ":")
					if strings.Contains(o.stderr, piece) || strings.Contains(o.stderr, secret) {
						t.Errorf("%v shows a key: %s", args, o.stderr)
					}
				}
			}
		})
	}
}

func TestKeysComeFromOnePlace(t *testing.T) {
	service := newStatefulService(t, "signed")
	one, printOne := testKey("one", '1')
	two, printTwo := testKey("two", '2')
	dir := t.TempDir()
	file, huge := filepath.Join(dir, "handle-keys"), filepath.Join(dir, "huge")
	writeFile(t, file, one+"\n"+two+"\n")
	writeFile(t, huge, strings.Repeat(one+"\n", 2000))
	withFile := func(path string) []string {
		return []string{"--config", service.config(t, fmt.Sprintf("handles: {keysFile: %q}", path))}
	}
	for name, test := range map[string]struct {
		args []string
		keys string // the variable
		want string // the keys that are in use, or what is refused
	}{
		"none":                         {withFile(""), "", "[]"},
		"variable":                     {withFile(""), two + "," + one, "[" + printTwo + "," + printOne + "]"},
		"file":                         {withFile(file), "", "[" + printOne + "," + printTwo + "]"},
		"both":                         {withFile(file), one, "TOLLGATE_HANDLE_KEYS and handles.keysFile both give keys: keep one of them\n"},
		"a placeholder and a file":     {withFile(file), "${HANDLE_KEYS}", "[" + printOne + "," + printTwo + "]"},
		"a placeholder for a key":      {withFile(""), "k1:${HANDLE_KEY}", "[]"},
		"fixtures and a variable":      {[]string{"--fixtures"}, one, "[" + printOne + "]"},
		"no such file":                 {withFile(filepath.Join(dir, "none")), "", "handles.keysFile: want the path of a file that can be read, relative to this one: no such file or directory\n"},
		"a directory":                  {withFile(dir), "", "handles.keysFile: want the path of a file that can be read, relative to this one: is a directory\n"},
		"an empty file":                {withFile("/dev/null"), "", "handles.keysFile: /dev/null: there is no key\n"},
		"a file without end":           {withFile("/dev/zero"), "", "handles.keysFile: /dev/zero is larger than 65536 bytes\n"},
		"a huge file":                  {withFile(huge), "", "handles.keysFile: " + huge + " is larger than 65536 bytes\n"},
		"the keys in place of a file":  {withFile(one), "", "handles.keysFile: holds the content of a file; want its path\n"},
		"the secret, where a file was": {withFile(strings.TrimPrefix(one, "one:")), "", "relative to this one: no such file or directory\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := command{args: test.args, env: []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}}
			if strings.HasPrefix(test.want, "[") {
				g := serve(t, c)
				a := g.management(t, http.MethodGet, "/actuator/info")
				if !strings.HasSuffix(a.body, `,"handleKeys":`+test.want+"}\n") {
					t.Errorf("info says %s, want the keys %s", a.body, test.want)
				}
				return
			}
			c.args = append([]string{"serve", "--listen", "127.0.0.1:0", "--management="}, c.args...)
			o := c.run(t)
			if o.code != exitFailed || !strings.HasSuffix(o.stderr, test.want) {
				t.Errorf("exit code %d, %s, want %s", o.code, o.stderr, test.want)
			}
			if strings.Contains(o.stderr, strings.Repeat("MTEx", 3)) { // of the key one
				t.Errorf("a key is shown: %s", o.stderr)
			}
		})
	}
}

// TestCheckPrintsTheKeys: what replicas would hold can be compared before they run,
// and it is what they show when they do.
func TestCheckPrintsTheKeys(t *testing.T) {
	one, _ := testKey("k1", '1')
	two, _ := testKey("k2", '2')
	sum := func(b byte) string {
		hash := sha256.Sum256(bytes.Repeat([]byte{b}, 32))
		return hex.EncodeToString(hash[:])[:8]
	}
	both := "handle keys: k2 " + sum('2') + " (signs), k1 " + sum('1') + "\n"
	service := newStatefulService(t, "signed")
	for _, test := range []struct {
		what, keys, section, want string
	}{
		{"none", "", "", ""},
		{"ephemeral ones", "", "handles: {ephemeralKeys: true}", ""},
		{"one", one, "", "handle keys: k1 " + sum('1') + " (signs)\n"},
		{"two", two + "," + one, "", both},
	} {
		for _, args := range [][]string{{"check"}, {"check", "--live"}} {
			o := command{args: append(args, "--config", service.config(t, test.section)), env: []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}}.run(t)
			if !strings.HasSuffix(o.stdout, test.want) || test.want == "" && strings.Contains(o.stdout, "handle keys") {
				t.Errorf("%s, %v: exit code %d\n%s%s, want %s", test.what, args, o.code, o.stdout, o.stderr, test.want)
			}
			if secret := strings.Repeat("MTEx", 3); strings.Contains(o.stdout+o.stderr, secret) {
				t.Errorf("%s, %v: a key is shown", test.what, args)
			}
		}
	}
}

func TestKeyHandlePrintsAKeyThatServes(t *testing.T) {
	named := tollgate(t, "key", "handle", "--id", "k-2026_12")
	random, other := tollgate(t, "key", "handle"), tollgate(t, "key", "handle")
	for _, o := range []outcome{named, random, other} {
		if o.code != 0 || strings.Count(o.stdout, "\n") != 1 || !strings.Contains(o.stderr, "TOLLGATE_HANDLE_KEYS") {
			t.Errorf("exit code %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
		}
		if strings.Contains(o.stderr, strings.TrimSpace(o.stdout)) {
			t.Error("the hint repeats the key")
		}
	}
	if !strings.HasPrefix(named.stdout, "k-2026_12:") || random.stdout == other.stdout {
		t.Errorf("the keys are %q, %q and %q", named.stdout, random.stdout, other.stdout)
	}
	// The lines together are a file with keys, and a value of the variable.
	keys := named.stdout + random.stdout + other.stdout
	g := serve(t, command{args: []string{"--config", newStatefulService(t, "signed").config(t)}, env: []string{"TOLLGATE_HANDLE_KEYS=" + keys}})
	var info struct {
		HandleKeys []struct{ ID, SHA256 string }
	}
	if err := json.Unmarshal([]byte(g.management(t, http.MethodGet, "/actuator/info").body), &info); err != nil || len(info.HandleKeys) != 3 {
		t.Fatalf("%v %+v", err, info)
	}
	for i, key := range strings.Fields(keys) {
		id, encoded, _ := strings.Cut(key, ":")
		secret, _ := base64.StdEncoding.DecodeString(encoded)
		if sum := sha256.Sum256(secret); info.HandleKeys[i].ID != id || info.HandleKeys[i].SHA256 != hex.EncodeToString(sum[:4]) || len(secret) != 32 {
			t.Errorf("key %d: info says %+v", i+1, info.HandleKeys[i])
		}
	}
	for _, id := range []string{"", "a b", "a.b", strings.Repeat("a", 33)} {
		if o := tollgate(t, "key", "handle", "--id", id); id != "" && (o.code != exitUsage || o.stdout != "" || !strings.Contains(o.stderr, "--id: ")) {
			t.Errorf("id %q: exit code %d, %s", id, o.code, o.stderr)
		}
	}
	if o := tollgate(t, "key"); o.code != exitUsage || !strings.Contains(o.stderr, "handle") {
		t.Errorf("key alone: exit code %d, %s", o.code, o.stderr)
	}
}

// TestAStateThatWouldBeLostIsRefused: what a manifest declares is served only with
// what keeps it, and check says the same as serve, which starts all the same.
func TestAStateThatWouldBeLostIsRefused(t *testing.T) {
	key, _ := testKey("one", '1')
	redis := "redis: {url: " + redistest.Start(t).URL() + "}"
	for _, test := range []struct {
		mode, section, keys string
		refused             string // the kind of failure; "" = served
		warns               string // that states end with the process
	}{
		{mode: ""},
		{mode: "", section: "handles: {ephemeralKeys: true, memoryStore: true}"},
		{mode: "signed", refused: "handle_keys_missing"},
		{mode: "signed", section: redis, refused: "handle_keys_missing"},
		{mode: "signed", section: "handles: {memoryStore: true}", refused: "handle_keys_missing"},
		{mode: "signed", keys: key},
		{mode: "signed", keys: key, section: "handles: {ephemeralKeys: true}"},
		{mode: "signed", section: "handles: {ephemeralKeys: true}", warns: warnsKeyEnds},
		{mode: "stored", refused: "no_state_store"},
		{mode: "stored", keys: key, section: "handles: {ephemeralKeys: true}", refused: "no_state_store"},
		{mode: "stored", section: redis},
		{mode: "stored", section: redis + "\nhandles: {memoryStore: true}"},
		{mode: "stored", section: "handles: {memoryStore: true}", warns: warnsStatesEnd},
	} {
		t.Run(fmt.Sprintf("%s with %s%.3s", test.mode, test.section, test.keys), func(t *testing.T) {
			args := []string{"--config", newStatefulService(t, test.mode).config(t, test.section)}
			env := []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}
			g := serve(t, command{args: args, env: env})
			listed := g.modern(t, "first", "tools/list", "", "")
			bundles := g.management(t, http.MethodGet, "/actuator/toolBundles").body
			check := command{args: append([]string{"check", "--live"}, args...), env: env}.run(t)
			if test.refused == "" {
				if listed.status != http.StatusOK || !strings.Contains(listed.body, `"increment"`) {
					t.Errorf("list: status %d, %s", listed.status, listed.body)
				}
				if check.code != 0 {
					t.Errorf("check: exit code %d, %s%s", check.code, check.stdout, check.stderr)
				}
			} else {
				if listed.status != http.StatusServiceUnavailable || !strings.Contains(bundles, fmt.Sprintf(`"lastFailureReason":%q`, test.refused)) {
					t.Errorf("list: status %d, toolBundles %s", listed.status, bundles)
				}
				if check.code != exitFailed || !strings.Contains(check.stdout, "service:counting") {
					t.Errorf("check: exit code %d, %s%s", check.code, check.stdout, check.stderr)
				}
			}
			g.modern(t, "second", "tools/list", "", "")
			g.signal(t, syscall.SIGTERM)
			g.wait(t)
			for _, warning := range []string{warnsKeyEnds, warnsStatesEnd} {
				want := 0
				if warning == test.warns {
					want = 1
				}
				if got := strings.Count(g.stderr.text(), warning); got != want {
					t.Errorf("the log has %d times, want %d: %s\n%s", got, want, warning, g.stderr.text())
				}
			}
		})
	}
}

// TestStdioKeepsStatesByItself: nobody has a replica of it, so that it needs
// neither keys nor Redis. Its client, and only its standard error, hears of that.
func TestStdioKeepsStatesByItself(t *testing.T) {
	for mode, warning := range map[string]string{"signed": warnsKeyEnds, "stored": warnsStatesEnd, "": ""} {
		t.Run(mode, func(t *testing.T) {
			service := newStatefulService(t, mode)
			stdin := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create","arguments":{},%s}}`+"\n", modernMeta)
			o := command{args: []string{"stdio", "--route", "first", "--config", service.config(t)}, stdin: stdin}.run(t)
			if o.code != 0 || !strings.Contains(o.stdout, `\"count\":1`) || strings.Count(o.stdout, "\n") != 1 {
				t.Errorf("exit code %d, %s%s", o.code, o.stdout, o.stderr)
			}
			if got := strings.Count(o.stderr, "ends with this process") + strings.Count(o.stderr, "memory of this process"); got != min(1, len(warning)) || !strings.Contains(o.stderr, warning) {
				t.Errorf("the log has %d warnings: %s", got, o.stderr)
			}
		})
	}
}

// TestCallKeepsStatesInRedis: what one run of the command was given, another can
// use, as an agent could.
func TestCallKeepsStatesInRedis(t *testing.T) {
	redis := redistest.Start(t)
	key, _ := testKey("one", '1')
	for _, mode := range []string{"signed", "stored"} {
		t.Run(mode, func(t *testing.T) {
			config := newStatefulService(t, mode).config(t, "redis: {url: "+redis.URL()+"}")
			call := func(arguments ...string) outcome {
				return command{args: append([]string{"call", "--config", config, "--route", "first"}, arguments...), env: []string{"TOLLGATE_HANDLE_KEYS=" + key}}.run(t)
			}
			count := func(o outcome) (result struct {
				Handle string
				Count  int
			}) {
				t.Helper()
				if err := json.Unmarshal([]byte(o.stdout), &result); o.code != 0 || err != nil || result.Handle == "" {
					t.Fatalf("exit code %d, %v, %s%s", o.code, err, o.stdout, o.stderr)
				}
				return result
			}
			first := count(call("create"))
			second := count(call("increment", fmt.Sprintf(`{"handle":%q}`, first.Handle)))
			if first.Count != 1 || second.Count != 2 {
				t.Errorf("counts %d and %d", first.Count, second.Count)
			}
		})
	}
	if copies := redis.Do("KEYS", "tollgate:registry:*"); copies != "" {
		t.Errorf("the command left copies: %s", copies)
	}
	if states := redis.Do("KEYS", "tollgate:state:*"); len(strings.Fields(states)) != 1 {
		t.Errorf("states in Redis: %q", states)
	}
}
