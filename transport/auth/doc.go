// Package auth finds out who calls: by an API key, by an OAuth access token, or
// by what an authenticating proxy says. It knows nothing of tools and budgets.
//
// From the top down:
//
//   - [Config] is the auth section of the configuration.
//   - [New] makes an [Authenticator]. [Authenticator.Authenticate] turns a request
//     into a [Caller], or into a [Refusal] that says how to answer.
//     [Authenticator.AuthenticateKey] is the same for a caller without HTTP.
//   - [Key] is an entry of the keys file: the hash of an API key, and what it may
//     do. [NewKey] makes one. [Authenticator.SetKeys] replaces all of them at once.
//   - Access tokens are JWTs, verified with the keys their issuer publishes. The
//     issuer is asked when a token needs it, and at a bounded rate: callers who are
//     not known to anybody must not become its load.
//   - [Authenticator.IssuerStatus] is what the last question to the issuer came to;
//     [Authenticator.CheckIssuer] asks now, for who wants to know before callers do.
//   - [Authenticator.ServeMetadata] tells OAuth clients where to get a token
//     (RFC 9728).
//
// Nothing a caller sends appears in an error, an answer or the log: no key, no
// token, no claim and no header value. The one exception is [Caller], which is
// what it is all for.
package auth
