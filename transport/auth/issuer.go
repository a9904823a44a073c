package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tollgate/loglimit"
)

const (
	// issuerTimeout is how long the issuer may take for discovery and keys together.
	issuerTimeout = 5 * time.Second

	// keysFresh is how long keys are used without asking again: a key that the
	// issuer has withdrawn is good for so long.
	keysFresh = 5 * time.Minute

	// keysCurrent is how long keys are taken for all there are: only a token that
	// none of them has signed asks for newer ones, and only when they are older than
	// this.
	// Issuers publish a key before they sign with it.
	keysCurrent = 10 * time.Second

	// keysKept is how long keys are used while the issuer does not answer. The tokens
	// they have signed seldom live longer.
	keysKept = time.Hour

	// firstPause and longestPause are between tries that fail; each doubles the last.
	firstPause   = time.Second
	longestPause = 30 * time.Second

	// maxTries bounds the keys a token is tried with. Only one that names no key, or an
	// issuer that gives many the same id, has more than one.
	maxTries = 32
)

var (
	errUnavailable = errors.New("the issuer gives no keys")
	errNoKey       = errors.New("no key of the issuer")
)

// issuerKeys are the public keys of an issuer, asked for when a token needs them.
//
// The library has a set of its own, which asks again for every token with a key it
// does not have, and keeps a withdrawn key until then: so anybody could make the
// gateway ask as often as he can call.
//
// One request at a time asks. The others wait for it if they need the answer; while
// the issuer is known to be away, those whose keys are here do not.
type issuerKeys struct {
	source source
	log    *slog.Logger

	state atomic.Pointer[keyState]
	turn  chan struct{} // holds one: the right to ask and to write what follows

	warnings loglimit.EveryMinute
	told     bool // the log's last word is that there are no keys
}

// keyState is what is known. It is immutable.
type keyState struct {
	keys     []jose.JSONWebKey
	asked    time.Time // when the issuer was asked for them; zero: never with success
	failures int       // since then
	fault    *fault    // the last of them; nil: there was none
	since    time.Time // when what the last question came to began; zero: nobody has asked
	next     time.Time // no try before, if there were failures
}

func newIssuerKeys(issuer string, transport http.RoundTripper, log *slog.Logger) *issuerKeys {
	k := &issuerKeys{source: source{issuer: issuer, transport: transport}, log: log, turn: make(chan struct{}, 1)}
	k.state.Store(&keyState{})
	return k
}

// find returns the keys that may have signed a token, and when the issuer was asked
// for them. The error is errUnavailable, errNoKey, or that of the context.
func (k *issuerKeys) find(ctx context.Context, id, algorithm string) (keys []jose.JSONWebKey, asked time.Time, err error) {
	state := k.state.Load()
	keys = state.matching(id, algorithm)
	if age := time.Since(state.asked); len(keys) > 0 && age < keysFresh {
		return keys, state.asked, nil
	} else if len(keys) == 0 && age < keysCurrent {
		return nil, time.Time{}, errNoKey
	}
	state, err = k.refresh(ctx, state, len(keys) > 0 && time.Since(state.asked) < keysKept)
	if err != nil {
		return nil, time.Time{}, errors.Join(errUnavailable, err)
	}
	keys = state.matching(id, algorithm)
	switch {
	case len(keys) > 0 && time.Since(state.asked) < keysKept:
		return keys, state.asked, nil
	case state.failures > 0:
		return nil, time.Time{}, errUnavailable
	}
	return nil, time.Time{}, errNoKey
}

// renewed returns the keys that may have signed a token which those of an earlier
// time have not; none, if there is nothing newer. Issuers that give their keys no
// ids, or each the same, change them under the name a token has. Whoever forges a
// token gets as far, so this asks no oftener than an unknown key does; and while the
// issuer does not answer, such a token is a forged one.
func (k *issuerKeys) renewed(ctx context.Context, id, algorithm string, asked time.Time) []jose.JSONWebKey {
	state := k.state.Load()
	if !state.asked.After(asked) && time.Since(asked) >= keysCurrent {
		next, err := k.refresh(ctx, state, true)
		if err != nil {
			return nil
		}
		state = next
	}
	if !state.asked.After(asked) {
		return nil
	}
	return state.matching(id, algorithm)
}

// refresh returns what is known after somebody has asked the issuer since seen, or
// has found that it is not the time to. usable is whether the caller can go on with
// what he has seen.
func (k *issuerKeys) refresh(ctx context.Context, seen *keyState, usable bool) (*keyState, error) {
	if seen.failures > 0 && time.Now().Before(seen.next) {
		return seen, nil
	}
	if usable && seen.failures > 0 {
		select {
		case k.turn <- struct{}{}:
		default:
			return seen, nil
		}
	} else {
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-k.turn }()
	state := k.state.Load()
	if state != seen {
		return state, nil // somebody else has asked meanwhile
	}
	next := k.ask(ctx, state)
	k.state.Store(next)
	return next, nil
}

// ask asks the issuer. It goes on when the caller has left: others wait for it.
func (k *issuerKeys) ask(ctx context.Context, state *keyState) *keyState {
	asked := time.Now()
	keys, fault := k.source.try(context.WithoutCancel(ctx))
	since := state.since
	if since.IsZero() || (fault == nil) != (state.failures == 0) {
		since = asked
	}
	if fault == nil {
		if k.told {
			k.log.Info("the OAuth issuer gives keys again", "failures", state.failures)
			k.told = false
		}
		return &keyState{keys: keys, asked: asked, since: since}
	}
	if _, due := k.warnings.Due(1); due {
		k.log.Warn("the OAuth issuer gives no keys to check access tokens with", append(fault.attrs(), "knownKeys", len(state.keys))...)
		k.told = true
	}
	pause := min(firstPause<<min(state.failures, 10), longestPause)
	return &keyState{
		keys: state.keys, asked: state.asked,
		failures: state.failures + 1, fault: fault, since: since, next: time.Now().Add(pause),
	}
}

// matching are the keys of that id, which may be "" if the token names none, that
// are good for the algorithm: the first maxTries of them.
func (s *keyState) matching(id, algorithm string) []jose.JSONWebKey {
	var keys []jose.JSONWebKey
	for _, key := range s.keys {
		if (id == "" || key.KeyID == id) && goodFor(key, algorithm) {
			if keys = append(keys, key); len(keys) == maxTries {
				break
			}
		}
	}
	return keys
}
