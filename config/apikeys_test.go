package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/transport/auth"
)

const (
	hashA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hashB = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
)

func TestParseAPIKeys(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []auth.Key
	}{
		"all fields, and the least": {
			"- id: \"42\"\n  sha256: " + hashA + "\n  tier: bulk\n  user: u-7\n  routes: [claims, lookup]\n- { id: ci, sha256: " + hashB + " }\n",
			[]auth.Key{
				{ID: "42", SHA256: hashA, Tier: "bulk", User: "u-7", Routes: []string{"claims", "lookup"}},
				{ID: "ci", SHA256: hashB},
			},
		},
		"no keys":           {"[]\n", []auth.Key{}},
		"no limit, written": {"- { id: a, sha256: " + hashA + ", tier: , user: }\n", []auth.Key{{ID: "a", SHA256: hashA}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAPIKeys("keys.yaml", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseAPIKeysReportsEveryProblemAtItsLine(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // all the lines, without the file's name
	}{
		"nothing":        {"", []string{": want a list of API keys, or [] for none"}},
		"a comment only": {"# keys\n", []string{": want a list of API keys, or [] for none"}},
		"null":           {"~\n", []string{": want a list of API keys, or [] for none"}},
		"no list":        {"id: a\nsha256: " + hashA + "\n", []string{":1:1: want a list, not keys and values"}},
		"two documents":  {"[]\n---\n[]\n", []string{":3:1: want one YAML document"}},
		"[] and then entries": {"# none yet\n[] # for now\n# a key\n- id: a\n  sha256: " + hashA + "\n", []string{
			":4:1: the file has [] above, in line 2: remove it, the entries are the list",
		}},
		"[] in something else": {"- id: []\n  routes: [\n", []string{":2:11: not valid YAML"}},
		"wrong types": {"- id: 42\n  sha256: [x]\n  routes: claims\n  owner: me\n- \n- x\n", []string{
			":1:7: [0].id: want a string, not a number; put the value in quotes",
			":2:11: [0].sha256: want a string",
			":3:11: [0].routes: want a list",
			":4:3: [0].owner: unknown key; known here: id, routes, sha256, tier, user",
			":5:2: [1]: a list entry may not be empty",
			":6:3: [2]: want keys and values",
		}},
		"values": {"- id: a b\n  sha256: abc\n  tier: \"no tier\"\n  user: \"ü\"\n  routes: []\n- id: ok\n  sha256: " + hashA + "\n  routes: [a, .., b]\n- user: nobody\n", []string{
			":1:3: [0].id: want 1 to 64", ":2:3: [0].sha256: want the SHA-256", ":3:3: [0].tier: want", ":4:3: [0].user: want", ":5:3: [0].routes: the list is empty",
			":8:3: [1].routes: want routeKeys", ":9:3: [2].id: want 1 to 64", ":9:3: [2].sha256: want the SHA-256",
		}},
		"no route left": {"- id: a\n  sha256: " + hashA + "\n  routes:\n  # - claims\n- { id: b, sha256: " + hashB + ", routes: ~ }\n", []string{
			":3:3: [0].routes: nothing is given: name at least one route, or leave routes out for all", ":5:86: [1].routes: nothing is given",
		}},
		"twice": {"- { id: a, sha256: " + hashA + " }\n- { id: a, sha256: " + strings.ToUpper(hashA) + " }\n", []string{
			":2:5: [1].id: a key before it has the same id", ":2:12: [1].sha256: a key before it has the same hash",
		}},
		"the API key itself": {"- { id: a, sha256: tg_S3CR3T }\n", []string{":1:12: [0].sha256: this is an API key"}},
		"a variable":         {"- { id: a, sha256: \"${PATH}\" }\n", []string{":1:20: [0].sha256: the environment variable PATH is not set"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseAPIKeys("keys.yaml", []byte(test.text))
			if err == nil {
				t.Fatal("want problems")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("got %d problems, want %d:\n%v", len(lines), len(test.want), err)
			}
			for i, want := range test.want {
				if got := strings.TrimPrefix(lines[i], "keys.yaml"); !strings.HasPrefix(got, want) {
					t.Errorf("problem %d is %q, want %q…", i, got, want)
				}
			}
		})
	}
}

// Whatever stands in the file may be a key somebody has put there in clear.
func TestParseAPIKeysNeverQuotesTheFile(t *testing.T) {
	const canary = "S3CR3Tq83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRW"
	for _, text := range []string{
		"tg_" + canary, "- tg_" + canary, "- id: " + canary + "!\n  sha256: tg_" + canary, "- { id: a, sha256: " + canary + " }",
		"- id: a\n  tg_" + canary + ": x", "- id: a\n  " + canary + "\n", "- id: \"" + canary, "- {" + canary, "- *" + canary, "- !" + canary + " x",
		"- { id: a, sha256: " + hashA + ", user: \"ü" + canary + "\", tier: \" " + canary + "\", routes: [\"/" + canary + "\"] }",
		"- { id: a, sha256: \"${" + canary + "-x}\" }", canary + ": [}",
	} {
		_, err := ParseAPIKeys("keys.yaml", []byte(text))
		if err == nil {
			t.Errorf("%s: want problems", text)
		} else if strings.Contains(err.Error(), "S3CR3T") {
			t.Errorf("%s: shows it: %v", text, err)
		}
	}
}
