package main

import (
	"errors"
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
	Route []string `env:"-" placeholder:"KEY" help:"A route the key may use. May be given several times. Without it, all."`
}

// Run prints the API key alone on standard output, so that it can go into a file
// unseen, and on standard error its entry for the keys file. What it says there
// besides is YAML comments: all of it can be appended to the file.
func (c keyAPICmd) Run(std streams) error {
	key, entry, err := c.make()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(std.out, key); err != nil {
		return err // a full disk must not pass for a file with a key
	}
	fmt.Fprint(std.errors, apiKeyHint, yamlEntry(entry))
	return nil
}

// make makes the key and its entry, judged as the file will be.
func (c keyAPICmd) make() (string, auth.Key, error) {
	key, entry, _ := auth.NewKey(c.ID) // CheckKeys says what is wrong with the id
	entry.ID, entry.Tier, entry.User, entry.Routes = c.ID, c.Tier, c.User, c.Route
	var problems []string
	if joined, ok := auth.CheckKeys([]auth.Key{entry}).(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			e, _ := errors.AsType[*auth.KeyError](err)
			if e.Field == "id" && c.ID == "" {
				e.Text = "is required; " + e.Text
			}
			if flag, ok := map[string]string{"id": "--id", "tier": "--tier", "user": "--user", "routes": "--route"}[e.Field]; ok {
				problems = append(problems, flag+": "+e.Text)
			}
		}
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
// whose quoting is the same in Go and YAML; without quotes, 42 would be a number.
func yamlEntry(k auth.Key) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- id: %q\n  sha256: %q\n", k.ID, k.SHA256)
	if k.Tier != "" {
		fmt.Fprintf(&b, "  tier: %q\n", k.Tier)
	}
	if k.User != "" {
		fmt.Fprintf(&b, "  user: %q\n", k.User)
	}
	if k.Routes != nil {
		quoted := make([]string, len(k.Routes))
		for i, route := range k.Routes {
			quoted[i] = strconv.Quote(route)
		}
		fmt.Fprintf(&b, "  routes: [%s]\n", strings.Join(quoted, ", "))
	}
	return b.String()
}

// apiKeyHint says what nobody would guess: that the key is gone when it was not
// kept, and that no restart is needed.
const apiKeyHint = `# The API key is on standard output, and cannot be shown again: only its hash is kept.
# Append this entry to the file auth.keysFile names, of every replica; the first one replaces the [] of a file
# without keys. A running gateway takes the changed file by itself, within seconds. Removing the entry revokes the key.
`
