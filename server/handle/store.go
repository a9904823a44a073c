package handle

import (
	"context"
	"time"
)

// Store keeps stored states. Keys, values and prefixes are not empty; values belong
// to the store once given to it, and nobody modifies one that it returned. Every
// operation bounds its own time. After an error, a value may be stored or not.
// Implementations are safe for concurrent use.
type Store interface {
	// Get returns the value of a key; nil, nil when there is none. An error about the
	// value itself, as one of more than limit bytes, has a method ValueFault() string
	// that says what is wrong with it in one word; with other errors nobody knows what
	// is there.
	Get(ctx context.Context, key string, limit int) ([]byte, error)

	// SetFor stores a value until ttl is over, whatever is there.
	SetFor(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Swap stores a value until ttl is over, if the value that is there begins with
	// prefix, and reports whether it is there now. A new value begins with something
	// of its own, as long as prefix: when the answer of an attempt was lost, the next
	// one finds by it that the value is there already.
	Swap(ctx context.Context, key, prefix string, value []byte, ttl time.Duration) (swapped bool, err error)
}
