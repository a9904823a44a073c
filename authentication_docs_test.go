package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/config"
	"tollgate/transport/auth"
)

var authenticationPage = filepath.Join("docs", "authentication.md")

// TestTheCommandsOfAuthenticationWork runs every command of docs/authentication.md, in
// the two shells of a reader who follows it, and compares all that is printed.
func TestTheCommandsOfAuthenticationWork(t *testing.T) {
	blocks := shellBlocks(t, authenticationPage)
	const build = "go build -o tollgate ." // the tests' program
	const demo = "./tollgate serve --config tollgate.yaml --fixtures"
	at := slices.IndexFunc(blocks, func(b documented) bool { return b.lines == demo })
	if len(blocks) < 8 || blocks[0].lines != build || at < 0 {
		t.Fatalf("the document has the commands %q", blocks)
	}
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "tollgate")); err != nil {
		t.Fatal(err)
	}
	follow(t, dir, blocks[1:at], nil)
	g := serve(t, command{args: []string{"--config", filepath.Join(dir, "tollgate.yaml"), "--fixtures"}})
	follow(t, dir, blocks[at+1:], strings.NewReplacer("http://127.0.0.1:8080", g.URL, "http://127.0.0.1:9090", g.operator))
}

// follow runs blocks in one shell, in a directory, and compares what each prints.
func follow(t *testing.T, dir string, blocks []documented, addresses *strings.Replacer) {
	t.Helper()
	const end = "=== end of a block ==="
	script := "cd " + dir + "\n"
	for _, block := range blocks {
		script += block.lines + "\necho '" + end + "'\n"
	}
	if addresses != nil {
		script = addresses.Replace(script)
	}
	printed := strings.Split(shell(t, script), end+"\n")
	if len(printed) != len(blocks)+1 {
		t.Fatalf("of %d blocks, %d came to their end", len(blocks), len(printed)-1)
	}
	for i, block := range blocks {
		if !sameOutput(block.output, printed[i]) {
			t.Errorf("the document shows\n%s\nbut this prints\n%s\n%s", block.output, printed[i], block.lines)
		}
	}
}

var refusalSource = regexp.MustCompile(`(?m)^\t(\w+):\s+\{(\d{3}), "`)

// TestTheRefusalsOfAuthentication compares the table with what the package says, and
// the example with what a caller gets.
func TestTheRefusalsOfAuthentication(t *testing.T) {
	source := readText(t, "transport", "auth", "refusal.go")
	want := map[string]string{}
	for _, m := range refusalSource.FindAllStringSubmatch(source, -1) {
		value := regexp.MustCompile(`\t` + m[1] + `\s+Reason = "(\w+)"`).FindStringSubmatch(source)
		if value == nil {
			t.Fatalf("the reason %s is not where it was", m[1])
		}
		want[value[1]] = m[2]
	}
	if reasons := constants(t, filepath.Join("transport", "auth"), "Reason"); len(reasons) != len(want) {
		t.Fatalf("the package has the reasons %q, and a status for %v", reasons, want)
	}
	refusals := section(t, readText(t, authenticationPage), "## Refusals")
	documented := map[string]string{}
	for _, row := range tableRows(t, refusals, "`data.reason`") {
		documented[code(row[0])] = row[1]
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("the table differs (-package +page):\n%s", diff)
	}

	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "keys.yaml"), "[]\n")
	writeFile(t, filepath.Join(dir, "tollgate.yaml"), "auth: { mode: required, keysFile: keys.yaml }\n")
	g := serve(t, command{args: []string{"--config", filepath.Join(dir, "tollgate.yaml"), "--fixtures"}})
	a := g.post(t, "plant", `{}`, "x-api-key", "tg_nobodys")
	if shown := strings.TrimSpace(jsonBlock.FindStringSubmatch(refusals)[1]); a.status != http.StatusUnauthorized || strings.TrimSpace(a.body) != shown {
		t.Errorf("the page shows %s, but this is answered: %d %s", shown, a.status, a.body)
	}
}

// loadBlock loads a configuration that a section shows.
func loadBlock(t *testing.T, heading string) *config.Config {
	t.Helper()
	block := yamlBlock.FindStringSubmatch(section(t, readText(t, authenticationPage), heading))
	if block == nil {
		t.Fatalf("%s shows no configuration", heading)
	}
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, block[1])
	c, err := config.Load(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTheOAuthOfAuthentication: what the page shows of the way to a token is what a
// gateway with the page's configuration answers.
func TestTheOAuthOfAuthentication(t *testing.T) {
	page := section(t, readText(t, authenticationPage), "## OAuth")
	c := loadBlock(t, "## OAuth")
	a, err := auth.New(auth.Options{Config: c.Auth, Name: c.Identity})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Authenticate(httptest.NewRequest(http.MethodPost, "/mcp/plant", nil), "plant")
	refusal, ok := err.(*auth.Refusal)
	if !ok || refusal.Status != http.StatusUnauthorized || !strings.Contains(page, "\nWWW-Authenticate: "+refusal.WWWAuthenticate+"\n") {
		t.Errorf("the page does not show how a request without a token is answered: %+v", err)
	}
	request := httptest.NewRequest(http.MethodPost, "/mcp/plant", nil)
	request.Header.Set("Authorization", "Bearer none")
	if _, err := a.Authenticate(request, "plant"); !strings.Contains(err.(*auth.Refusal).WWWAuthenticate, `error="invalid_token"`) {
		t.Errorf("a token that is not good: %+v", err)
	}
	recorder := httptest.NewRecorder()
	a.ServeMetadata(recorder, httptest.NewRequest(http.MethodGet, auth.WellKnown+"/mcp/plant", nil))
	if got, shown := compacted(t, recorder.Body.String()), compacted(t, jsonBlock.FindStringSubmatch(page)[1]); got != shown {
		t.Errorf("the page shows %s, but the document is %s", shown, got)
	}
	if !strings.Contains(page, "`"+auth.WellKnown+"`") {
		t.Error("the page does not say which paths an ingress has to let through")
	}
}

// TestTheProxyOfAuthentication: the header of the page's configuration says who calls.
func TestTheProxyOfAuthentication(t *testing.T) {
	c := loadBlock(t, "## Behind an authenticating proxy")
	a, err := auth.New(auth.Options{Config: c.Auth})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, "/mcp/plant", nil)
	for _, step := range []struct{ value, want string }{{"", "anonymous"}, {"key:42", "proxy:key:42"}, {"again", ""}} {
		if step.value != "" {
			request.Header.Add("x-authenticated-user", step.value)
		}
		if caller, err := a.Authenticate(request, "plant"); caller.Principal != step.want || (err != nil) != (step.want == "") {
			t.Errorf("with one more header %q: %q, %v", step.value, caller.Principal, err)
		}
	}
}

// TestTheKeysOfAuthentication reads the keys file that the page shows.
func TestTheKeysOfAuthentication(t *testing.T) {
	block := yamlBlock.FindStringSubmatch(section(t, readText(t, authenticationPage), "## API keys"))
	keys, err := config.ParseAPIKeys("keys.yaml", []byte(block[1]))
	if err != nil || len(keys) != 1 || keys[0].ID != "42" || keys[0].User != "u-7" || len(keys[0].Routes) != 2 {
		t.Errorf("%v, %v", keys, err)
	}
}

// TestTheGatewaysCredentialsStayWithIt: what the page calls an error at the start is one.
func TestTheGatewaysCredentialsStayWithIt(t *testing.T) {
	for name, upstream := range map[string]string{
		"upstream.passAuthorization": "passAuthorization: true",
		"upstream.passHeaders":       "passHeaders: [x-api-key]",
	} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "keys.yaml"), "[]\n")
		file := filepath.Join(dir, "tollgate.yaml")
		writeFile(t, file, "registry: { portal: { url: http://127.0.0.1:1/ } }\nauth: { mode: required, keysFile: keys.yaml }\nupstream: { "+upstream+" }\n")
		if o := tollgate(t, "check", "--config", file); o.code == 0 || !strings.Contains(o.stderr, name) {
			t.Errorf("%s: exit code %d\n%s", upstream, o.code, o.stderr)
		}
	}
}

// TestTheAuthenticatedExampleIsGood loads the file that operators copy.
func TestTheAuthenticatedExampleIsGood(t *testing.T) {
	text := readText(t, "docs", "examples", "authenticated.yaml")
	file := filepath.Join(t.TempDir(), "authenticated.yaml")
	const keysFile = "/etc/tollgate/keys/keys.yaml"
	if !strings.Contains(text, "keysFile: "+keysFile+"\n") {
		t.Fatalf("the file does not name %s", keysFile)
	}
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	writeFile(t, keys, "[]\n")
	writeFile(t, file, strings.ReplaceAll(text, keysFile, keys))
	env := []string{"PORTAL_TOKEN=token", "TOLLGATE_REDIS_URL=rediss://tollgate:PASSWORD@redis.example.internal:6380/0"}
	if o := (command{args: []string{"check", "--config", file}, env: env}).run(t); o.code != 0 {
		t.Errorf("exit code %d\n%s", o.code, o.stderr)
	}
	for _, name := range []string{"${PORTAL_TOKEN}", "${TOLLGATE_REDIS_URL}"} {
		if !strings.Contains(text, name) {
			t.Errorf("the file does not take %s from the environment", name)
		}
	}
}
