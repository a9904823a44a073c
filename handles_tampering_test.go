package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tollgate/redistest"
)

// A tampering is a gateway of which everything is kept that may show a handle or a
// state.
type tampering struct {
	world   *stateWorld
	g       *gateway
	traces  *traceCollector
	state   string // of every handle here
	secrets pieces
}

// TestTamperedHandlesAreNotValid: whatever is wrong with a handle, the answer is one
// and the same to the byte, no Tool Service hears of it, and nothing of a handle or
// of a state is in anything the gateway shows to anybody else.
func TestTamperedHandlesAreNotValid(t *testing.T) {
	redis := redistest.Start(t)
	w := &tampering{world: newStateWorld(t), traces: newTraceCollector(t), state: randomText(40), secrets: make(pieces)}
	w.g = serve(t, command{
		args: []string{"--log-level", "debug", "--config", w.world.config(t, atRedis(redis.URL()), fmt.Sprintf("telemetry: {otlpEndpoint: %q}", w.traces.url))},
		env:  []string{"TOLLGATE_HANDLE_KEYS=" + handleKey("k1") + "," + handleKey("k2")},
	})
	w.secrets.add("the state", w.state)
	w.secrets.addBase64("the state", w.state)
	note, memo := w.write(t, w.g, "note_write"), w.write(t, w.g, "memo_write")
	foreign := w.write(t, w.world.gateway(t, handleKey("k9"), memoryStore), "note_write")
	fresh, stale := w.write(t, w.g, "note_brief"), w.write(t, w.g, "memo_brief") // one second from here

	for tool, handle := range map[string]string{"note_read": note, "memo_read": memo} {
		if a := w.g.do(t, "notes", tool, stickerIs(handle)); a.Text != w.state {
			t.Errorf("%s: %s", tool, a.raw)
		}
	}
	t.Run("tampered", func(t *testing.T) { w.refusesTampered(t, note, memo, foreign) })
	t.Run("expired", func(t *testing.T) { w.refusesExpired(t, fresh, stale) })
	t.Run("unclear results", w.hidesUnclearResults)
	t.Run("nothing is shown", w.showsNothing)
}

// write makes a handle of the state.
func (w *tampering) write(t *testing.T, g *gateway, tool string) string {
	t.Helper()
	made := g.do(t, "notes", tool, `{"text":`+quoted(w.state)+`}`).Sticker
	w.secrets.add("a handle of "+tool, made)
	return made
}

func (w *tampering) refusesTampered(t *testing.T, note, memo, foreign string) {
	defer w.world.unreached()(t)
	var expected string
	look := func(what, route, tool, handle string) {
		t.Helper()
		var a stateful
		onceRedisIsInTime(func() string {
			var err error
			if a, err = w.g.askOver(http.DefaultClient, true, route, tool, stickerIs(handle)); err != nil {
				t.Fatal(err)
			}
			return a.raw
		})
		if expected == "" {
			a.wantRefused(t, what, notValidSticker)
			expected = a.raw
		}
		if a.status != 200 || a.raw != expected {
			t.Errorf("%s: status %d, %.600s\nwant %s", what, a.status, a.raw, expected)
		}
	}
	for what, handle := range tampered(note, foreign) {
		look("note: "+what, "notes", "note_read", handle)
	}
	for what, handle := range tampered(memo, "s1."+base64.RawURLEncoding.EncodeToString([]byte("made up, 16 byte"))) {
		look("memo: "+what, "notes", "memo_append", handle)
	}
	for kind, handle := range map[string]string{"note": note, "memo": memo} {
		look("another route: "+kind, "copy", kind+"_read", handle)
		look("another service: "+kind, "notes", "other_"+kind+"_read", handle)
	}
	look("the other mode", "notes", "note_read", memo)
	look("the other mode", "notes", "memo_read", note)
}

func (w *tampering) refusesExpired(t *testing.T, fresh, stale string) {
	for tool, handle := range map[string]string{"note_read": fresh, "memo_read": stale} {
		var a stateful
		for late := time.Now().Add(patience); ; {
			if a = w.g.again(t, "notes", tool, stickerIs(handle)); a.Result.IsError || time.Now().After(late) {
				break
			}
			time.Sleep(20 * time.Millisecond) // between two looks
		}
		a.wantRefused(t, tool, expiredSticker)
		w.g.again(t, "copy", tool, stickerIs(handle)).wantRefused(t, tool+", expired and of another route", notValidSticker)
	}
	mac := fresh[len(fresh)-10:]
	other := strings.TrimSuffix(fresh, mac) + strings.Map(nextLetter, mac)
	w.g.try(t, "notes", "note_read", stickerIs(other)).wantRefused(t, "expired and tampered with", notValidSticker)
}

// hidesUnclearResults: a result in which nobody knows what the state is, is not
// shown.
func (w *tampering) hidesUnclearResults(t *testing.T) {
	for _, mode := range []string{"signed", "stored"} {
		for _, as := range []string{"state", "missing", "twice", "case", "nested", "array", "text", "error", "rich", "rich-error"} {
			a := w.g.again(t, "state-lab", "keep."+mode+".write", fmt.Sprintf(`{"as":%q,"state":{"secret":%q}}`, as, w.state))
			w.secrets.add("a handle made of a result", a.Handle)
			kept := as == "state" || as == "rich"
			if kept == a.Result.IsError || kept != (a.Handle != "") {
				t.Errorf("%s, %s: %s", mode, as, a.raw)
			}
			if shown := strings.Contains(a.raw, w.state); shown && (kept || as == "twice" || as == "case") {
				t.Errorf("%s, %s: the agent sees the state: %s", mode, as, a.raw)
			}
		}
	}
}

// showsNothing ends the gateway and looks at all that it gave to others than the
// agent.
func (w *tampering) showsNothing(t *testing.T) {
	for _, path := range []string{"/metrics", "/actuator/health", "/actuator/info", "/actuator/toolBundles", "/actuator/loggers"} {
		w.secrets.search(t, path, w.g.management(t, http.MethodGet, path).body)
	}
	w.g.stop(t) // the last traces leave
	w.secrets.search(t, "the log", w.g.stderr.text()+w.g.stdout.text())
	w.secrets.search(t, "the traces", w.traces.received())
	if lines := w.g.warnings(unknownKeyWarning); len(lines) != 1 {
		t.Errorf("the log should warn once of unknown keys: %q", lines)
	}
}

// tampered are handles that look a little like this one, by what was done to it.
func tampered(handle, madeUp string) map[string]string {
	all := map[string]string{
		"empty":            "",
		"made up":          madeUp,
		"1 MB":             strings.Repeat("A", 1<<20),
		"1 MB behind it":   handle + strings.Repeat("A", 1<<20),
		"twice":            handle + handle,
		"half":             handle[:len(handle)/2],
		"without its end":  handle[:len(handle)-1],
		"without its head": handle[1:],
		"version alone":    handle[:3],
		"next version":     strings.NewReplacer("h1.", "h2.", "s1.", "s2.").Replace(handle),
		"padding":          handle + "=",
		"no base64":        handle[:8] + "+" + handle[8:],
		"line end":         handle + "\n",
		"other key":        strings.Replace(handle, ".k1.", ".k2.", 1),
		"unknown key":      strings.Replace(handle, ".k1.", ".k3.", 1),
	}
	for n := range len(handle) {
		flipped := []byte(handle)
		flipped[n] ^= 1 // the result is ASCII
		all[fmt.Sprintf("byte %d", n)] = string(flipped)
	}
	last := len(handle) - 1
	all["bits that mean nothing"] = handle[:last] + string(nextLetter(rune(handle[last])))
	for what, one := range all {
		if one == handle {
			delete(all, what) // a key's id that a stored handle does not have
		}
	}
	return all
}

// nextLetter is the letter after r in base64url's alphabet.
func nextLetter(r rune) rune {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return rune(alphabet[(strings.IndexRune(alphabet, r)+1)%len(alphabet)])
}

func randomText(length int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	text := make([]byte, length)
	for i := range text {
		text[i] = letters[rand.IntN(len(letters))]
	}
	return string(text)
}

// stop ends the gateway as an operator does.
func (g *gateway) stop(t *testing.T) {
	t.Helper()
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// pieces are all parts of eight bytes of texts that must not be shown, and what
// they are of.
type pieces map[string]string

const pieceSize = 8

func (p pieces) add(what, secret string) {
	for i := range len(secret) - pieceSize + 1 {
		p[secret[i:i+pieceSize]] = what
	}
}

// addBase64 adds the secret as it is in base64 of a text that has it inside.
func (p pieces) addBase64(what, secret string) {
	for before := range 3 {
		whole := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
		p.add(what+" in base64", whole[4:len(whole)-4])
	}
}

// search reports the pieces that text shows, the first of each secret.
func (p pieces) search(t *testing.T, where, text string) {
	t.Helper()
	if text == "" {
		t.Errorf("%s is empty: nothing was looked at", where)
	}
	for what, at := range p.found(text) {
		t.Errorf("%s shows a piece of %s: …%q…", where, what, text[max(0, at-200):min(len(text), at+100)])
	}
}

func (p pieces) found(text string) map[string]int {
	found := make(map[string]int)
	for i := range len(text) - pieceSize + 1 {
		if what, ok := p[text[i:i+pieceSize]]; ok {
			if _, seen := found[what]; !seen {
				found[what] = i
			}
		}
	}
	return found
}

// TestPiecesAreFound makes sure that the search can fail.
func TestPiecesAreFound(t *testing.T) {
	secret := randomText(40)
	p := make(pieces)
	p.add("it", secret)
	p.addBase64("it", secret)
	for name, text := range map[string]string{
		"whole":    secret,
		"head":     "x" + secret[:8],
		"tail":     secret[32:] + "…",
		"in JSON":  fmt.Sprintf(`{"text":%q}`, secret),
		"base64":   base64.StdEncoding.EncodeToString([]byte(`1796000000 3600 {"text":"` + secret + `"}`)),
		"base64 2": base64.RawURLEncoding.EncodeToString([]byte(`1796000000 60 {"text":"` + secret + `"}`)),
	} {
		if len(p.found(text)) == 0 {
			t.Errorf("%s is not found in %s", name, text)
		}
	}
	if found := p.found("1796000000 3600 " + secret[:7]); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

// TestNoMemberSmugglesAState: a Tool Service that reads JSON carelessly takes one of
// two members of a name, or a name in other letters. Arguments with such members
// reach none.
func TestNoMemberSmugglesAState(t *testing.T) {
	world := newStateWorld(t)
	keys := handleKey("k1")
	g := world.gateway(t, keys, memoryStore)
	overLines := func(c command) func(tool, arguments string, modern bool) (stateful, error) {
		// One client speaks one era.
		modernClient, legacyClient := startStdio(t, c), startStdio(t, c)
		legacyClient.hello(t)
		return func(tool, arguments string, modern bool) (stateful, error) {
			if modern {
				return modernClient.ask(t, true, tool, arguments), nil
			}
			return legacyClient.ask(t, false, tool, arguments), nil
		}
	}
	for name, ask := range map[string]func(tool, arguments string, modern bool) (stateful, error){
		"http": func(tool, arguments string, modern bool) (stateful, error) {
			return g.ask(modern, "notes", tool, arguments)
		},
		"stdio": overLines(command{args: []string{"stdio", "--route", "notes", "--config", world.config(t)}, env: []string{"TOLLGATE_HANDLE_KEYS=" + keys}}),
		"relay": overLines(command{args: []string{"stdio", "--url", g.URL + "/mcp/notes"}}),
	} {
		for _, modern := range []bool{true, false} {
			for _, kind := range []string{"note", "memo"} {
				t.Run(fmt.Sprintf("%s/modern %v/%s", name, modern, kind), func(t *testing.T) {
					refuseSmuggled(t, world, kind, name == "http" && modern, func(tool, arguments string) stateful {
						a, err := ask(tool, arguments, modern)
						if err != nil {
							t.Fatal(err)
						}
						return a
					})
				})
			}
		}
	}
}

func refuseSmuggled(t *testing.T, world *stateWorld, kind string, badRequest bool, ask func(tool, arguments string) stateful) {
	sticker := ask(kind+"_write", `{"text":"true"}`).Sticker
	unreached := world.unreached()
	for what, arguments := range smuggled(sticker, `{"text":"false"}`) {
		a := ask(kind+"_append", arguments)
		if a.Error == nil || a.Error.Code != -32602 || a.Result != nil {
			t.Errorf("%s: %s", what, a.raw)
		}
		if a.status != 0 && (a.status == 400) != badRequest {
			t.Errorf("%s: status %d", what, a.status)
		}
	}
	unreached(t)
	if a := ask(kind+"_read", stickerIs(sticker)); a.Text != "true" {
		t.Errorf("the handle itself: %s", a.raw)
	}
}

// smuggled are arguments that hold a state besides the handle, or in its place.
func smuggled(handle, state string) map[string]string {
	h := quoted(handle)
	all := map[string]string{
		"twice deep inside": fmt.Sprintf(`{"text":"x","sticker":%s,"more":[{"a":1,"\u0061":2}]}`, h),
		"instead of it":     fmt.Sprintf(`{"text":"x","Sticker":%s}`, state),
	}
	for _, twin := range []string{`stick\u0065r`, "Sticker", `\u017fticker`} {
		all["first the handle, then "+twin] = fmt.Sprintf(`{"text":"x","sticker":%s,"%s":%s}`, h, twin, state)
		all["first "+twin+", then the handle"] = fmt.Sprintf(`{"%s":%s,"text":"x","sticker":%s}`, twin, state, h)
	}
	return all
}
