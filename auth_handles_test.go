package main

import (
	"strings"
	"testing"
)

// TestAHandleIsItsCallersAlone: whoever else gets hold of it cannot use it, on the
// same gateway and the same route; the caller's next token can.
func TestAHandleIsItsCallersAlone(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("a"), apiKeyEntry("b"))
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	g := guarded(t, requires(file, issuer.issuer()))
	state := resourceOf("state")
	session := issuer.token(t, state)
	for _, mode := range []string{"signed", "stored"} {
		call := func(credential, tool, arguments string) stateful {
			t.Helper()
			tool = "counter." + mode + "." + tool
			a, err := readStateful([]byte(g.modern(t, "state", "tools/call", tool, `"name":"`+tool+`","arguments":`+arguments, bearer(credential)...).body))
			if err != nil || a.Result == nil {
				t.Fatalf("%s: %s (%v)", tool, a.raw, err)
			}
			return a
		}
		refreshed := issuer.refresh(t, session)
		for who, credentials := range map[string][2]string{
			"key:a": {keys["a"], keys["a"]}, "oauth": {session.Access, refreshed.Access},
		} {
			made := call(credentials[0], "create", `{}`)
			for other, credential := range map[string]string{"key:b": keys["b"], "another session": issuer.token(t, state).Access} {
				call(credential, "read", handleIs(made.Handle)).wantRefused(t, who+"'s handle, used by "+other, notValidHandle)
			}
			if a := call(credentials[1], "increment", handleIs(made.Handle)); a.Result.IsError || a.Count != 1 {
				t.Errorf("%s cannot use its own handle: %s", who, a.raw)
			}
			if strings.Contains(g.stderr.text(), made.Handle) {
				t.Error("the log shows a handle")
			}
		}
		session = refreshed
	}
}
