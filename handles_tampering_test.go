package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tollgate/redistest"
)

// TestTamperedHandlesAreNotValid: whatever is wrong with a handle, the answer is one
// and the same to the byte, no Tool Service hears of it, and nothing of a handle or
// of a state is in anything the gateway shows to anybody else.
func TestTamperedHandlesAreNotValid(t *testing.T) {
	world, redis, traces := newStateWorld(t), redistest.Start(t), newTraceCollector(t)
	g := serve(t, command{
		args: []string{"--log-level", "debug", "--config", world.config(t, atRedis(redis.URL()), fmt.Sprintf("telemetry: {otlpEndpoint: %q}", traces.url))},
		env:  []string{"TOLLGATE_HANDLE_KEYS=" + handleKey("k1") + "," + handleKey("k2")},
	})
	stranger := world.gateway(t, handleKey("k9"), memoryStore)

	state := randomText(40)
	secrets := make(pieces)
	secrets.add("the state", state)
	secrets.addBase64("the state", state)
	write := func(tool string) string {
		made := g.do(t, "notes", tool, `{"text":`+quoted(state)+`}`).Sticker
		secrets.add("a handle of "+tool, made)
		return made
	}
	note, memo := write("note_write"), write("memo_write")
	foreign := stranger.do(t, "notes", "note_write", `{"text":`+quoted(state)+`}`).Sticker
	secrets.add("a handle of the stranger's", foreign)
	fresh, stale := write("note_brief"), write("memo_brief") // one second from here

	t.Run("valid", func(t *testing.T) {
		for tool, handle := range map[string]string{"note_read": note, "memo_read": memo} {
			if a := g.do(t, "notes", tool, stickerIs(handle)); a.Text != state {
				t.Errorf("%s: %s", tool, a.raw)
			}
		}
	})

	t.Run("tampered", func(t *testing.T) {
		unreached := world.unreached()
		var expected string
		faults := 0
		look := func(what, route, tool, handle string) {
			t.Helper()
			if faults > 5 {
				return
			}
			a, err := g.askOver(http.DefaultClient, true, route, tool, stickerIs(handle))
			if err != nil {
				t.Fatal(err)
			}
			if expected == "" {
				a.wantRefused(t, what, notValidSticker)
				expected = a.raw
			}
			if a.status != 200 || a.raw != expected {
				faults++
				t.Errorf("%s: status %d, %.600s\nwant %s", what, a.status, a.raw, expected)
			}
		}
		for kind, handles := range map[string]map[string]string{
			"note": tampered(note, foreign),
			"memo": tampered(memo, "s1."+base64.RawURLEncoding.EncodeToString([]byte("made up, 16 byte"))),
		} {
			turn := 0
			for what, handle := range handles {
				tool := kind + []string{"_read", "_append"}[turn%2]
				look(tool+": "+what, "notes", tool, handle)
				turn++
			}
		}
		for kind, handle := range map[string]string{"note": note, "memo": memo} {
			look("another route: "+kind, "copy", kind+"_read", handle)
			look("another service: "+kind, "notes", "other_"+kind+"_read", handle)
		}
		look("the other mode", "notes", "note_read", memo)
		look("the other mode", "notes", "memo_read", note)
		unreached(t)
	})

	t.Run("expired", func(t *testing.T) {
		for tool, handle := range map[string]string{"note_read": fresh, "memo_read": stale} {
			var a stateful
			for late := time.Now().Add(patience); ; {
				if a = g.try(t, "notes", tool, stickerIs(handle)); a.Result.IsError || time.Now().After(late) {
					break
				}
				time.Sleep(20 * time.Millisecond) // between two looks
			}
			a.wantRefused(t, tool, expiredSticker)
			g.try(t, "copy", tool, stickerIs(handle)).wantRefused(t, tool+", expired and of another route", notValidSticker)
		}
		mac := fresh[len(fresh)-10:]
		other := strings.TrimSuffix(fresh, mac) + strings.Map(nextLetter, mac)
		g.try(t, "notes", "note_read", stickerIs(other)).wantRefused(t, "expired and tampered with", notValidSticker)
	})

	t.Run("unclear results", func(t *testing.T) {
		for _, mode := range []string{"signed", "stored"} {
			for _, as := range []string{"state", "missing", "twice", "case", "nested", "array", "text", "error", "rich", "rich-error"} {
				a := g.try(t, "state-lab", "keep."+mode+".write", fmt.Sprintf(`{"as":%q,"state":{"secret":%q}}`, as, state))
				secrets.add("a handle made of a result", a.Handle)
				kept := as == "state" || as == "rich"
				if kept == a.Result.IsError || kept != (a.Handle != "") {
					t.Errorf("%s, %s: %s", mode, as, a.raw)
				}
				if shown := strings.Contains(a.raw, state); shown && (kept || as == "twice" || as == "case") {
					t.Errorf("%s, %s: the agent sees the state: %s", mode, as, a.raw)
				}
			}
		}
	})

	t.Run("nothing is shown", func(t *testing.T) {
		for _, path := range []string{"/metrics", "/actuator/health", "/actuator/info", "/actuator/toolBundles", "/actuator/loggers"} {
			secrets.search(t, path, g.management(t, http.MethodGet, path).body)
		}
		g.stop(t) // the last traces leave
		secrets.search(t, "the log", g.stderr.text()+g.stdout.text())
		secrets.search(t, "the traces", traces.received())
		if lines := g.warnings(""); len(lines) != 1 || !strings.Contains(lines[0], unknownKeyWarning) {
			t.Errorf("the log should warn once, of unknown keys: %q", lines)
		}
	})
}

// tampered are handles that look a little like this one, by what was done to it.
func tampered(handle, madeUp string) map[string]string {
	all := map[string]string{
		"empty":           "",
		"made up":         madeUp,
		"1 MB":            strings.Repeat("A", 1<<20),
		"1 MB behind it":  handle + strings.Repeat("A", 1<<20),
		"1 MB of dots":    strings.Repeat(".", 1<<20),
		"twice":           handle + handle,
		"in quotes":       `"` + handle + `"`,
		"upper case":      strings.ToUpper(handle),
		"not a handle":    "{}",
		"null":            "null",
		"other letters":   "handle \u200bé🚀",
		"zero byte":       handle + "\x00",
		"next version":    strings.NewReplacer("h1.", "h2.", "s1.", "s2.").Replace(handle),
		"capital version": strings.NewReplacer("h1.", "H1.", "s1.", "S1.").Replace(handle),
		"version alone":   handle[:3],
		"other key":       strings.Replace(handle, ".k1.", ".k2.", 1),
		"unknown key":     strings.Replace(handle, ".k1.", ".k3.", 1),
		"no key":          strings.Replace(handle, ".k1.", "..", 1),
		"long key":        strings.Replace(handle, ".k1.", "."+strings.Repeat("k", 64)+".", 1),
	}
	for what, added := range map[string]string{"padding": "=", "padded": "==", "plus": "+", "slash": "/", "percent": "%3D", "space": " ", "line end": "\n", "carriage return": "\r", "dot": ".", "letter": "A", "field": ".AAAA"} {
		all[what+" behind it"] = handle + added
		all[what+" before it"] = added + handle
		all[what+" inside"] = handle[:8] + added + handle[8:]
		dot := strings.LastIndexByte(handle, '.') + 1
		all[what+" before the last part"] = handle[:dot] + added + handle[dot:]
	}
	for n := range len(handle) {
		all[fmt.Sprintf("first %d bytes", n)] = handle[:n]
		if n > 0 {
			all[fmt.Sprintf("without the first %d bytes", n)] = handle[n:]
		}
		for _, bit := range []byte{1, 32} { // the result is ASCII
			flipped := []byte(handle)
			flipped[n] ^= bit
			all[fmt.Sprintf("byte %d ^ %d", n, bit)] = string(flipped)
		}
		next := []byte(handle)
		next[n] = byte(nextLetter(rune(next[n]))) // for a last letter: the same bytes, but for bits that mean nothing
		all[fmt.Sprintf("byte %d is the next letter", n)] = string(next)
	}
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
	for what, arguments := range smuggled(sticker, `{"text":"false"}`) {
		for _, tool := range []string{"_read", "_append"} {
			unreached := world.unreached()
			a := ask(kind+tool, arguments)
			if a.Error == nil || a.Error.Code != -32602 || a.Result != nil {
				t.Errorf("%s, %s: %s", tool, what, a.raw)
			}
			if a.status != 0 && (a.status == 400) != badRequest {
				t.Errorf("%s, %s: status %d", tool, what, a.status)
			}
			unreached(t)
		}
	}
	if a := ask(kind+"_read", stickerIs(sticker)); a.Text != "true" {
		t.Errorf("the handle itself: %s", a.raw)
	}
}

// smuggled are arguments that hold a state besides the handle, or in its place.
func smuggled(handle, state string) map[string]string {
	h := quoted(handle)
	all := make(map[string]string)
	for _, twin := range []string{"sticker", `\u0073ticker`, `stick\u0065r`, "Sticker", "STICKER", "stickeR", `\u0053ticker`, "ſticker", `\u017fticker`, "stic\u212aer", `stic\u212Aer`, "stİcker"} {
		all["first the handle, then "+twin] = fmt.Sprintf(`{"text":"x","sticker":%s,"%s":%s}`, h, twin, state)
		all["first "+twin+", then the handle"] = fmt.Sprintf(`{"%s":%s,"text":"x","sticker":%s}`, twin, state, h)
		all["the handle twice, once as "+twin] = fmt.Sprintf(`{"text":"x","sticker":%s,"%s":%[1]s}`, h, twin)
	}
	all["twice deep inside"] = fmt.Sprintf(`{"text":"x","sticker":%s,"more":[{"a":1,"\u0061":2}]}`, h)
	all["instead of it"] = fmt.Sprintf(`{"text":"x","Sticker":%s}`, state)
	for _, arguments := range all {
		if !json.Valid([]byte(arguments)) {
			panic(arguments)
		}
	}
	return all
}
