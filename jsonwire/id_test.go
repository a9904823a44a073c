package jsonwire

import (
	"strings"
	"testing"
)

func TestIDFault(t *testing.T) {
	const kind, unicode = "id must be a string or an integer", "id must be valid Unicode"
	for id, want := range map[string]string{
		`""`: "", `"a"`: "", `"1.5"`: "", `0`: "", `-1`: "", `9007199254740991`: "", `-9007199254740991`: "",
		`"\ufffd"`: "", `"\ud83d\ude00"`: "", "\"\ufffd \\ud83d\\ude00\"": "", "\"\ufffd\\\\ud83d\"": "",
		`"\ud800"`: unicode, `"\ude00\ud83d"`: unicode,
		`1.0`: kind, `1.5`: kind, `1e2`: kind, `-0`: kind, `9007199254740992`: kind, `-9007199254740992`: kind, `99999999999999999999`: kind,
		`null`: kind, `true`: kind, `[1]`: kind, `{}`: kind, ``: kind,
	} {
		if got := IDFault([]byte(id)); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("IDFault(%s) = %q, want %q", id, got, want)
		}
	}
}
