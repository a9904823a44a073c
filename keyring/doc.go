// Package keyring holds the API keys of a gateway while it runs: those of a file,
// which somebody else changes.
//
// [Open] reads the file; a fault then is a start-up error. From then on no fault
// takes a key away: a file that is gone, cannot be read or has a mistake leaves the
// keys as they are, and the log says so. Whoever wants to revoke a key has to write a
// good file without it.
//
// The file is read every two seconds, and taken when two looks in a row see the same
// new content, so that one that is just being written is not taken half. A content that
// takes something away, or has no newline at its end, may be half a file of a slow
// writer: it has to stay for ten seconds. Only the content counts, not what the file
// system says of the file: a symbolic link is followed each time, since Kubernetes swaps
// them, and a change that keeps size and time is seen. A signal has it taken at once.
//
// Who may read the file is not looked at: it has hashes of random keys, which nobody
// can turn back.
package keyring
