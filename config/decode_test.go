package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type sample struct {
	Name   string        `yaml:"name"`
	On     bool          `yaml:"on"`
	Size   int           `yaml:"size"`
	Small  int8          `yaml:"small"`
	Every  time.Duration `yaml:"every"`
	Hosts  []string      `yaml:"hosts"`
	Inner  inner         `yaml:"inner"`
	shared `yaml:",inline"`
	Groups map[string][]item `yaml:"groups"`
	Hidden string
}

type inner struct {
	File string `yaml:"file"`
}

type shared struct {
	Common string `yaml:"common"`
}

type item struct {
	ID      string `yaml:"id"`
	Enabled bool   `yaml:"enabled"`
}

func (i *item) setDefaults() { i.Enabled = true }

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestDecodeFillsEveryKindOfKey(t *testing.T) {
	const text = `
name: "a ${WHO}"
on: true
size: 42
every: 5m
hosts: [a, "${WHO}"]
inner:
  file: x
common: y
groups:
  g.1:
    - {id: one}
    - {id: two, enabled: false}
`
	got := sample{Name: "default", Small: 7}
	d := decoder{lookup: environment("WHO", "b: [c]")}
	d.decode([]byte(text), &got)
	if len(d.problems) > 0 {
		t.Fatalf("problems: %v", d.problems)
	}
	want := sample{Name: "a b: [c]", On: true, Size: 42, Small: 7, Every: 5 * time.Minute,
		Hosts: []string{"a", "b: [c]"}, Inner: inner{"x"}, shared: shared{"y"},
		Groups: map[string][]item{"g.1": {{"one", true}, {"two", false}}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if pos := d.positions["groups.g.1[1].enabled"]; pos == nil || pos.Line != 13 {
		t.Errorf("position of groups.g.1[1].enabled = %v, want line 13", pos)
	}
}

func TestDecodeKeepsDefaultsForAbsentAndNullKeys(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "name:\nsize: null\ninner: ~\n"} {
		want := sample{Name: "default", Size: 3, Inner: inner{"kept"}}
		got := want
		d := decoder{}
		d.decode([]byte(text), &got)
		if len(d.problems) > 0 {
			t.Errorf("%q: problems: %v", text, d.problems)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestDecodeMergesMappings: what is named changes, what is not named stays.
func TestDecodeMergesMappings(t *testing.T) {
	type limits struct {
		Tiers map[string]item `yaml:"tiers"`
	}
	for text, want := range map[string]map[string]item{
		"tiers: {}\n":                       {"a": {"one", true}, "b": {"two", false}},
		"tiers: {a: , b: {}}\n":             {"a": {"one", true}, "b": {"two", false}},
		"tiers: {a: {enabled: false}}\n":    {"a": {"one", false}, "b": {"two", false}},
		"tiers: {c: {id: x}, b: {id: y}}\n": {"a": {"one", true}, "b": {"y", false}, "c": {"x", false}},
	} {
		got := limits{map[string]item{"a": {"one", true}, "b": {"two", false}}}
		d := decoder{}
		d.decode([]byte(text), &got)
		if diff := cmp.Diff(want, got.Tiers); diff != "" || len(d.problems) > 0 {
			t.Errorf("%s%v (-want +got):\n%s", text, d.problems, diff)
		}
	}
}

func TestDecodeReadsVariablesAsTheTypeTheKeyWants(t *testing.T) {
	var got sample
	d := decoder{lookup: environment("N", "12", "B", "true", "D", "90s")}
	d.decode([]byte("size: ${N}\non: ${B}\nevery: ${D}\nname: ${N}\n"), &got)
	if len(d.problems) > 0 {
		t.Fatalf("problems: %v", d.problems)
	}
	if got.Size != 12 || !got.On || got.Every != 90*time.Second || got.Name != "12" {
		t.Errorf("got %+v", got)
	}
}

func TestDecodeFollowsAliases(t *testing.T) {
	var got sample
	d := decoder{}
	d.decode([]byte("inner: &i\n  file: x\ngroups:\n  a: &list\n    - {id: one}\n  b: *list\n"), &got)
	if len(d.problems) > 0 {
		t.Fatalf("problems: %v", d.problems)
	}
	if diff := cmp.Diff(got.Groups["a"], got.Groups["b"]); diff != "" || len(got.Groups["b"]) != 1 {
		t.Errorf("groups differ: %v", got.Groups)
	}
}

func TestDecodeReportsEveryProblemAtItsPlace(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string // "line:column key: start of the text"
	}{
		"unknown key":      {"nam: x\n", []string{"1:1 nam: unknown key; known here: common, every, groups, hosts, inner, name, on, size, small"}},
		"nested key":       {"inner:\n  fil: x\n", []string{"2:3 inner.fil: unknown key; known here: file"}},
		"field, no tag":    {"Hidden: x\n", []string{"1:1 Hidden: unknown key"}},
		"case matters":     {"Name: x\n", []string{"1:1 Name: unknown key"}},
		"twice":            {"name: a\nname: b\n", []string{"2:1 name: the key is given twice"}},
		"number for text":  {"name: 42\n", []string{"1:7 name: want a string, not a number; put the value in quotes"}},
		"boolean for text": {"name: yes\non: no\n", []string{`2:5 on: want true or false, not the string "no"`}},
		"list for text":    {"name: [a]\n", []string{"1:7 name: want a string, not a list"}},
		"text for number":  {"size: many\n", []string{"1:7 size: want a whole number, not a string"}},
		"quoted number":    {"size: \"5\"\n", []string{"1:7 size: want a whole number, not a string: leave out the quotes"}},
		"fraction":         {"size: 1.5\n", []string{"1:7 size: want a whole number, not a number"}},
		"overflow":         {"small: 300\n", []string{"1:8 small: the number is too large"}},
		"unitless":         {"every: 300\n", []string{"1:8 every: want a duration such as 300s, 5m or 250ms, not a number without a unit"}},
		"bad duration":     {"every: soon\n", []string{`1:8 every: want a duration such as 300s, 5m or 250ms, not a string`}},
		"text for list":    {"hosts: a\n", []string{"1:8 hosts: want a list, not a string"}},
		"empty entry":      {"hosts: [a, null]\n", []string{"1:12 hosts[1]: a list entry may not be empty"}},
		"text for section": {"inner: x\n", []string{"1:8 inner: want keys and values, not a string"}},
		"list of sections": {"groups: {a: [{id: 1}]}\n", []string{"1:19 groups.a[0].id: want a string, not a number"}},
		"unset variable":   {"name: ${NO}\n", []string{"1:7 name: the environment variable NO is not set"}},
		"placeholder left": {"name: ${LEFT}\n", []string{"1:7 name: the environment variable LEFT counts as not set: its value still contains ${…}"}},
		"empty variable":   {"name: ${EMPTY}\n", []string{"1:7 name: the environment variable EMPTY counts as not set: it is empty"}},
		"odd variable":     {"name: ${NO:-x}\n", []string{"1:7 name: what stands in ${…} is not a variable's name; write ${NAME}"}},
		"secret not shown": {"size: ${SECRET}\nevery: ${SECRET}\non: ${SECRET}\n", []string{
			"1:7 size: want a whole number, not the value of the environment variable SECRET",
			"2:8 every: want a duration such as 300s, 5m or 250ms, not the value of the environment variable SECRET",
			"3:5 on: want true or false, not the value of the environment variable SECRET"}},
		"unknown alias": {"inner: *nobody\n", []string{"1:8 inner: no anchor of this name stands before this alias; a value that begins with * must be in quotes"}},
		"tag":           {"name: !!str x\n", []string{"1:7 name: YAML tags are not supported"}},
		"merge key":     {"inner: &a {file: x}\ngroups:\n  <<: *a\n", []string{"3:3 groups: merge keys (<<) are not supported"}},
		"two documents": {"name: a\n---\nname: b\n", []string{"3:1 : want one YAML document"}},
		"not YAML":      {"name: [a\n", []string{"1:7 : not valid YAML: "}},
		"several":       {"nam: x\nsize: many\ninner:\n  fil: x\n", []string{"1:1 nam: ", "2:7 size: ", "4:3 inner.fil: "}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := decoder{lookup: environment("LEFT", "x${y}", "EMPTY", "", "SECRET", "hunter2")}
			d.decode([]byte(test.text), &sample{})
			if len(d.problems) != len(test.want) {
				t.Fatalf("got %d problems, want %d: %+v", len(d.problems), len(test.want), d.problems)
			}
			for i, p := range d.problems {
				got := strings.TrimSpace(place(p) + " " + p.Key + ": " + p.Text)
				if !strings.HasPrefix(got, test.want[i]) {
					t.Errorf("problem %d:\n got %s\nwant %s…", i, got, test.want[i])
				}
				if strings.Contains(got, "hunter2") {
					t.Errorf("problem shows the variable's value: %s", got)
				}
			}
		})
	}
}

func place(p Problem) string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

func FuzzDecode(f *testing.F) {
	f.Add([]byte("name: x\ninner: {file: &a y}\ngroups: {a: [{id: *a}]}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("size: !!int 5\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{lookup: environment()}
		d.decode(data, &sample{}) // must return, whatever the bytes
	})
}
