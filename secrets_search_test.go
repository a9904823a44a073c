package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A sentinel is a text that stands for something that must not get out. It has a
// head and a tail that occur nowhere else, so that a shortened or half masked one
// is found, too.
type sentinel struct {
	value, head, tail string
	what              string
	who               audience
}

// audience says who may see a sentinel.
type audience int

const (
	forNobody   audience = iota // a secret, of the gateway's or of a caller's
	forAgent                    // the agent's own data: in answers to MCP requests, and nowhere else
	forTraces                   // which request it is: in answers to MCP requests, and in traces
	forOperator                 // on the operator's own terminal, in the log and in traces, but in no status view
)

// sentinels are all the sentinels of a test.
type sentinels struct {
	all []sentinel
}

// add makes a sentinel whose value has what header values, passwords and JSON
// strings may have and URLs must encode.
func (s *sentinels) add(what string, who audience) string { return s.new(what, who, "/+=&") }

// addName makes a sentinel that can be a name, a path segment or a host name.
func (s *sentinels) addName(what string, who audience) string { return s.new(what, who, "-") }

func (s *sentinels) new(what string, who audience, middle string) string {
	n := len(s.all)
	one := sentinel{what: what, who: who, head: fmt.Sprintf("zq7xvb%02dmk", n), tail: fmt.Sprintf("wj9h%02dfyt4", n)}
	one.value = one.head + middle + one.tail
	s.all = append(s.all, one)
	return one.value
}

// note makes a sentinel of a text that somebody else has made, of at least 20
// characters that occur nowhere else.
func (s *sentinels) note(what string, who audience, text string) {
	s.all = append(s.all, sentinel{what: what, who: who, value: text, head: text[:10], tail: text[len(text)-10:]})
}

// A place is where something may have got out.
type place int

const (
	inLog    place = iota // what a process writes, but for MCP
	inAnswer              // an answer to an MCP request
	inView                // an answer of the management listener
	inTrace               // what a collector of traces is sent
)

// places are where each audience looks.
var places = map[audience][]place{
	forAgent:    {inAnswer},
	forTraces:   {inAnswer, inTrace},
	forOperator: {inLog, inTrace},
}

// search reports every sentinel in text that does not belong there.
func (s *sentinels) search(t *testing.T, where string, p place, text string) {
	t.Helper()
	if text == "" {
		t.Errorf("%s is empty: nothing was looked at", where)
	}
	folded := strings.ToLower(text)
	for _, one := range s.all {
		if slices.Contains(places[one.who], p) {
			continue
		}
		for _, part := range []string{one.head, one.tail} {
			for form, written := range writtenForms(part) {
				if at := strings.Index(folded, strings.ToLower(written)); at >= 0 {
					from := max(strings.LastIndexByte(text[:at], '\n')+1, at-1000)
					t.Errorf("%s shows %s (%s): …%.1200q…", where, one.what, form, text[from:min(len(text), at+100)])
				}
			}
		}
	}
}

// writtenForms are the ways to write a text down in which it is no less public.
// They are compared without regard to case.
func writtenForms(text string) map[string]string {
	forms := map[string]string{
		"plain":   text,
		"hex":     hex.EncodeToString([]byte(text)),
		"numbers": strings.Trim(fmt.Sprint([]byte(text)), "[]"),
	}
	var percent strings.Builder
	for _, b := range []byte(text) {
		fmt.Fprintf(&percent, "%%%02x", b)
	}
	forms["percent"] = percent.String()
	// Base64 of a longer text that has this one somewhere inside: what of it does
	// not depend on the bytes around.
	for before := range 3 {
		whole := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
		first, last := (before*8+5)/6, (before+len(text))*8/6
		forms[fmt.Sprintf("base64 at %d", before)] = whole[first:last]
	}
	return forms
}

// TestSentinelsAreFound makes sure that the search can fail.
func TestSentinelsAreFound(t *testing.T) {
	const text = "zq7xvb42mk"
	for _, around := range []string{"", "u", "us", "use", "user:"} {
		whole := around + text + "…"
		for name, written := range map[string]string{
			"plain":       whole,
			"upper case":  strings.ToUpper(whole),
			"quoted":      fmt.Sprintf("%q", whole),
			"base64":      base64.StdEncoding.EncodeToString([]byte(whole)),
			"base64 URL":  base64.RawURLEncoding.EncodeToString([]byte(whole)),
			"hex":         fmt.Sprintf("%x", whole),
			"upper hex":   fmt.Sprintf("%X", whole),
			"bytes":       fmt.Sprint([]byte(whole)),
			"percent":     "%7A%71%37%78%76%62%34%32%6D%6b",
			"percent-ish": around + "%2F" + text + "%3D",
		} {
			found := false
			for _, form := range writtenForms(text) {
				found = found || strings.Contains(strings.ToLower(written), strings.ToLower(form))
			}
			if !found {
				t.Errorf("%s after %q is not found in %s", name, around, written)
			}
		}
	}
}
