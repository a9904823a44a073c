package config

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// What the parser needs grows with the square of the depth of a document and with the
// length of its keys, so that a few kilobytes can take all memory there is. Its tokens
// are therefore judged before it gets them. No configuration comes near these bounds.
const (
	maxDepth = 64      // collections within one another
	maxKey   = 1024    // bytes of a key
	maxTags  = 8       // tags and anchors of one value
	maxMarks = 8       // beginnings and ends of documents, and directives
	maxEmpty = 1000    // entries without a value, each of which the parser moves all tokens for
	maxPaths = 1 << 28 // bytes: the parser keeps for each token the path down to it
	maxPairs = 4000    // keys of one mapping, each of which the parser compares with all others
	maxWords = 400_000 // tokens: the parser needs some 600 bytes for each
)

// tokenize splits data as the parser does, up to the first fault in it. fault says why
// the tokens must not be parsed, "" being nothing, and at is where, if that is known.
func tokenize(data []byte) (tokens token.Tokens, at *token.Token, fault string) {
	var s scanner.Scanner
	s.Init(string(data))
	var n nesting
	for {
		scanned, err := s.Scan()
		for _, t := range scanned {
			if fault := n.add(t); fault != "" {
				return nil, t, fault
			}
		}
		tokens.Add(scanned...)
		switch {
		case scanned.InvalidToken() != nil || errors.Is(err, io.EOF):
			return tokens, nil, "" // the parser says what is invalid
		case err != nil:
			return nil, nil, "not valid YAML"
		}
	}
}

// nesting follows how deep tokens are nested. It goes by brackets, and outside of them
// by columns, as the parser does: what is within something else begins further to the
// right. Only a list may begin where the key begins whose value it is, so that there
// are at most twice as many levels as are counted.
type nesting struct {
	open  []level
	last  *token.Token // the one before, comments aside
	line  int          // the line of last
	begin int          // the column of the first token of the line, or of the entry that begins in it; 0 before that
	tags  int          // tags and anchors since the value began
	marks int          // beginnings and ends of documents, and directives
	empty int          // entries without a value
	key   int          // bytes of the longest key
	paths int          // bytes of the paths down to all tokens, at most
	words int          // tokens
	pairs []int        // by depth: keys so far of the mapping that is open there
}

// level is a collection that is open, or an entry of one.
type level struct {
	column int        // in a block; what begins there or before it ends the level
	close  token.Type // of a bracket: what ends the level; 0 for an entry
}

// inFlow marks an entry between brackets, which a comma ends, and no column.
const inFlow = math.MaxInt

// add takes one more token, and says why it is one too many.
func (n *nesting) add(t *token.Token) (fault string) {
	if t.Type == token.CommentType {
		return ""
	}
	last := n.last
	n.last = t
	if last != nil && (last.Type == token.LiteralType || last.Type == token.FoldedType) {
		return "" // the text of a block: it begins nowhere
	}
	flow, before := n.flow(), len(n.open)
	// A colon is where its key began, which may be a line above.
	if column := t.Position.Column; !flow && t.Position.Line != n.line && t.Type != token.MappingValueType {
		for len(n.open) > 0 && n.open[len(n.open)-1].column >= column {
			n.open = n.open[:len(n.open)-1]
		}
		n.begin = 0
	}
	if last != nil && (last.Type == token.SequenceEntryType || last.Type == token.MappingValueType && t.Type != token.SequenceEntryType) &&
		(len(n.open) < before || t.Type == token.CollectEntryType) {
		n.empty++
	}
	n.line = t.Position.Line
	if n.begin == 0 {
		n.begin = t.Position.Column
	}
	switch t.Type {
	case token.MappingKeyType:
		return "a key must stand before its colon, not behind a question mark"
	case token.SequenceStartType:
		n.push(level{inFlow, token.SequenceEndType})
	case token.MappingStartType:
		n.push(level{inFlow, token.MappingEndType})
	case token.SequenceEndType, token.MappingEndType:
		n.end(t.Type)
	case token.CollectEntryType:
		n.next()
	case token.SequenceEntryType, token.MappingValueType:
		column := n.begin
		if flow {
			column = inFlow
		}
		if t.Type == token.MappingValueType {
			n.pair()
		}
		n.push(level{column: column})
		if t.Type == token.MappingValueType && last != nil {
			n.key = max(n.key, len(last.Value))
		}
	case token.TagType, token.AnchorType, token.AliasType:
		n.tags++
	case token.DocumentHeaderType, token.DocumentEndType, token.DirectiveType:
		n.open = n.open[:0]
		n.marks++
	}
	n.words++
	n.paths += len(n.open) * (n.key + 8)
	switch {
	case len(n.open) > maxDepth:
		return fmt.Sprintf("nested too deeply: at most %d lists and mappings may stand within one another", maxDepth)
	case n.key > maxKey:
		return fmt.Sprintf("the key is longer than %d bytes", maxKey)
	case n.tags > maxTags:
		return fmt.Sprintf("more than %d tags and anchors of one value", maxTags)
	case n.marks > maxMarks:
		return "want one YAML document; this is the start or the end of one too many"
	case n.empty > maxEmpty:
		return fmt.Sprintf("more than %d entries without a value", maxEmpty)
	case len(n.pairs) > 0 && slices.Max(n.pairs) > maxPairs:
		return fmt.Sprintf("more than %d keys in one mapping", maxPairs)
	case n.words > maxWords:
		return fmt.Sprintf("more than %d words and signs in one file", maxWords)
	case n.paths > maxPaths:
		return "too much in one file, with keys this long and lists and mappings nested this deeply"
	}
	return ""
}

// flow reports whether the next token stands between brackets.
func (n *nesting) flow() bool {
	return len(n.open) > 0 && n.open[len(n.open)-1].column == inFlow
}

// pair counts one key more of the mapping that is open.
func (n *nesting) pair() {
	depth := len(n.open)
	for len(n.pairs) <= depth {
		n.pairs = append(n.pairs, 0)
	}
	n.pairs[depth]++
}

// push opens a level. What is within it begins anew.
func (n *nesting) push(l level) {
	if inside := len(n.open) + 1; inside < len(n.pairs) {
		n.pairs = n.pairs[:inside]
	}
	n.open = append(n.open, l)
	n.begin, n.tags = 0, 0
}

// next ends the entry of the innermost bracket, if there is one.
func (n *nesting) next() {
	for n.flow() && n.open[len(n.open)-1].close == 0 {
		n.open = n.open[:len(n.open)-1]
	}
	n.tags = 0
}

// end closes the innermost bracket if it is of that kind. Another is a mistake, and
// closes nothing.
func (n *nesting) end(kind token.Type) {
	n.next()
	if n.flow() && n.open[len(n.open)-1].close == kind {
		n.open = n.open[:len(n.open)-1]
	}
}
