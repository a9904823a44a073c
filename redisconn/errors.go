package redisconn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Kind says in one word why Redis was not usable, or what it answered.
type Kind string

// The kinds of failure. KindReply, KindBusy and KindClosed are never an outage, the
// others are, except for what is refused to one operation.
const (
	KindTimeout  Kind = "timeout"   // no answer in time
	KindConnect  Kind = "connect"   // no connection, or it broke
	KindTLS      Kind = "tls"       // no TLS connection: certificate, or no TLS at all
	KindAuth     Kind = "auth"      // credentials or permissions
	KindLoading  Kind = "loading"   // starting, or busy with a script
	KindReadOnly Kind = "read_only" // reads are answered, writes are refused
	KindNoMaster Kind = "no_master" // sentinels or cluster: nobody in charge of the key
	KindProtocol Kind = "protocol"  // what answers is no Redis, or none for these commands
	KindReply    Kind = "reply"     // an error about this key, as WRONGTYPE; Redis is well
	KindBusy     Kind = "busy"      // too many operations under way in this process
	KindClosed   Kind = "closed"    // after Close
)

// errDown is the answer of a Redis that is left alone: it failed a moment ago,
// and it is not yet time to try again.
var errDown = errors.New("redis: away, not tried")

// Error is a failed operation. It holds nothing of the URL: neither credentials
// nor addresses.
type Error struct {
	Kind Kind

	// Detail is one of a fixed set of texts, or the code an error reply of Redis
	// begins with ("WRONGPASS"); "" when the kind says it all. What follows the
	// code is dropped: it may repeat the user's name.
	Detail string

	ofSentinel bool // that has no say about keys
}

// Error returns kind and detail.
func (e *Error) Error() string {
	if e.Detail == "" {
		return "redis: " + string(e.Kind)
	}
	return "redis: " + string(e.Kind) + " (" + e.Detail + ")"
}

// attrs are those of a log line about the error.
func (e *Error) attrs() []any {
	attrs := []any{"kind", string(e.Kind)}
	if e.Detail != "" {
		attrs = append(attrs, "detail", e.Detail)
	}
	return attrs
}

// tooLargeError is the error for a value longer than the caller's limit. It is an
// answer: Redis is well.
type tooLargeError struct {
	limit int // in bytes
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("redis: the value is longer than %d bytes", e.limit)
}

// ValueFault says what is wrong with the value, in one word: "too_large". It
// tells the error from an outage to packages that do not know this one.
func (e *tooLargeError) ValueFault() string { return "too_large" }

// ValueFault says what is wrong with the value, in one word: "type", when Redis
// refused this key as one of another kind; "" when the error is about no value.
func (e *Error) ValueFault() string {
	if e.Detail == "WRONGTYPE" {
		return "type"
	}
	return ""
}

// use is what an operation needs of Redis.
type use int

// The uses.
const (
	reads      use = iota // or deletes: needs no memory
	stores                // something, with SET
	runsScript            // that stores something
)

// verdict is what an error of an operation says of Redis.
type verdict int

// The verdicts.
const (
	isAnswer  verdict = iota // Redis is well
	isRefusal                // of this operation; nothing is known of others
	isOutage                 // Redis is not usable
)

// verdict judges what classify returned for an operation of this use. Of an outage,
// it also says the least demanding use that fails as well: everything up from there
// waits.
//
// That Redis refuses this command, on this key, is no outage: others may well be
// accepted, and would end it each time the next one like this had begun it; and a
// refusal costs no time. A script is refused with "ERR" where scripts were
// removed. What a sentinel refuses is needed for
// everything.
func (e *Error) verdict(u use) (v verdict, scope use) {
	switch {
	case e.Kind == KindReply:
		return isAnswer, reads
	case e.Detail == "NOPERM" && !e.ofSentinel, e.Detail == "ERR" && u == runsScript:
		return isRefusal, reads
	case e.Kind == KindReadOnly, e.Detail == "ERR" && u == stores:
		return isOutage, stores // a command that is not there says nothing about those that read
	default:
		return isOutage, reads
	}
}

// kindOfCode are the error replies that do not concern the key at hand.
//
// ERR is among them because none of the few commands used here has a general
// error to expect: it is a command somebody removed, or one of detailOfErr.
var kindOfCode = map[string]Kind{
	"NOAUTH":      KindAuth,
	"WRONGPASS":   KindAuth,
	"NOPERM":      KindAuth,
	"LOADING":     KindLoading,
	"BUSY":        KindLoading,
	"READONLY":    KindReadOnly,
	"MISCONF":     KindReadOnly, // the last save to disk failed
	"NOREPLICAS":  KindReadOnly, // fewer replicas than min-replicas-to-write
	"OOM":         KindReadOnly, // maxmemory is reached and nothing may be evicted
	"MASTERDOWN":  KindNoMaster,
	"CLUSTERDOWN": KindNoMaster,
	"TRYAGAIN":    KindNoMaster,
	"MOVED":       KindNoMaster, // go-redis has followed as many as it may
	"ASK":         KindNoMaster,
	"ERR":         KindProtocol,
}

// detailOfErr are the replies with the code ERR that are about all operations, by
// what they begin with.
var detailOfErr = map[string]string{
	"ERR max number of clients":    "too many clients",
	"ERR DB index is out of range": "no such database",
	"ERR AUTH <password> called":   "no password expected",
}

// noPermissionInScript is how Redis 7.0 says NOPERM of a command in a script.
const noPermissionInScript = "executing the script can't "

// errNoMaster: the sentinels know no master of the configured name.
var errNoMaster = errors.New("no master of that name")

// tlsError is a failed handshake.
type tlsError struct{ error }

func (e tlsError) Unwrap() error { return e.error }

// sentinelError is what kept a sentinel from answering.
type sentinelError struct{ error }

func (e sentinelError) Unwrap() error { return e.error }

// classify turns an error of go-redis, whose text may hold anything, into ours.
func classify(err error) *Error {
	if reply, ok := errors.AsType[redis.Error](err); ok && !errors.Is(err, redis.Nil) {
		e := ofReply(reply.Error())
		_, e.ofSentinel = errors.AsType[sentinelError](err)
		return e
	}
	if errors.Is(err, errNoMaster) {
		return &Error{Kind: KindNoMaster, Detail: errNoMaster.Error()}
	}
	if isTimeout(err) {
		return &Error{Kind: KindTimeout}
	}
	if failure, ok := errors.AsType[tlsError](err); ok {
		return &Error{Kind: KindTLS, Detail: tlsDetail(failure)}
	}
	if detail, ok := connectDetail(err); ok {
		return &Error{Kind: KindConnect, Detail: detail}
	}
	return &Error{Kind: KindProtocol, Detail: "not a Redis"}
}

var code = regexp.MustCompile(`^[A-Z]{2,16}$`)

func ofReply(text string) *Error {
	word, _, _ := strings.Cut(text, " ")
	if !code.MatchString(word) {
		return &Error{Kind: KindProtocol, Detail: "not a Redis"}
	}
	for beginning, detail := range detailOfErr {
		if strings.HasPrefix(text, beginning) {
			return &Error{Kind: KindProtocol, Detail: detail}
		}
	}
	if word == "ERR" && strings.Contains(text, noPermissionInScript) {
		word = "NOPERM"
	}
	if kind, ok := kindOfCode[word]; ok {
		return &Error{Kind: kind, Detail: word}
	}
	return &Error{Kind: KindReply, Detail: word}
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) {
		return true
	}
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout()
}

// tlsDetail tells the mistakes of a set-up apart without repeating names.
func tlsDetail(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "certificate of an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "certificate for another name"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "certificate expired or not yet valid"
	}
	return ""
}

// connectDetail reports whether there is or was no connection, and why.
func connectDetail(err error) (detail string, ok bool) {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "host not found", true
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused", true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return "", true
	}
	broken := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrClosed)
	return "", broken
}
