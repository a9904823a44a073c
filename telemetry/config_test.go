package telemetry

import (
	"strings"
	"testing"
)

func TestOTLPEndpoint(t *testing.T) {
	tests := map[string]struct {
		want string // where traces go
		bad  string // part of the error
	}{
		"collector:4318":                   {want: "http://collector:4318/v1/traces"},
		"[::1]:4318":                       {want: "http://[::1]:4318/v1/traces"},
		"localhost:4318":                   {want: "http://localhost:4318/v1/traces"},
		"http://collector:4318":            {want: "http://collector:4318/v1/traces"},
		"http://collector:4318/":           {want: "http://collector:4318/v1/traces"},
		"https://collector":                {want: "https://collector/v1/traces"},
		"https://collector/otlp/v1/traces": {want: "https://collector/otlp/v1/traces"},
		"collector:4318/otlp":              {want: "http://collector:4318/otlp"},
		"collector":                        {bad: "must be host:port"},
		"grpc://collector:4317":            {bad: "must begin with http:// or https://"},
		"https://user:secret@collector":    {bad: "credentials"},
		"user:secret@collector:4318":       {bad: "must be host:port"},
		"secret@collector:4318":            {bad: "credentials"},
		"http://collector/?key=secret":     {bad: "query"},
		"http://collector/#secret":         {bad: "fragment"},
		"http://":                          {bad: "names no host"},
		":4318":                            {bad: "names no host"},
		"collector:":                       {bad: "port"},
		"collector:0":                      {bad: "port"},
		"collector:70000":                  {bad: "port"},
		"http://collector:secret/":         {bad: "no valid address"},
		"http://col\nlector:4318":          {bad: "no valid address"},
	}
	for endpoint, test := range tests {
		t.Run(endpoint, func(t *testing.T) {
			c := Config{OTLPEndpoint: endpoint}
			u, err := c.url()
			if test.bad == "" {
				if err != nil || u.String() != test.want {
					t.Errorf("got %v, %v; want %s", u, err, test.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.bad) {
				t.Errorf("got error %v, want one with %q", err, test.bad)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats the value: %v", err)
			}
			if err := c.Validate(); err == nil {
				t.Error("Validate accepts it")
			}
		})
	}
	if u, err := (Config{}).url(); u != nil || err != nil {
		t.Errorf("without an endpoint: %v, %v", u, err)
	}
}
