package main

import (
	"encoding/base64"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckShowsNoSecret: who checks a configuration is told what is wrong with
// it and with what it points to, but no secret.
func TestCheckShowsNoSecret(t *testing.T) {
	w := newTalkativeWorld(t)
	w.keysInFile = true
	config, env := w.config(t, w.server.URL, w.redisURL("127.0.0.1:1", w.redisUser, w.redisPassword))
	for _, args := range [][]string{{"check"}, {"check", "--live"}, {"tools", "--route", "faulty"}, {"tools", "--route", "claims"}} {
		for _, portal := range append([]string{"good"}, portalFaults...) {
			w.portal.Store(portal)
			o := command{args: append(args, "--config", config, "--log-level", "debug"), env: env}.run(t)
			w.secrets.search(t, strings.Join(args, " ")+" with a Portal that is "+portal, inLog, o.stdout+o.stderr)
		}
	}
	if w.asked.Load() == 0 {
		t.Error("the Portal did not get its token")
	}
}

// TestABrokenConfigurationIsReportedWithoutItsSecrets: each of these files is
// refused, and the report names the place, not what stands there.
func TestABrokenConfigurationIsReportedWithoutItsSecrets(t *testing.T) {
	var s sentinels
	secret := s.add("a secret of the configuration", forNobody)
	escaped := url.QueryEscape(secret)
	const routes = "registry: {portal: {url: http://127.0.0.1:1/}}\n"
	for name, text := range map[string]string{
		"token of a wrong type":           "registry: {portal: {url: http://127.0.0.1:1/, token: ['" + secret + "']}}",
		"token with a line break":         "registry:\n  portal:\n    url: http://127.0.0.1:1/\n    token: \"a\\n" + secret + "\"\n",
		"token beside an unknown key":     "registry: {portal: {url: http://127.0.0.1:1/, token: '" + secret + "', tokem: '" + secret + "'}}",
		"token before broken YAML":        "registry:\n  portal:\n    token: '" + secret + "'\n   url: [\n",
		"token in broken YAML":            "registry:\n  portal: {url: http://127.0.0.1:1/, token: '" + secret + "\n",
		"token twice":                     "registry: {portal: {url: http://127.0.0.1:1/, token: a, token: '" + secret + "'}}",
		"token from an unset variable":    "registry: {portal: {url: http://127.0.0.1:1/, token: '" + secret + "${NOT_SET}'}}",
		"Portal with user info":           "registry: {portal: {url: 'http://user:" + escaped + "@127.0.0.1:1/'}}",
		"Portal that is no URL":           "registry: {portal: {url: 'http://127.0.0.1:x/?" + escaped + "'}}",
		"Portal with another scheme":      "registry: {portal: {url: 'ftp://127.0.0.1/?" + escaped + "'}}",
		"Redis with another scheme":       routes + "redis: {url: 'http://user:" + escaped + "@127.0.0.1'}",
		"Redis that is no URL":            routes + "redis: {url: 'redis://user:" + escaped + "@127.0.0.1:x'}",
		"Redis with a bad escape":         routes + "redis: {url: 'redis://user:%zz" + escaped + "@127.0.0.1'}",
		"Redis with an unknown option":    routes + "redis: {url: 'redis://127.0.0.1/0?password=" + escaped + "'}",
		"Redis with a bad database":       routes + "redis: {url: 'redis://127.0.0.1/" + escaped + "'}",
		"Redis password in another key":   routes + "redis: {url: 'redis://127.0.0.1', password: '" + secret + "'}",
		"OTLP endpoint that is no URL":    routes + "telemetry: {otlpEndpoint: '://" + escaped + "'}",
		"OTLP endpoint with a query":      routes + "telemetry: {otlpEndpoint: 'http://127.0.0.1:4318/?token=" + escaped + "'}",
		"OTLP endpoint with user info":    routes + "telemetry: {otlpEndpoint: 'http://user:" + escaped + "@127.0.0.1:4318/'}",
		"OTLP endpoint without a scheme":  routes + "telemetry: {otlpEndpoint: 'user:" + escaped + "@127.0.0.1:4318'}",
		"handle keys in place of a file":  routes + "handles: {keysFile: 'k1:" + base64.StdEncoding.EncodeToString([]byte(secret+secret)) + "'}",
		"a handle key in place of a file": routes + "handles: {keysFile: " + base64.StdEncoding.EncodeToString([]byte(secret+secret)) + "}",
		"a secret in place of a file":     routes + "handles: {keysFile: '" + secret + "'}",
		"a secret in a file of keys":      routes + "handles: {keysFile: keys}", // which holds just that
		"static route with a bad address": "registry: {routes: {a: [{id: a, manifestUrl: 'http://user:" + escaped + "@h/m', baseEndpoint: 'ftp://user:" + escaped + "@h'}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tollgate.yaml")
			writeFile(t, file, text+"\n")
			writeFile(t, filepath.Join(filepath.Dir(file), "keys"), secret+","+secret+":"+secret+",k1:"+secret+",k1:"+escaped)
			for _, args := range [][]string{{"check"}, {"serve", "--listen", "127.0.0.1:0", "--management="}, {"stdio", "--route", "a"}} {
				o := command{args: append(args, "--config", file, "--log-level", "debug")}.run(t)
				if o.code == 0 {
					t.Errorf("%s accepts it:\n%s", args[0], text)
				}
				s.search(t, args[0], inLog, o.stdout+o.stderr)
			}
		})
	}
}
