package capability

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"micronode/fault"
)

const (
	keySize    = 32
	rootIDSize = 8
	redacted   = "[redacted root key]"
)

// Alloc returns memory for a key. It has the signature of an arena's method, so
// that the key can live in memory that is locked and zeroed; nil means the
// heap.
type Alloc func(n int) ([]byte, error)

// Root is the key under which tokens are minted and verified. The key is
// derived from the given secret, so that the same secret may serve elsewhere
// too. However a Root is printed or logged, its key does not show.
type Root struct {
	id [rootIDSize]byte // set at construction; names the root, reveals nothing of the key

	mu  sync.RWMutex   // held while a chain of HMACs is computed, which does not block
	key *[keySize]byte // guarded by mu; nil once closed; a pointer, since fmt would print an array
}

// NewRoot makes a random root. It is lost with the process, and the tokens
// minted under it with it.
func NewRoot(alloc Alloc) (*Root, error) {
	var secret [keySize]byte
	rand.Read(secret[:]) // never fails: the runtime crashes the program first
	defer clear(secret[:])
	return derive(secret[:], alloc)
}

// RootFrom reads a root that outlives the process or is shared by several:
// file:PATH, env:VAR, fd:N, or the secret itself. The secret is 32 bytes or
// more, written in hex or base64. A file must not be world-readable.
func RootFrom(spec string, alloc Alloc) (*Root, error) {
	secret, err := readSecret(spec)
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	return derive(secret, alloc)
}

// derive makes the key and the ID from a secret, each under a label of its
// own.
func derive(secret []byte, alloc Alloc) (*Root, error) {
	const op = "capability.root"
	if alloc == nil {
		alloc = func(n int) ([]byte, error) { return make([]byte, n), nil }
	}
	memory, err := alloc(keySize)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "micronode capability root v1", keySize)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer clear(key)
	id, err := hkdf.Key(sha256.New, secret, nil, "micronode capability root id v1", rootIDSize)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	copy(memory, key)
	return &Root{id: [rootIDSize]byte(id), key: (*[keySize]byte)(memory)}, nil
}

// use calls a function with the key. The function must not block or keep the
// key.
func (r *Root) use(op string, with func(key []byte) error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.key == nil {
		return fault.New(op, fault.Canceled, "the node is stopping and has forgotten its root key")
	}
	return with(r.key[:])
}

// Close zeroes the key, before the owner of its memory releases it. After that
// nothing is minted and nothing verifies. Closing twice is harmless.
func (r *Root) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.key != nil {
		clear(r.key[:])
		r.key = nil
	}
}

// ID names the root without revealing the key. Processes that accept each
// other's tokens have the same one.
func (r *Root) ID() string { return fmt.Sprintf("%x", r.id) }

// String hides the key.
func (r *Root) String() string { return redacted }

// GoString hides the key from %#v.
func (r *Root) GoString() string { return redacted }

// Format hides the key from every verb, the wrong ones included.
func (r *Root) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue hides the key from logs.
func (r *Root) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the key from encoders.
func (r *Root) MarshalText() ([]byte, error) { return []byte(redacted), nil }
