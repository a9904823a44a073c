package auth

import (
	"net/http"
	"strings"
)

// credential is what a request shows of its sender.
type credential struct {
	value  string // not empty
	bearer bool   // it came in the Authorization header
}

// readCredential finds the credential of a request: a Bearer token, which may be an
// API key, or x-api-key. Empty headers are as good as none: that is what clients
// make of a variable that is not set. Both may be given if they say the same; RFC
// 6750 section 2 wants one way at a time, and were the gateway to choose, it might
// choose another than a proxy in front of it.
func readCredential(h http.Header) (credential, *Refusal) {
	authorization, keys := h["Authorization"], h["X-Api-Key"]
	if len(authorization) > 1 || len(keys) > 1 {
		return credential{}, refuse(CredentialsAmbiguous)
	}
	var token, key string
	if len(authorization) == 1 && authorization[0] != "" {
		scheme, rest, _ := strings.Cut(authorization[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return credential{}, refuse(Unauthenticated)
		}
		token = strings.Trim(rest, " ")
	}
	if len(keys) == 1 {
		key = keys[0]
	}
	switch {
	case token == "" && key == "":
		return credential{}, refuse(Unauthenticated)
	case token != "" && key != "" && token != key:
		return credential{}, refuse(CredentialsAmbiguous)
	case token != "":
		return credential{value: token, bearer: true}, nil
	}
	return credential{value: key}, nil
}
