// Package keyring holds the API keys of a gateway while it runs: those of a file,
// which somebody else changes.
//
// [Open] reads the file; a fault then is a start-up error. From then on no fault
// takes a key away: a file that is gone, cannot be read or has a mistake leaves the
// keys as they are, and the log says so. Whoever wants to revoke a key has to write a
// good file without it.
//
// The file is looked at every two seconds, and read when two looks in a row see the
// same new file, so that one that is just being written is not taken half. A symbolic
// link is followed each time: Kubernetes swaps them. A signal has it read at once.
//
// Who may read the file is not looked at: it has hashes of random keys, which nobody
// can turn back.
package keyring
