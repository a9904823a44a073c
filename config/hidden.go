package config

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"tollgate/server/handle"
)

// A value that came from a variable, or that looks as if it had come to the
// wrong key, may be a secret. The decoder notes such values, and no problem says
// more of them than which key has one, from which variable, and what is wanted.

// hidden is a value that no message may show.
type hidden struct {
	text      string
	variables []string // that took part, in order; none when it stands in the file
}

// note remembers the value of a key if it is to be hidden.
func (d *decoder) note(key, text string, variables []string) {
	if len(variables) > 0 || looksSecret(text) {
		d.hidden[key] = hidden{text, variables}
	}
}

// looksSecret reports a value that has a user's part like an address with
// credentials, or more than any name.
func looksSecret(text string) bool {
	return strings.ContainsAny(text, "@\n\r") || len(text) > 100
}

// mayBeSecret reports whether messages must not show the value of a key. Where the
// path of a file of keys is wanted, a key itself may stand: what cannot be opened
// may be one, whatever it looks like and wherever it comes from.
func (d *decoder) mayBeSecret(key string) bool {
	_, hidden := d.hidden[key]
	return hidden || key == "handles.keysFile" || key == "auth.keysFile"
}

// wanted says for keys whose own check quotes the value what is wanted there, in
// words that quote nothing. An index or a name of the user's choice is a star.
var wanted = map[string]string{
	"http.allowedOrigins[*]":                    "want an origin exactly as browsers send it: scheme://host or scheme://host:port, without default port",
	"http.allowedHosts[*]":                      "want a host name or an IP address, without scheme, port or path",
	"upstream.allowedHosts[*]":                  "want a host name or an IP address, without scheme, port or path",
	"upstream.passHeaders[*]":                   "want the name of a header that may be passed on, and each once",
	"upstream.caFile":                           wantedAuthorities,
	"redis.caFile":                              wantedAuthorities,
	"redis.mode":                                "must be single, sentinel or cluster",
	"registry.onMissingService":                 "want refuse or omit",
	"registry.routes.*[*].id":                   `want 1 to 64 of the characters A-Z a-z 0-9 . _ -, and each service once`,
	"registry.routes.*[*].namePrefix":           "want at most 64 of the characters A-Z a-z 0-9 _ . / -, and no prefix that is the beginning of another",
	"registry.routes.*[*].manifestUrl":          wantedAddress,
	"registry.routes.*[*].baseEndpoint":         wantedAddress,
	"registry.routes.*[*].fallbackManifestFile": "want the path of a file that can be read",
	"http.tls.certFile":                         "want the path of a file that can be read",
	"http.tls.keyFile":                          "want the path of a file that can be read",
	"handles.keysFile":                          "want the path of a file that can be read, relative to this one",
	"auth.keysFile":                             "want the path of a file that can be read, relative to this one",
	"shutdown.drain":                            "want a duration of zero or more, and not less than registry.maxToolTimeout",
}

const (
	wantedAuthorities = "want the path of a PEM file with certificates"
	wantedAddress     = "want an absolute http or https URL without credentials"
)

// silent are the keys whose own checks never quote the value, and often know
// better what is wrong with it.
var silent = map[string]bool{
	"listen": true, "management.listen": true, "registry.portal.url": true, "registry.portal.token": true,
	"redis.url": true, "redis.keyPrefix": true, "telemetry.otlpEndpoint": true, "http.tls": true,
	"auth.mode": true, "auth.publicURL": true, "auth.trustedPrincipalHeader": true,
	"auth.oauth.issuer": true, "auth.oauth.audience": true, "auth.oauth.principalClaim": true,
}

var (
	indexInKey = regexp.MustCompile(`\[\d+\]`)
	routeInKey = regexp.MustCompile(`^registry\.routes\..*?(\[\*\])`)
)

// pattern is a key as wanted has it.
func pattern(key string) string {
	return routeInKey.ReplaceAllString(indexInKey.ReplaceAllString(key, "[*]"), "registry.routes.*$1")
}

// unquoted is the text of a package's own check of a key, in words that do not
// show the key's value if that is hidden.
func (d *decoder) unquoted(key, text string) string {
	value, ok := d.hidden[key]
	if !ok || silent[pattern(key)] {
		return text
	}
	if want, ok := wanted[pattern(key)]; ok {
		return want + causeOf(text)
	}
	// What is left are numbers: "must be at least 1, is 0".
	if want, _, ok := strings.Cut(text, ", is "); ok && !strings.Contains(want, value.text) {
		return want
	}
	return "the value cannot be used here"
}

// causeOf is why a file cannot be read, if that is what the text tells.
func causeOf(text string) string {
	for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EISDIR, syscall.ENOTDIR, syscall.ENAMETOOLONG} {
		if cause := ": " + errno.Error(); strings.HasSuffix(text, cause) {
			return cause
		}
	}
	return ""
}

// withoutValues takes out of the problems what is hidden: a check of one key may
// quote another. It adds where the value of the key itself comes from.
func (d *decoder) withoutValues(problems []Problem) []Problem {
	const short = 4 // what is shorter is part of common words
	var pairs []string
	for _, key := range sortedKeys(d.hidden) {
		if value := d.hidden[key]; len(value.text) >= short && !slices.Contains(pairs, value.text) {
			pairs = append(pairs, value.text, "…")
		}
	}
	replacer := strings.NewReplacer(pairs...)
	for i, p := range problems {
		value, ok := d.hidden[p.Key]
		if !ok || !silent[pattern(p.Key)] {
			problems[i].Text = replacer.Replace(p.Text)
		}
		if len(value.variables) > 0 {
			problems[i].Text += "; the value is that of " + named(value.variables)
		}
	}
	return problems
}

// named lists variables: the environment variable A, or A and B.
func named(variables []string) string {
	if len(variables) == 1 {
		return "the environment variable " + variables[0]
	}
	return "the environment variables " + strings.Join(variables, " and ")
}

var keyShape = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,40}$`)

// nameShape is what a name of the user's choice must look like to be shown.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9._ -]{1,64}$`)

// notShown stands for a name that does not look like one: most likely a piece of
// a value that was not put in quotes.
const notShown = "(not shown)"

// userPath is the dotted path of what the user has called name below key.
func userPath(key, name string) string {
	if !nameShape.MatchString(name) {
		name = notShown
	}
	return join(key, name)
}

// isContent reports what cannot be a path, but may well be what the file holds.
func isContent(path string) bool {
	_, notKeys := handle.ParseKeys(path)
	return notKeys == nil || strings.Contains(path, "-----BEGIN") || strings.ContainsAny(path, "\n\r")
}

// withoutPath is an error of opening a file without the file's name.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
