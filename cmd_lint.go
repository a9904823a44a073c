package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"tollgate/registry"
)

// lintCmd validates documents of Tool Service teams and of Portals with the
// gateway's own validators.
type lintCmd struct {
	Documents []string `arg:"" name:"file" help:"Manifests: files, or http(s) addresses to fetch. - is standard input."`
	Portal    bool     `env:"-" help:"The documents are registry answers of a Portal, not manifests."`
}

// lintFetchTimeout bounds the fetch of one document, answer included.
const lintFetchTimeout = 10 * time.Second

// Run prints one line per finding, or one that says that there is none, and fails
// when any is a breach.
func (c lintCmd) Run(ctx context.Context, std streams) error {
	limits := registry.DefaultConfig()
	maxBytes := limits.Manifest.MaxBytes
	if c.Portal {
		maxBytes = limits.Portal.MaxBytes
	}
	failed := false
	for _, name := range c.Documents {
		data, err := readDocument(ctx, name, maxBytes, std.in)
		findings := []registry.Finding{{Level: registry.Breach, Text: fmt.Sprint(err)}}
		if err == nil {
			findings = c.lint(data)
		}
		if len(findings) == 0 {
			fmt.Fprintf(std.out, "%s: ok, %s\n", shownName(name), c.counted(data))
		}
		for _, f := range findings {
			printFinding(std.out, shownName(name), f)
			failed = failed || f.Level == registry.Breach
		}
	}
	if failed {
		return errFailedCheck
	}
	return nil
}

func (c lintCmd) lint(data []byte) []registry.Finding {
	if c.Portal {
		return registry.LintPortal(data)
	}
	return registry.LintManifest(data, registry.ManifestRules{})
}

// counted says what a document without findings declares.
func (c lintCmd) counted(data []byte) string {
	if c.Portal {
		answer, _ := registry.ParsePortal(data)
		return counted(len(answer.Routes), "route")
	}
	manifest, _ := registry.ParseManifest(data, registry.ManifestRules{})
	return counted(len(manifest.Tools), "tool")
}

// printFinding writes "LEVEL file pointer text" on one line. The pointer to the
// whole document, which is empty, is written as a dash so that columns hold.
func printFinding(to io.Writer, file string, f registry.Finding) {
	pointer := f.Pointer
	if pointer == "" {
		pointer = "-"
	}
	fmt.Fprintf(to, "%s %s %s %s\n", f.Level, file, oneLine(pointer), oneLine(f.Text))
}

// oneLine makes what a document's author wrote safe for a terminal line:
// control and invisible characters are shown as \u escapes.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// counted is a number with its noun: 1 tool, 2 tools.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// shownName is a document's name without credentials of its address.
func shownName(name string) string {
	if u, err := url.Parse(name); err == nil && isAddress(name) {
		return u.Redacted()
	}
	return name
}

func isAddress(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// readDocument reads one document of at most maxBytes from a file, an address
// or, for "-", from stdin.
func readDocument(ctx context.Context, name string, maxBytes int, stdin io.Reader) ([]byte, error) {
	switch {
	case name == "-":
		return readBounded(stdin, maxBytes)
	case isAddress(name):
		return fetchDocument(ctx, name, maxBytes)
	}
	file, err := os.Open(name)
	if err != nil {
		if path, ok := errors.AsType[*os.PathError](err); ok {
			err = path.Err // the line names the file already
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer file.Close()
	return readBounded(file, maxBytes)
}

// fetchDocument GETs an address the user named, as the registry would: no
// redirect is followed and the answer is bounded.
func fetchDocument(ctx context.Context, address string, maxBytes int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lintFetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("is not a usable address")
	}
	req.Header.Set("Accept", "application/json")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, errors.New("cannot be fetched: " + registry.Cause(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fmt.Errorf("cannot be fetched: status %d; redirects are not followed", resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("cannot be fetched: status %d", resp.StatusCode)
	}
	return readBounded(quiet{resp.Body}, maxBytes)
}

// quiet is a body whose errors quote nothing of what the origin sent.
type quiet struct{ io.Reader }

func (q quiet) Read(p []byte) (int, error) {
	n, err := q.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = errors.New(registry.Cause(err))
	}
	return n, err
}

func readBounded(from io.Reader, maxBytes int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, int64(maxBytes)+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("is larger than %d bytes", maxBytes)
	}
	return data, nil
}
