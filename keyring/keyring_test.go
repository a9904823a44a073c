package keyring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/transport/auth"
)

// hashOf is a hash no other number has. Logs are searched for its end.
func hashOf(n int) string { return fmt.Sprintf("%04d", n) + strings.Repeat("5ec4e7", 10) }

func entry(id string, n int, more string) string {
	return fmt.Sprintf("- {id: %q, sha256: %q%s}\n", id, hashOf(n), more)
}

// world is a file of API keys and a ring that keeps up with it.
type world struct {
	t      *testing.T
	path   string
	ring   *Ring
	hangUp chan os.Signal

	mu    sync.Mutex
	log   bytes.Buffer
	calls []string // the ids of each list OnChange got
}

// Write takes the log.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// heard are the ids of each list OnChange got.
func (w *world) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func start(t *testing.T, text string) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "secret-path.yaml")}
	w.write(text)
	w.open()
	return w
}

// open starts a ring in a bubble, whose end closes it.
func (w *world) open() {
	w.t.Helper()
	w.hangUp = make(chan os.Signal, 1)
	ring, err := Open(Options{
		Path:   w.path,
		Known:  func(tier string) bool { return tier == "basic" || tier == "bulk" },
		Reload: w.hangUp,
		Logger: slog.New(slog.NewJSONHandler(w, nil)),
		OnChange: func(keys []auth.Key) {
			var ids []string
			for _, key := range keys {
				ids = append(ids, key.ID)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, strings.Join(ids, " "))
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.ring = ring
	w.t.Cleanup(func() {
		ring.Close()
		w.logged()
	})
}

// write replaces the file in one step, as a careful writer does.
func (w *world) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path+".new", w.path); err != nil {
		w.t.Fatal(err)
	}
}

// soon lets the ring look at the file often enough to take a change that takes nothing
// away.
func (w *world) soon() { time.Sleep(2 * lookEvery); synctest.Wait() }

// later lets the ring look at the file often enough to take any change.
func (w *world) later() { time.Sleep(settleFor + 2*lookEvery); synctest.Wait() }

// signal is SIGHUP.
func (w *world) signal() { w.hangUp <- syscall.SIGHUP; synctest.Wait() }

// logged are the lines of the log since the last time, without times.
func (w *world) logged() (lines []map[string]any) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.log.String()
	w.log.Reset()
	if strings.Contains(text, "5ec4e7") || strings.Contains(text, "secret-path") {
		w.t.Errorf("the log shows a hash or the path:\n%s", text)
	}
	for line := range strings.Lines(text) {
		var attrs map[string]any
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			w.t.Fatal(err)
		}
		delete(attrs, "time")
		lines = append(lines, attrs)
	}
	return lines
}

// wantLog compares what was logged since the last time: level, message and some
// attributes.
func (w *world) wantLog(want ...map[string]any) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.logged()); diff != "" {
		w.t.Errorf("the log (-want +got):\n%s", diff)
	}
}

type line = map[string]any

// reloaded is the line about a good file.
func reloaded(keys, added, removed, changed int, ids line) line {
	l := line{"level": "INFO", "msg": isReloaded, "keys": float64(keys), "added": float64(added), "removed": float64(removed), "changed": float64(changed)}
	for name, value := range ids {
		l[name] = value
	}
	return l
}

func list(values ...any) []any { return values }

func TestAChangedFileIsTakenByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, "")+entry("b", 2, ", tier: bulk")+entry("c", 3, ""))
		if diff := cmp.Diff([]string{"a b c"}, w.heard()); diff != "" {
			t.Errorf("at the start (-want +got):\n%s", diff)
		}
		if got, ok := w.ring.Lookup("b"); !ok || got.Tier != "bulk" || w.ring.Len() != 3 {
			t.Errorf("b is %+v, %v", got, ok)
		}
		w.later()
		w.wantLog()
		w.write(entry("a", 1, "") + entry("b", 2, ", tier: basic, routes: [x]") + entry("c", 3, "") + entry("d", 4, ""))
		time.Sleep(lookEvery)
		synctest.Wait()
		if _, ok := w.ring.Lookup("d"); ok {
			t.Error("a file that was seen only once is taken")
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		w.wantLog(reloaded(4, 1, 0, 1, line{"addedIds": list("d"), "changedIds": list("b")}))
		w.write(entry("b", 2, ", tier: basic, routes: [x]") + entry("c", 3, "") + entry("d", 4, ""))
		w.soon()
		if _, ok := w.ring.Lookup("a"); !ok {
			t.Error("a file that may be half a file is taken as soon as others")
		}
		w.later()
		w.wantLog(reloaded(3, 0, 1, 0, line{"removedIds": list("a")}))
		if _, ok := w.ring.Lookup("a"); ok {
			t.Error("a removed key is there")
		}
		if diff := cmp.Diff([]string{"a b c", "a b c d", "b c d"}, w.heard()); diff != "" {
			t.Errorf("OnChange (-want +got):\n%s", diff)
		}
		// The same again is no change.
		w.write(entry("b", 2, ", tier: basic, routes: [x]") + entry("c", 3, "") + entry("d", 4, ""))
		w.later()
		w.wantLog()
		w.write("[]\n")
		w.later()
		w.wantLog(reloaded(0, 0, 3, 0, line{"removedIds": list("b", "c", "d")}))
	})
}

func TestAFileThatIsBeingWrittenIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ""))
		var text string
		for n := range 20 { // not in one step; each part alone would be a good file
			text += entry(fmt.Sprintf("k%02d", n), 10+n, "")
			if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookEvery)
			synctest.Wait()
		}
		if diff := cmp.Diff([]string{"a"}, w.heard()); diff != "" {
			t.Errorf("while it is written (-want +got):\n%s", diff)
		}
		w.later()
		if w.ring.Len() != 20 || len(w.heard()) != 2 {
			t.Errorf("%d keys, heard of %q", w.ring.Len(), w.heard())
		}
	})
}

// What may be the first half of a file has to stay for longer.
func TestHalfAFileIsNotTakenInAPause(t *testing.T) {
	whole := entry("a", 1, ", tier: bulk, user: u, routes: [x]") + entry("b", 2, "")
	for name, text := range map[string]string{
		"a key is missing":       entry("a", 1, ", tier: bulk, user: u, routes: [x]"),
		"the routes are missing": entry("a", 1, ", tier: bulk, user: u") + entry("b", 2, ""),
		"the tier is missing":    entry("a", 1, ", user: u, routes: [x]") + entry("b", 2, ""),
		"the user is missing":    entry("a", 1, ", tier: bulk, routes: [x]") + entry("b", 2, ""),
		"no newline at the end":  whole + strings.TrimSpace(entry("c", 3, "")),
		"no newline, and no key": strings.TrimSpace(entry("a", 1, "")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, whole)
				w.write(text)
				time.Sleep(settleFor)
				w.write(whole + entry("d", 4, ""))
				w.soon()
				w.wantLog(reloaded(3, 1, 0, 0, line{"addedIds": list("d")}))
				w.write(text)
				time.Sleep(settleFor)
				synctest.Wait()
				w.wantLog()
				time.Sleep(lookEvery)
				synctest.Wait()
				if lines := w.logged(); len(lines) == 0 || lines[len(lines)-1]["msg"] != isReloaded {
					t.Errorf("after %s: %v", settleFor, lines)
				}
				w.write(whole + "- {id: z}")
				w.signal()
				w.write(text + "\n")
				w.signal() // does not wait
				if lines := w.logged(); len(lines) == 0 || lines[len(lines)-1]["msg"] != isReloaded {
					t.Errorf("after a signal: %v", lines)
				}
			})
		})
	}
}

func TestAKeyThatMayUseAllRoutesNowIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ", routes: [x]")+entry("b", 2, ""))
		w.write(entry("a", 1, "") + entry("b", 2, ""))
		w.later()
		w.wantLog(line{"level": "WARN", "msg": allRoutes, "keys": 1.0, "ids": list("a")},
			reloaded(2, 0, 0, 1, line{"changedIds": list("a")}))
	})
}

// A writer that goes on touching the file does not put a change off, nor does a file
// system whose times are coarse: the content counts.
func TestOnlyTheContentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ""))
		info, err := os.Stat(w.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errorsOf(os.WriteFile(w.path, []byte(entry("b", 2, "")), 0o600), os.Chtimes(w.path, info.ModTime(), info.ModTime())); err != nil {
			t.Fatal(err)
		}
		w.later()
		w.wantLog(reloaded(1, 1, 1, 0, line{"addedIds": list("b"), "removedIds": list("a")}))
		for range 10 {
			w.write(entry("c", 3, ""))
			time.Sleep(lookEvery / 2)
		}
		w.soon()
		w.wantLog(reloaded(1, 1, 1, 0, line{"addedIds": list("c"), "removedIds": list("b")}))
	})
}

func TestASignalHasTheFileReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ""))
		w.write(entry("b", 2, ""))
		w.signal()
		w.wantLog(reloaded(1, 1, 1, 0, line{"addedIds": list("b"), "removedIds": list("a")}))
		w.later()
		w.wantLog()
		w.signal() // whoever asks gets an answer
		w.wantLog(reloaded(1, 0, 0, 0, nil))
		w.write("")
		w.signal()
		w.signal()
		w.later()
		bad := line{"level": "ERROR", "msg": hasMistakes, "keys": 1.0, "remedy": whileMistaken,
			"problems": list("auth.keysFile: want a list of API keys, or [] for none; the file has neither")}
		w.wantLog(bad, bad)
	})
}

func TestABadFileTakesNoKeyAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ""))
		bad := func(problems ...any) line {
			return line{"level": "ERROR", "msg": hasMistakes, "keys": 1.0, "remedy": whileMistaken, "problems": problems}
		}
		w.write("- {id: a}\n")
		w.later()
		w.wantLog(bad("auth.keysFile:1:3: [0].sha256: want the SHA-256 of the API key: 64 hexadecimal digits"))
		if !w.ring.Faulty() {
			t.Error("the file is not faulty")
		}
		w.write("- {id: a}\n") // touched, and as bad as before
		w.later()
		w.wantLog()
		w.write("- {id: a} # mine\n") // somebody has tried
		w.later()
		w.wantLog(bad("auth.keysFile:1:3: [0].sha256: want the SHA-256 of the API key: 64 hexadecimal digits"))
		w.write(strings.Repeat("- {id: \""+hashOf(7)+"!\"}\n", 8))
		w.later()
		lines := w.logged()
		if len(lines) != 1 || len(lines[0]["problems"].([]any)) != maxShown+1 || lines[0]["problems"].([]any)[maxShown] != "and 6 more" {
			t.Errorf("many problems: %v", lines)
		}
		time.Sleep(time.Hour)
		w.wantLog()
		if _, ok := w.ring.Lookup("a"); !ok || len(w.heard()) != 1 {
			t.Errorf("the key is gone; heard of %q", w.heard())
		}
		w.write(entry("a", 1, ""))
		w.later()
		w.wantLog(reloaded(1, 0, 0, 0, nil))
		if w.ring.Faulty() {
			t.Error("the file is still faulty")
		}
	})
}

func TestAFileThatCannotBeReadTakesNoKeyAway(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(path string) error
		cause string
	}{
		"gone":        {os.Remove, "stat: no such file or directory"},
		"a directory": {func(path string) error { return errorsOf(os.Remove(path), os.Mkdir(path, 0o700)) }, "read: is a directory"},
		"a pipe nobody writes to": {func(path string) error { return errorsOf(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
			"read: not a regular file: it is read again when it changes, so it cannot be a pipe or a device"},
		"too large": {func(path string) error { return os.Truncate(path, 5<<20) }, "read: larger than 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, entry("a", 1, ""))
				if err := test.spoil(w.path); err != nil {
					t.Skip(err)
				}
				w.later()
				time.Sleep(time.Hour)
				synctest.Wait()
				w.wantLog(line{"level": "ERROR", "msg": isUnreadable, "cause": test.cause, "keys": 1.0, "remedy": whileMissing})
				if _, ok := w.ring.Lookup("a"); !ok || len(w.heard()) != 1 {
					t.Errorf("the key is gone; heard of %q", w.heard())
				}
				_ = os.Remove(w.path)
				w.write(entry("a", 1, "") + entry("b", 2, ""))
				w.later()
				w.wantLog(reloaded(2, 1, 0, 0, line{"addedIds": list("b")}))
			})
		})
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// What is missing for a moment, between the two steps of a careless writer, is no
// fault.
func TestAFileThatIsGoneForAMomentIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ""))
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		w.write(entry("a", 1, ""))
		w.later()
		w.wantLog()
	})
}

// The very file that was gone may come back.
func TestAFileThatComesBackIsTakenAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ""))
		if err := os.Rename(w.path, w.path+".away"); err != nil {
			t.Fatal(err)
		}
		w.later()
		if lines := w.logged(); len(lines) != 1 || lines[0]["msg"] != isUnreadable {
			t.Errorf("the log: %v", lines)
		}
		if err := os.Rename(w.path+".away", w.path); err != nil {
			t.Fatal(err)
		}
		w.later()
		w.wantLog(reloaded(1, 0, 0, 0, nil))
	})
}

// Kubernetes puts each version of a Secret into a directory of its own, and swaps a
// symbolic link to it. Size and time of the file may be the same.
func TestASymbolicLinkIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
		for version, text := range map[string]string{"v1": entry("a", 1, ""), "v2": entry("b", 2, "")} {
			path := filepath.Join(dir, version, "keys.yaml")
			if err := errorsOf(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		data := filepath.Join(dir, "..data")
		if err := errorsOf(os.Symlink("v1", data), os.Symlink(filepath.Join("..data", "keys.yaml"), filepath.Join(dir, "secret-path.yaml"))); err != nil {
			t.Skip(err)
		}
		w := &world{t: t, path: filepath.Join(dir, "secret-path.yaml")}
		w.open()
		if err := errorsOf(os.Symlink("v2", data+"_tmp"), os.Rename(data+"_tmp", data)); err != nil {
			t.Fatal(err)
		}
		w.later()
		w.wantLog(reloaded(1, 1, 1, 0, line{"addedIds": list("b"), "removedIds": list("a")}))
	})
}

func TestUnknownTiersAreWarnedOfAtEachLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("a", 1, ", tier: bulk")+entry("b", 2, ", tier: blk")+entry("c", 3, ", tier: Bulk")+entry("d", 4, ", tier: blk"))
		warning := line{"level": "WARN", "msg": unknownTiers, "keys": 3.0, "ids": list("b", "c", "d"), "tiers": list("Bulk", "blk")}
		w.wantLog(warning)
		w.signal()
		w.wantLog(warning, reloaded(4, 0, 0, 0, nil))
		var text string
		for n := range 30 {
			text += entry(fmt.Sprintf("k%02d", n), 10+n, fmt.Sprintf(", tier: t%02d", n))
		}
		w.write(text)
		w.later()
		lines := w.logged()
		if len(lines) != 2 {
			t.Fatalf("the log: %v", lines)
		}
		for _, values := range []any{lines[0]["ids"], lines[0]["tiers"], lines[1]["addedIds"]} {
			if list, ok := values.([]any); !ok || len(list) != maxShown+1 || list[maxShown] != "and 20 more" {
				t.Errorf("a long list is shown as %v", values)
			}
		}
		w.write(entry("a", 1, ""))
		w.later()
		w.wantLog(reloaded(1, 1, 30, 0, line{"addedIds": list("a"), "removedIds": append(list("k00", "k01", "k02", "k03", "k04", "k05", "k06", "k07", "k08", "k09"), "and 20 more")}))
	})
}

// At the start there are no keys to go on with.
func TestAStartNeedsAGoodFile(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("- id: a\n  sha256: tg_x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		bad:                          bad + ":2:3: [0].sha256: this is an API key",
		dir:                          "API keys: read " + dir + ": is a directory",
		filepath.Join(dir, "nobody"): "no such file",
	} {
		ring, err := Open(Options{Path: path, OnChange: func([]auth.Key) { t.Error("OnChange is called") }})
		if ring != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

func TestWithoutAFileThereAreNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.open()
		w.signal()
		w.signal()
		w.wantLog(line{"level": "INFO", "msg": hasNoFile}, line{"level": "INFO", "msg": hasNoFile})
		if _, ok := w.ring.Lookup("a"); ok || w.ring.Len() != 0 || w.heard() != nil {
			t.Errorf("there are keys: %d; heard of %q", w.ring.Len(), w.heard())
		}
		idle, err := Open(Options{}) // and no goroutine: the bubble would wait for it
		if err != nil || idle.Len() != 0 {
			t.Errorf("got %v with %d keys", err, idle.Len())
		}
	})
	var none *Ring
	if _, ok := none.Lookup("a"); ok || none.Len() != 0 {
		t.Error("nil has keys")
	}
	none.Close()
}

// TestWithUnknownRoute: a route that is misspelt is found, whoever else has the right one.
func TestWithUnknownRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, entry("b", 1, ", routes: [plant, plnt]")+entry("a", 2, ", routes: [Lab]")+entry("c", 3, ", routes: [lab]")+entry("d", 4, ""))
		known := func(route string) bool { return route == "plant" || route == "lab" }
		if got, want := w.ring.WithUnknownRoute(known), []string{"a (Lab)", "b (plnt)"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := w.ring.WithUnknownRoute(func(string) bool { return true }); got != nil {
			t.Errorf("all exist: %q", got)
		}
		if got := (*Ring)(nil).WithUnknownRoute(known); got != nil {
			t.Errorf("no ring: %q", got)
		}
	})
}
