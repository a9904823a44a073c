package main

import (
	"fmt"

	"tollgate/server/handle"
)

// keyCmd makes keys.
type keyCmd struct {
	API    keyAPICmd    `cmd:"" name:"api" help:"Make an API key for a caller: the key on standard output, its entry for the file of auth.keysFile on standard error."`
	Handle keyHandleCmd `cmd:"" help:"Make a key that signs state handles: one for all replicas, as TOLLGATE_HANDLE_KEYS or in the file of handles.keysFile."`
}

// keyHandleCmd makes a key that signs handles.
type keyHandleCmd struct {
	ID string `name:"id" env:"-" placeholder:"ID" help:"What the key is called in handles and views; 1 to 32 of A-Z a-z 0-9 _ -. Without it, a random name."`
}

// Run prints the key alone on standard output, so that it can go into a file or a
// variable unseen, and what to do with it on standard error.
func (c keyHandleCmd) Run(std streams) error {
	key, err := handle.NewKey(c.ID)
	if err != nil {
		return &usageError{"--id: " + err.Error()}
	}
	if _, err := fmt.Fprintln(std.out, key); err != nil {
		return err // a full disk must not pass for a file with a key
	}
	fmt.Fprint(std.errors, keyHint)
	return nil
}

// keyHint says that the key is one for all and that the order of keys matters, which
// nobody would guess.
const keyHint = `
This is a secret. Make it once, not once per replica: all replicas need the same, as TOLLGATE_HANDLE_KEYS or in
the file handles.keysFile names. "tollgate check" prints what to compare.
The first key signs, all verify; they are read at the start. A first key: put it there, restart every replica.
To replace one: put the new key behind the old one and restart every replica; then put it first and restart
every replica; drop the old one when its last handle has expired (24 h at most).
`
