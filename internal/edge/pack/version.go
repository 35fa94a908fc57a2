package pack

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// archive is what the two kinds of packs have in common.
type archive interface {
	// tile reads a tile as it is stored, into buf if that has the room.
	tile(ctx context.Context, buf []byte, z uint8, x, y uint32) (data []byte, encoding string, found bool, err error)

	// check looks at everything, until ctx ends.
	check(ctx context.Context) error

	close()
}

// version is one content of one pack, open. It never changes: a file that is
// replaced is another version, and both are open until nobody reads the old
// one any more.
type version struct {
	// set at construction
	file       string
	kind       kind
	look       look
	handle     *os.File
	descriptor int // of handle; valid as long as somebody uses the version
	archive    archive
	about      about
	id         string // see Pack.Version
	etag       string
	verified   bool // its bytes hash to what is expected
	checked    bool // the deep check went through to the end
	absent     error
	changed    error
	nudge      func() // asks for a look at the disk
	closed     func() // told when the last user is gone

	users  atomic.Int64 // the mount that it belongs to is one of them
	spoilt atomic.Bool  // the file was written to in place
}

// ready completes a version with what is derived from the rest.
func (v *version) ready() {
	v.absent = &fault.Error{Op: "pack.tile", Kind: fault.NotFound, Detail: "there is no such tile in " + v.file,
		Next: "The TileJSON of the pack says which zooms and which area it covers."}
	v.changed = &fault.Error{Op: "pack.tile", Kind: fault.NotReady, Detail: v.file + " was changed in place and is mounted again when it is left alone",
		Next: "Try again in a moment. Replace packs by rename to avoid the gap.", RetryAfter: time.Second}
	v.users.Store(1)
}

// acquire adds a user, unless the last one has gone: what is closed stays
// closed, and the caller looks for the version that took its place.
func (v *version) acquire() bool {
	for {
		n := v.users.Load()
		if n == 0 {
			return false
		}
		if v.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release takes a user away. The last one closes the file and everything that
// was kept for it.
func (v *version) release() {
	if v.users.Add(-1) > 0 {
		return
	}
	v.archive.close()
	_ = v.handle.Close() // it was only read
	v.closed()
}

// intact tells whether the file is still what was mounted. If it is not, it
// never will be again.
func (v *version) intact() bool {
	if v.spoilt.Load() {
		return false
	}
	if now, err := identityOfOpen(v.descriptor); err == nil && now == v.look.identity {
		return true
	}
	v.spoilt.Store(true)
	v.nudge()
	return false
}

// tile reads a tile and then makes sure that it is one of this version.
func (v *version) tile(ctx context.Context, buf []byte, z uint8, x, y uint32) (Tile, error) {
	const op = "pack.tile"
	if err := flow.Ended(ctx, op); err != nil {
		return Tile{}, err
	}
	if z > 31 || x>>z != 0 || y>>z != 0 {
		return Tile{}, v.absent // there is no such tile in any pack
	}
	data, encoding, found, err := v.archive.tile(ctx, buf, z, x, y)
	switch {
	case !v.intact():
		return Tile{}, v.changed // whatever was found, or not found
	case err != nil:
		return Tile{}, fault.WrapKind(op, readKind(err), err)
	case !found:
		return Tile{}, v.absent
	}
	return Tile{Data: data, Type: v.about.media, Encoding: encoding}, nil
}

// readAt reads bytes of the file as they are, and makes sure that they are of
// this version.
func (v *version) readAt(p []byte, off int64) (int, error) {
	n, err := v.handle.ReadAt(p, off)
	if !v.intact() {
		return 0, v.changed
	}
	if err != nil && err != io.EOF {
		return n, fault.Wrap("pack.read", err)
	}
	return n, err
}

// readKind is the kind of an error that came up after the archive was mounted.
// What does not parse now is damage of the pack, not a mistake of the caller.
func readKind(err error) fault.Kind {
	switch kind := fault.KindOf(err); kind {
	case fault.Malformed, fault.RatioCap, fault.BodyTooLarge:
		return fault.IntegrityFail
	default:
		return kind
	}
}
