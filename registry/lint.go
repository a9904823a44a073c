package registry

import (
	"fmt"
	"slices"
	"strings"
)

// adviseTools is the number of tools a model copes with; not a limit.
const adviseTools = 50

// LintManifest reports what [ParseManifest] does and also warns of what is
// accepted but unwise: names, schemas and characters that some models or
// clients cannot take, and members that are ignored because of a typing error.
func LintManifest(data []byte, rules ManifestRules) []Finding {
	_, findings := parseManifest(data, rules, &checker{lint: true})
	return findings
}

// adviseText warns of characters a reviewer cannot see but a model reads: they
// are how instructions are hidden in descriptions.
func (c *checker) adviseText(at *place, text, what string) {
	if !c.lint {
		return
	}
	var seen []string
	for _, r := range text {
		if !isInvisible(r) || r == '\n' || r == '\t' || r == '\r' {
			continue
		}
		code := fmt.Sprintf("U+%04X", r)
		if slices.Contains(seen, code) {
			continue
		}
		if len(seen) == 4 {
			seen = append(seen, "more")
			break
		}
		seen = append(seen, code)
	}
	if len(seen) > 0 {
		c.advise(at, "contains invisible or bidirectional characters (%s) in %s; remove them", strings.Join(seen, ", "), what)
	}
}
