package main

import (
	"fmt"
	"strconv"
	"strings"

	"tollgate/config"
	"tollgate/transport/auth"
)

// keyAPICmd makes an API key.
type keyAPICmd struct {
	ID    string   `name:"id" env:"-" placeholder:"ID" help:"Required: what the key is called in budgets, views and the log; 1 to 64 of A-Z a-z 0-9 . _ -."`
	Tier  string   `env:"-" placeholder:"TIER" help:"Its budget, such as basic, extended or bulk. Without it, basic."`
	User  string   `env:"-" placeholder:"USER" help:"Whose key it is; visible ASCII, at most 128 characters."`
	Route []string `env:"-" sep:"none" placeholder:"KEY" help:"A route the key may use. May be given several times. Without it, all."`
}

// Run prints the API key alone on standard output, so that it can go into a file
// unseen, and on standard error its entry for the keys file. What it says there
// besides is YAML comments: all of it can be appended to the file.
func (c keyAPICmd) Run(std streams) error {
	key, entry, err := c.newKey()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(std.out, key); err != nil {
		return err // a full disk must not pass for a file with a key
	}
	_, err = fmt.Fprint(std.errors, apiKeyHint, yamlEntry(entry))
	return err // the key is of no use without its entry
}

// newKey makes the key and its entry, judged as the file will be.
func (c keyAPICmd) newKey() (string, auth.Key, error) {
	key, hash := auth.NewKey()
	entry := auth.Key{ID: c.ID, SHA256: hash, Tier: c.Tier, User: c.User, Routes: c.Route}
	flags := map[string]string{"id": "--id", "tier": "--tier", "user": "--user", "routes": "--route"}
	var problems []string
	for _, e := range auth.CheckKeys([]auth.Key{entry}) {
		text := e.Text
		if e.Field == "id" && c.ID == "" {
			text = "is required; " + text
		}
		problems = append(problems, flags[e.Field]+": "+text)
	}
	if problems == nil {
		// ${…} would be a variable in the file.
		if _, err := config.ParseAPIKeys("", []byte(yamlEntry(entry))); err != nil {
			problems = append(problems, "--user: must not contain ${, which stands for a variable in YAML files of the gateway")
		}
	}
	if problems != nil {
		return "", auth.Key{}, &usageError{strings.Join(problems, "\ntollgate: ")}
	}
	return key, entry, nil
}

// yamlEntry is an entry of the keys file as a list item. Values are visible ASCII,
// whose quoting is the same in Go and YAML; without quotes, 42 would be a number. The
// hash is last, and no entry without it: one that is cut off is a mistake, and does not
// open more than the whole one.
func yamlEntry(k auth.Key) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- id: %q\n", k.ID)
	if k.Routes != nil {
		quoted := make([]string, len(k.Routes))
		for i, route := range k.Routes {
			quoted[i] = strconv.Quote(route)
		}
		fmt.Fprintf(&b, "  routes: [%s]\n", strings.Join(quoted, ", "))
	}
	if k.Tier != "" {
		fmt.Fprintf(&b, "  tier: %q\n", k.Tier)
	}
	if k.User != "" {
		fmt.Fprintf(&b, "  user: %q\n", k.User)
	}
	fmt.Fprintf(&b, "  sha256: %q\n", k.SHA256)
	return b.String()
}

// apiKeyHint says what nobody would guess: that the key is gone when it was not
// kept, and that no restart is needed.
const apiKeyHint = `# The API key is on standard output, and cannot be shown again: only its hash is kept.
# Append this entry to the file auth.keysFile names, of every replica; the first one replaces the [] of a file
# without keys. A running gateway takes the changed file by itself, within seconds. Removing the entry revokes the key.
`
