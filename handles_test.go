package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tollgate/redistest"
)

// lineOfFile is where in a file of keys one of them stands.
var lineOfFile = regexp.MustCompile(`line [1-9], `)

// TestMistakesInKeysAreToldWithoutTheKeys: whoever starts a gateway is told where the
// keys are, and which one is wrong, and the text can go into a ticket.
func TestMistakesInKeysAreToldWithoutTheKeys(t *testing.T) {
	good := handleKey("good")
	const piece = "q83vEjRWeJ" // of every secret here but good's, in base64
	short := "short:" + piece + "o="
	world := newStateWorld(t)
	for name, test := range map[string]struct {
		keys string
		want []string // after the place where the keys are, and the line in a file
	}{
		"the secret as an id": {strings.Repeat(piece, 4) + ":" + good, []string{"key number 1: the id before the colon must be"}},
		"several":             {short + "," + good + "," + piece + "," + good, []string{"key number 1: has 8 bytes", "key number 3: want ID:BASE64", "key number 4: a key before it has the same id"}},
	} {
		file := filepath.Join(t.TempDir(), "handle-keys")
		writeFile(t, file, strings.ReplaceAll(test.keys, ",", "\n"))
		for place, c := range map[string]command{
			"TOLLGATE_HANDLE_KEYS":      {args: []string{"--config", world.config(t)}, env: []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}},
			"handles.keysFile: " + file: {args: []string{"--config", world.config(t, fmt.Sprintf("handles: {keysFile: %q}", file))}},
		} {
			for _, args := range [][]string{{"check"}, {"serve", "--listen", "127.0.0.1:0", "--management="}} {
				t.Run(fmt.Sprintf("%s/%.8s/%s", name, place, args[0]), func(t *testing.T) {
					o := command{args: append(args, c.args...), env: c.env}.run(t)
					lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(o.stderr, "tollgate: "), "\n"), "\n")
					if o.code != exitFailed || o.stdout != "" || len(lines) != len(test.want) {
						t.Fatalf("exit code %d, stdout %q, want %d mistakes:\n%s", o.code, o.stdout, len(test.want), o.stderr)
					}
					for i, want := range test.want {
						if line := lineOfFile.ReplaceAllString(lines[i], ""); !strings.HasPrefix(line, place+": "+want) {
							t.Errorf("line %d is %q, want %s: %s", i+1, lines[i], place, want)
						}
					}
					if strings.Contains(o.stderr, piece) || strings.Contains(o.stderr, strings.TrimPrefix(good, "good:")) {
						t.Errorf("a key is shown: %s", o.stderr)
					}
				})
			}
		}
	}
}

func TestKeysComeFromOnePlace(t *testing.T) {
	world := newStateWorld(t)
	one, two := handleKey("one"), handleKey("two")
	dir := t.TempDir()
	file, huge := filepath.Join(dir, "handle-keys"), filepath.Join(dir, "huge")
	writeFile(t, file, one+"\n"+two+"\n")
	writeFile(t, huge, strings.Repeat(one+"\n", 2000))
	withFile := func(path string) []string {
		return []string{"--config", world.config(t, fmt.Sprintf("handles: {keysFile: %q}", path))}
	}
	for name, test := range map[string]struct {
		args []string
		keys string // the variable
		want string // the keys that are in use, or what is refused
	}{
		"none":                         {withFile(""), "", "[]"},
		"variable":                     {withFile(""), two + "," + one, "[" + printOf(two) + "," + printOf(one) + "]"},
		"file":                         {withFile(file), "", "[" + printOf(one) + "," + printOf(two) + "]"},
		"both":                         {withFile(file), one, "TOLLGATE_HANDLE_KEYS and handles.keysFile both give keys: keep one of them\n"},
		"a placeholder and a file":     {withFile(file), "${HANDLE_KEYS}", "[" + printOf(one) + "," + printOf(two) + "]"},
		"a placeholder for a key":      {withFile(""), "k1:${HANDLE_KEY}", "[]"},
		"fixtures and a variable":      {[]string{"--fixtures"}, one, "[" + printOf(one) + "]"},
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
			if strings.Contains(o.stderr, strings.TrimPrefix(one, "one:")) {
				t.Errorf("a key is shown: %s", o.stderr)
			}
		})
	}
}

// TestCheckPrintsTheKeys: what replicas would hold can be compared before they run,
// and it is what they show when they do.
func TestCheckPrintsTheKeys(t *testing.T) {
	one, two := handleKey("k1"), handleKey("k2")
	sum := func(key string) string {
		_, hash, _ := strings.Cut(printOf(key), `"sha256":"`)
		return strings.TrimSuffix(hash, `"}`)
	}
	both := "handle keys: k2 " + sum(two) + " (signs), k1 " + sum(one) + "\n"
	world := newStateWorld(t)
	for _, test := range []struct {
		what, keys, section, want string
	}{
		{"none", "", "", "\nhandle keys: none\n"},
		{"ephemeral ones", "", "handles: {ephemeralKeys: true}", "\nhandle keys: none of the operator's; each process makes a random one\n"},
		{"one", one, "", "handle keys: k1 " + sum(one) + " (signs)\n"},
		{"two", two + "," + one, "", both},
	} {
		for _, args := range [][]string{{"check"}, {"check", "--live"}} {
			o := command{args: append(args, "--config", world.config(t, test.section)), env: []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}}.run(t)
			if !strings.HasSuffix(o.stdout, test.want) || strings.Count(o.stdout, "handle keys") != 1 {
				t.Errorf("%s, %v: exit code %d\n%s%s, want %s", test.what, args, o.code, o.stdout, o.stderr, test.want)
			}
			if strings.Contains(o.stdout+o.stderr, strings.TrimPrefix(one, "k1:")) {
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
	g := newStateWorld(t).gateway(t, keys)
	var prints []string
	for _, key := range strings.Fields(keys) {
		prints = append(prints, printOf(key))
	}
	if got, want := fingerprints(t, g), "["+strings.Join(prints, ",")+"]"; got != want {
		t.Errorf("the keys in use are %s, want %s", got, want)
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

// TestCallKeepsStatesInRedis: what one run of the command was given, another can
// use, as an agent could.
func TestCallKeepsStatesInRedis(t *testing.T) {
	redis, key := redistest.Start(t), handleKey("one")
	config := newStateWorld(t).config(t, atRedis(redis.URL()))
	call := func(tool string, arguments ...string) stateful {
		t.Helper()
		args := append([]string{"call", "--config", config, "--route", "state", tool}, arguments...)
		var o outcome
		onceRedisIsInTime(func() string {
			o = command{args: args, env: []string{"TOLLGATE_HANDLE_KEYS=" + key}}.run(t)
			if len(arguments) > 0 {
				return strings.ReplaceAll(o.stdout, updateUnknown, "") // the state may have changed
			}
			return o.stdout
		})
		var a stateful
		if err := json.Unmarshal([]byte(o.stdout), &a); o.code != 0 || err != nil {
			t.Fatalf("%s: exit code %d, %v, %s%s", tool, o.code, err, o.stdout, o.stderr)
		}
		return a
	}
	for _, mode := range []string{"signed", "stored"} {
		made := call("counter." + mode + ".create")
		if a := call("counter."+mode+".increment", handleIs(made.Handle)); a.Count != 1 || a.Handle == "" {
			t.Errorf("%s: the count is %d, the handle %q", mode, a.Count, a.Handle)
		}
	}
	if copies := redis.Do("KEYS", "tollgate:registry:*"); copies != "" {
		t.Errorf("the command left copies: %s", copies)
	}
	if states := redis.Do("KEYS", "tollgate:state:*"); len(strings.Fields(states)) != 1 {
		t.Errorf("states in Redis: %q", states)
	}
}
