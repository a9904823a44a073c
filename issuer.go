package main

import (
	"context"
	"errors"

	"tollgate/server/management"
	"tollgate/transport/auth"
)

// tryIssuer asks the OAuth issuer for the keys it checks access tokens with. It
// returns what is wrong; "" when nothing is, or there is none.
func (p *parts) tryIssuer(ctx context.Context) (fault string, err error) {
	failure, ok := errors.AsType[*auth.IssuerError](p.auth.CheckIssuer(ctx))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err() // the command was interrupted
	case ok:
		return "gives no keys to check access tokens with: " + failure.Error(), nil
	}
	return "", nil
}

// issuerHealth is what the health view says of the OAuth issuer; nil without one.
func (p *parts) issuerHealth() func() management.IssuerHealth {
	if p.config.Auth.OAuth.Issuer == "" {
		return nil
	}
	return func() management.IssuerHealth {
		s, _ := p.auth.IssuerStatus()
		h := management.IssuerHealth{Status: management.Unknown, Kind: s.Kind}
		if !s.Asked {
			return h
		}
		since := s.Since.UTC()
		h.Since, h.Status = &since, management.Down
		if s.Up {
			h.Status = management.Up
		}
		return h
	}
}

// issuerGauge is what the metrics say of the OAuth issuer; nil without one.
func (p *parts) issuerGauge() func() (up, asked bool) {
	if p.config.Auth.OAuth.Issuer == "" {
		return nil
	}
	return func() (bool, bool) {
		s, _ := p.auth.IssuerStatus()
		return s.Up, s.Asked
	}
}
