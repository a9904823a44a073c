package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tollgate/redisconn"
)

// goFiles parses the Go files of a directory and those below it, tests left out.
func goFiles(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != dir && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// constants are the values of the string constants of one type in a package.
func constants(t *testing.T, dir, typeName string) (values []string) {
	t.Helper()
	for _, file := range goFiles(t, dir) {
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				if name, ok := v.Type.(*ast.Ident); !ok || name.Name != typeName || len(v.Values) == 0 {
					continue
				}
				if literal, ok := v.Values[0].(*ast.BasicLit); ok {
					values = append(values, unquote(t, literal))
				}
			}
		}
	}
	if len(values) == 0 {
		t.Errorf("%s has no constants of type %s any more", dir, typeName)
	}
	return values
}

func unquote(t *testing.T, literal *ast.BasicLit) string {
	t.Helper()
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// outcomes are the words a call's outcome may be.
func outcomes(t *testing.T) []string {
	t.Helper()
	words := append(constants(t, filepath.Join("server", "upstream"), "Kind"), "ok", "tool_error", "invalid_arguments", "busy", "panic")
	state := []string{"handle_expired", "handle_not_valid", "state_store_unavailable", "state_changed", "state_too_large", "state_missing", "state_ambiguous", "question_not_asked"}
	written := readText(t, "server", "state.go") + readText(t, "server", "input.go")
	for _, word := range state {
		if !strings.Contains(written, strconv.Quote(word)) {
			t.Errorf("no call has the outcome %s any more", word)
		}
	}
	words = append(words, state...)
	core := readText(t, "server", "core.go")
	for _, word := range []string{"ok", "tool_error", "invalid_arguments", "busy", "panic"} {
		if !strings.Contains(core, strconv.Quote(word)) {
			t.Errorf("no call has the outcome %s any more", word)
		}
	}
	for _, m := range wireReason.FindAllStringSubmatch(readText(t, "server", "errors.go"), -1) {
		words = append(words, m[1])
	}
	return words
}

// operations are both documents for operators, for tests of words that stand in
// either.
func operations(t *testing.T) string {
	t.Helper()
	return readText(t, "docs", "operations.md") + "\n" + readText(t, "docs", "operations-reference.md")
}

// section is the text of a document from one heading to the next of that level.
func section(t *testing.T, document, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(document, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no section %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	text, _, _ = strings.Cut(text, "\n"+level+" ")
	return text
}

var rowStart = regexp.MustCompile(`(?m)^\| ([^|]+) \|`)

// firstColumn are the words in code in the first column of a section's tables.
func firstColumn(text string) (words []string) {
	for _, row := range rowStart.FindAllStringSubmatch(text, -1) {
		for _, m := range inCode.FindAllStringSubmatch(row[1], -1) {
			words = append(words, m[1])
		}
	}
	return words
}

var inCode = regexp.MustCompile("`([^`]+)`")

// TestOperationsNamesEveryWordOfTheViews finds words in the management views,
// metrics and logs that their reader cannot look up, and words that no longer
// exist.
func TestOperationsNamesEveryWordOfTheViews(t *testing.T) {
	document := operations(t)
	statuses := section(t, document, "## Statuses and sources")
	kinds := []string{"status_…"} // one row for all of them
	for _, kind := range constants(t, "registry", "FailureKind") {
		if !strings.HasPrefix(kind, "status_") {
			kinds = append(kinds, kind)
		}
	}
	redisWords := slices.DeleteFunc(append(constants(t, "redisconn", "Kind"), constants(t, "registry", "defect")...), func(word string) bool { return word == "" })
	for _, c := range []struct {
		what       string
		words      []string
		documented []string
		others     bool // the table may have more
	}{
		{"status or source", append(constants(t, "registry", "Condition"), constants(t, "registry", "Source")...), firstColumn(statuses), false},
		{"kind of failure", kinds, firstColumn(section(t, document, "## Kinds of failure")), false},
		{"word about Redis", redisWords, firstColumn(section(t, document, "## Redis is gone, slow, empty or poisoned")), false},
		{"reason not to let a caller in", constants(t, filepath.Join("transport", "auth"), "Reason"), firstColumn(section(t, document, "## Callers are not let in")), false},
		{"outcome of a forwarded call", constants(t, filepath.Join("server", "upstream"), "Kind"), firstColumn(section(t, document, "## Outcomes of calls")), true},
	} {
		for _, word := range c.words {
			if !slices.Contains(c.documented, word) {
				t.Errorf("the documents on operations have no row for the %s %s", c.what, word)
			}
		}
		for _, word := range c.documented {
			if !c.others && !slices.Contains(c.words, word) {
				t.Errorf("the documents on operations have a row for %s, but there is no such %s", word, c.what)
			}
		}
	}
	known := outcomes(t)
	documented := firstColumn(section(t, document, "## Outcomes of calls"))
	for _, word := range known {
		own := slices.ContainsFunc([]string{"handle_", "state_", "budget_", "question_"}, func(prefix string) bool { return strings.HasPrefix(word, prefix) })
		if own && !slices.Contains(documented, word) {
			t.Errorf("the documents on operations have no row for the outcome %s", word)
		}
	}
	for _, word := range documented {
		if !slices.Contains(known, word) {
			t.Errorf("the documents on operations have a row for the outcome %s, which no call has", word)
		}
	}
}

// loudMessages are the messages a package may log above the level debug: the
// strings among the arguments of slog's methods, written there, as a constant or in
// a variable called text.
func loudMessages(t *testing.T, dir string) (messages []string) {
	t.Helper()
	files, named := goFiles(t, dir), map[string]string{}
	var texts []string
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if a, ok := node.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
				name, isName := a.Lhs[0].(*ast.Ident)
				if literal, ok := a.Rhs[0].(*ast.BasicLit); ok && isName && name.Name == "text" && literal.Kind == token.STRING {
					texts = append(texts, unquote(t, literal))
				}
			}
			if v, ok := node.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, value := range v.Values {
					if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
						named[v.Names[i].Name] = unquote(t, literal)
					}
				}
			}
			return true
		})
	}
	at := map[string]int{"LogAttrs": 2, "Log": 2, "Info": 0, "Warn": 0, "Error": 0}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			n, ok := at[method.Sel.Name]
			if !ok || len(call.Args) <= n {
				return true
			}
			if level, ok := call.Args[max(0, n-1)].(*ast.SelectorExpr); ok && level.Sel.Name == "LevelDebug" {
				return true
			}
			switch text := call.Args[n].(type) {
			case *ast.BasicLit:
				messages = append(messages, unquote(t, text))
			case *ast.Ident:
				if text.Name == "text" {
					messages = append(messages, texts...)
				} else if named[text.Name] != "" {
					messages = append(messages, named[text.Name])
				}
			}
			return true
		})
	}
	return messages
}

// literals are all strings in the Go source.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, file := range goFiles(t, ".") {
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				found[unquote(t, literal)] = true
			}
			return true
		})
	}
	return found
}

var quotedMessage = regexp.MustCompile(`"msg":"((?:[^"\\]|\\.)*)"`)

// TestOperationsQuotesTheLogAsItIs finds log lines in the document that nobody
// writes, and those about origins and Redis that it does not tell of.
func TestOperationsQuotesTheLogAsItIs(t *testing.T) {
	document := operations(t)
	written := literals(t)
	var quoted []string
	for _, m := range quotedMessage.FindAllStringSubmatch(document, -1) {
		quoted = append(quoted, m[1])
	}
	var table []string
	for _, row := range strings.Split(section(t, document, "## Log lines"), "\n") {
		if cells := strings.Split(row, " | "); len(cells) == 3 && strings.HasPrefix(row, "| ") {
			for _, m := range inCode.FindAllStringSubmatch(cells[1], -1) {
				table = append(table, m[1])
			}
		}
	}
	for _, text := range append(quoted, table...) {
		if !written[text] {
			t.Errorf("docs/operations.md or its reference quotes the log line %q, which nobody writes", text)
		}
	}
	if len(quoted) < 5 || len(table) < 15 {
		t.Errorf("found %d lines and %d messages of the log; the document has more", len(quoted), len(table))
	}
	for _, dir := range []string{"registry", "redisconn", "cost", "keyring", filepath.Join("transport", "auth")} {
		for _, text := range loudMessages(t, dir) {
			if !slices.Contains(table, text) {
				t.Errorf("the section on log lines does not have %q of %s", text, dir)
			}
		}
	}
}

var redisRow = regexp.MustCompile("(?m)^\\| .+ \\| `(single|sentinel|cluster)` \\| `(rediss?://[^`]+)` \\|$")

// TestTheRedisAddressesAreUnderstood tries the addresses that
// docs/configuration.md offers for each form of Redis.
func TestTheRedisAddressesAreUnderstood(t *testing.T) {
	rows := redisRow.FindAllStringSubmatch(readText(t, "docs", "configuration.md"), -1)
	for _, row := range rows {
		config := redisconn.DefaultConfig()
		config.Mode, config.URL = row[1], row[2]
		if err := config.Validate(); err != nil {
			t.Errorf("%s in mode %s: %v", row[2], row[1], err)
		}
	}
	if len(rows) < 7 {
		t.Errorf("found %d addresses; the document has more", len(rows))
	}
}

var attributeName = regexp.MustCompile(`\b[a-z_]+(?:\.[a-z_]+)+\b`)

// TestOperationsNamesAttributesThatExist finds misspelt and outdated attributes
// of spans.
func TestOperationsNamesAttributesThatExist(t *testing.T) {
	written, attributes := literals(t), 0
	for _, row := range strings.Split(section(t, operations(t), "## Traces"), "\n") {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 {
			continue
		}
		for _, name := range attributeName.FindAllString(cells[3], -1) {
			if attributes++; !written[name] {
				t.Errorf("docs/operations-reference.md names the attribute %s, which no span has", name)
			}
		}
	}
	if attributes < 15 {
		t.Errorf("found %d attributes; the document has more", attributes)
	}
}

var (
	headingLine = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile("[^a-z0-9 _-]")
	markdownRef = regexp.MustCompile(`\]\(([^)#\s]*)#([^)]+)\)`)
)

// anchors are the names by which a document's headings can be linked to.
func anchors(t *testing.T, path string) (names []string) {
	t.Helper()
	for _, m := range headingLine.FindAllStringSubmatch(readText(t, path), -1) {
		names = append(names, strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return names
}

// TestLinksToSectionsLeadThere follows the links between the documents that name
// a section.
func TestLinksToSectionsLeadThere(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	documents = append(documents, "README.md", filepath.Join("docs", "deploy", "README.md"))
	for _, document := range documents {
		for _, m := range markdownRef.FindAllStringSubmatch(readText(t, document), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			if !slices.Contains(anchors(t, target), m[2]) {
				t.Errorf("%s links to %s#%s, and there is no such section", document, target, m[2])
			}
		}
	}
}
