package config

import (
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing wrong with a configuration, at the place where its
// author can mend it.
type Problem struct {
	Line, Column int    // 1-based; 0 when the problem belongs to the whole file
	Key          string // dotted path of the key, such as registry.refreshWait; may be empty
	Text         string // what is wrong and what would be right; never a secret value
}

// Problems are all the problems found in one configuration file. It is the
// error Load returns, so that an author mends a file in one round.
type Problems struct {
	File string // as the user named it
	List []Problem
}

// Error returns one line per problem, each as "file:line:column: key: text".
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, one := range p.List {
		var b strings.Builder
		b.WriteString(p.File)
		if one.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", one.Line, one.Column)
		}
		b.WriteString(": ")
		if one.Key != "" {
			b.WriteString(one.Key + ": ")
		}
		b.WriteString(one.Text)
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns p in reading order, or nil when there is nothing to report.
func (p *Problems) sorted() error {
	if len(p.List) == 0 {
		return nil
	}
	slices.SortStableFunc(p.List, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return p
}
