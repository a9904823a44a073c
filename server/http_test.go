package server

import (
	"os"
	"testing"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSmoke(t *testing.T) {
	g := newGateway(t)
	t.Log(g.modern(methodList, ""))
	t.Log(g.legacy(methodList, ""))
	t.Log(g.call(true, "claims.echo", `{"n":9007199254740993}`))
	t.Log(g.call(false, "claims.echo", `{"n":9007199254740993}`))
	t.Log(g.call(true, "claims.nope", `{}`))
	t.Log(g.call(false, "claims.nope", `{}`))
	t.Log(g.modern(methodDiscover, ""))
	t.Log(g.legacy(methodInitialize, `"protocolVersion":"2026-07-28"`))
	t.Log(g.legacy(methodPing, ""))
	t.Log(g.log)
}
