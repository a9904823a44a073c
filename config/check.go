package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"

	"tollgate/cost"
	"tollgate/redisconn"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
	"tollgate/telemetry"
	"tollgate/transport"
	"tollgate/transport/auth"
)

// check finds what is wrong with well-typed values: what each package says of
// its own, and the rules that span packages.
func (c *Config) check(d *decoder) []Problem {
	k := checker{decoder: d}
	if c.Identity == "" {
		k.report("identity", "must not be empty")
	}
	for _, err := range flatten(c.Transport.Validate(), c.Transport.CheckToolTimeout(c.Registry.MaxToolTimeout)) {
		k.take("", err)
	}
	for _, err := range flatten(c.Registry.Validate()) {
		k.take("registry", err)
	}
	for _, err := range flatten(c.Upstream.Validate()) {
		k.take("upstream", err)
	}
	for _, err := range flatten(c.Redis.Validate()) {
		k.take("redis", err)
	}
	for _, err := range flatten(c.Handles.Validate()) {
		k.take("handles", err)
	}
	for _, err := range flatten(c.Auth.Validate()) {
		k.take("auth", err)
	}
	for _, err := range flatten(c.Cost.Validate()) {
		k.take("cost", err)
	}
	k.credentials(c)
	for _, err := range flatten(c.Telemetry.Validate()) {
		k.take("telemetry", err)
	}
	if c.ManagementChosen {
		k.twoListeners(c.Transport)
	}
	k.readable("http.tls.certFile", c.Transport.HTTP.TLS.CertFile)
	k.readable("http.tls.keyFile", c.Transport.HTTP.TLS.KeyFile)
	k.readable("handles.keysFile", c.Handles.KeysFile)
	k.readable("auth.keysFile", c.Auth.KeysFile)
	k.address("registry.portal.url", c.Registry.Portal.URL)
	k.routes(c.Registry)
	return k.problems
}

// checker collects problems at the positions of their keys.
type checker struct {
	decoder  *decoder // knows where keys stand, and which values must not be shown
	problems []Problem
}

// report notes a problem of the key. A key that is not in the file has the place
// of the nearest one around it.
func (k *checker) report(key, format string, args ...any) {
	p := Problem{Key: key, Text: fmt.Sprintf(format, args...)}
	for at := key; at != ""; at = parent(at) {
		if pos := k.decoder.positions[at]; pos != nil {
			p.Line, p.Column = pos.Line, pos.Column
			break
		}
	}
	k.problems = append(k.problems, p)
}

// quoting notes a text of another package, which may quote the value of the key.
func (k *checker) quoting(key, text string) {
	k.report(key, "%s", k.decoder.unquoted(key, text))
}

// take notes an error of a package's own check, whose keys are below section.
func (k *checker) take(section string, err error) {
	if e, ok := errors.AsType[*transport.ConfigError](err); ok {
		k.quoting(e.Key, e.Text)
	} else if e, ok := errors.AsType[*registry.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else if e, ok := errors.AsType[*redisconn.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else if e, ok := errors.AsType[*upstream.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else if e, ok := errors.AsType[*handle.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else if e, ok := errors.AsType[*auth.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else if e, ok := errors.AsType[*cost.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else if e, ok := errors.AsType[*telemetry.ConfigError](err); ok {
		k.quoting(join(section, e.Key), e.Text)
	} else {
		k.quoting(section, err.Error())
	}
}

// parent returns the key one level up: a.b[0] is in a.b, which is in a.
func parent(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// flatten returns the single errors that errs hold, joined or not.
func flatten(errs ...error) []error {
	var out []error
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			out = append(out, flatten(joined.Unwrap()...)...)
		} else if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// twoListeners tells at once of one address for both. When the management
// address is only the default, serve goes on without it.
func (k *checker) twoListeners(c transport.Config) {
	if c.OneAddress() {
		k.report("management.listen", "must not be the address of listen: agents must not reach what is an operator's")
	}
}

// credentials finds what would hand a caller's credential on to Tool Services. It
// is meant for the gateway: with it, each of them could call in the caller's name.
func (k *checker) credentials(c *Config) {
	if c.Auth.Mode != auth.Required {
		return
	}
	if c.Upstream.PassAuthorization {
		k.report("upstream.passAuthorization", "must not be true with auth.mode required: Tool Services would get credentials meant for the gateway")
	}
	for i, name := range c.Upstream.PassHeaders {
		if strings.EqualFold(name, "x-api-key") {
			k.report(fmt.Sprintf("upstream.passHeaders[%d]", i), "must not be x-api-key with auth.mode required: Tool Services would get credentials meant for the gateway")
		}
	}
}

// readable tells at once of a file that could not be read when it is needed. An
// empty path is none.
func (k *checker) readable(key, path string) {
	if path == "" {
		return
	}
	err := openable(path)
	if err == nil {
		return
	}
	if k.decoder.mayBeSecret(key) {
		err = fmt.Errorf("%s: %w", wanted[pattern(key)], withoutPath(err))
	}
	k.report(key, "%v", err)
}

// openable opens a file and reads nothing. What is no regular file it leaves alone:
// a pipe without a writer would not open, and one with a writer gives what it has
// to whoever opens it first.
func openable(path string) error {
	if info, err := os.Stat(path); err == nil {
		switch {
		case info.IsDir():
			return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
		case !info.Mode().IsRegular():
			return nil
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// address tells at once of an address that every connection would be refused to.
// A name may resolve to anything and is judged when it is dialled.
func (k *checker) address(key, address string) {
	u, err := url.Parse(address)
	if err != nil {
		return // reported by whoever owns the key
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && upstream.NeverDialled(ip) {
		k.report(key, "no connection may go there: link-local and cloud metadata addresses are refused")
	}
}

// routes applies to static routes what the Portal's answer has to obey.
func (k *checker) routes(c Registry) {
	if c.Routes == nil {
		return
	}
	if len(c.Routes) == 0 {
		k.report("registry.routes", "declares no route; give at least one, or remove the key")
	}
	for _, key := range sortedKeys(c.Routes) {
		path := userPath("registry.routes", key)
		if len(c.Routes[key]) == 0 {
			k.report(path, "declares no services")
			continue
		}
		for _, finding := range registry.CheckRoute(route(key, c.Routes[key])) {
			if finding.Pointer == "" && !nameShape.MatchString(key) {
				finding.Text = "the routeKey must be 1 to 64 of the characters A-Z a-z 0-9 . _ -"
			}
			k.quoting(path+keyOf(finding.Pointer), finding.Text)
		}
		for i, s := range c.Routes[key] {
			k.service(fmt.Sprintf("%s[%d]", path, i), s)
		}
	}
}

// service checks what only static configuration has.
func (k *checker) service(path string, s Service) {
	k.address(path+".manifestUrl", s.ManifestURL)
	k.address(path+".baseEndpoint", s.BaseEndpoint)
	if strings.Contains(s.BaseEndpoint, "?") {
		k.report(path+".baseEndpoint", "must not have a query: calls go to {baseEndpoint}/{tool}")
	}
	k.readable(path+".fallbackManifestFile", s.FallbackManifestFile)
}
