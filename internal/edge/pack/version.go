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
	// tile reads a tile as it is stored, into buf if its capacity is enough.
	tile(ctx context.Context, buf []byte, z uint8, x, y uint32) (data []byte, encoding string, found bool, err error)

	// check checks everything, until ctx ends.
	check(ctx context.Context) error

	close()
}

// version is one content of one pack, open. It is immutable: a file that is
// replaced is another version, and both are open until the old one has no
// users.
type version struct {
	// set at construction
	file         string
	kind         kind
	state        fileState
	handle       *os.File
	descriptor   uintptr // of handle; valid as long as the version has users
	archive      archive
	info         packInfo
	id           string // see Pack.Version
	etag         string
	verified     bool // its bytes have the expected address
	checked      bool // the deep check was completed
	absentFault  error
	changedFault error
	requestScan  func() // requests a scan
	closed       func() // called when the last user is gone

	users          atomic.Int64 // its mount is one of them
	changedInPlace atomic.Bool  // the file was written to in place
}

// finishInit sets the fields that are derived from the others.
func (v *version) finishInit() {
	v.absentFault = &fault.Error{Op: "pack.tile", Kind: fault.NotFound, Detail: "there is no such tile in " + v.file,
		Next: "The TileJSON of the pack says which zooms and which area it covers."}
	v.changedFault = &fault.Error{Op: "pack.tile", Kind: fault.NotReady, Detail: v.file + " was changed in place; it is mounted again when the writes stop",
		Next: "Try again in a moment. Replace packs by rename to avoid the gap.", RetryAfter: time.Second}
	v.users.Store(1)
}

// acquire adds a user, unless the count is zero: a closed version stays closed,
// and the caller looks up its successor.
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

// release removes a user. The last one closes the file and everything that was
// kept for it.
func (v *version) release() {
	if v.users.Add(-1) > 0 {
		return
	}
	v.archive.close()
	_ = v.handle.Close() // nothing was written
	v.closed()
}

// intact reports whether the file is still what was mounted. Once it is not, it
// never is again.
func (v *version) intact() bool {
	if v.changedInPlace.Load() {
		return false
	}
	if now, err := identityOfOpen(v.descriptor); err == nil && now == v.state.identity {
		return true
	}
	v.changedInPlace.Store(true)
	v.requestScan()
	return false
}

// tile reads a tile and then checks that it is of this version.
func (v *version) tile(ctx context.Context, buf []byte, z uint8, x, y uint32) (Tile, error) {
	const op = "pack.tile"
	if err := flow.Ended(ctx, op); err != nil {
		return Tile{}, err
	}
	if z > 31 || x>>z != 0 || y>>z != 0 {
		return Tile{}, v.absentFault // no pack has such a tile
	}
	data, encoding, found, err := v.archive.tile(ctx, buf, z, x, y)
	switch {
	case !v.intact():
		return Tile{}, v.changedFault // whether a tile was found or not
	case err != nil:
		return Tile{}, fault.WrapKind(op, readKind(err), err)
	case !found:
		return Tile{}, v.absentFault
	}
	return Tile{Data: data, Type: v.info.media, Encoding: encoding}, nil
}

// readAt reads raw bytes of the file, and checks that they are of this version.
func (v *version) readAt(p []byte, off int64) (int, error) {
	n, err := v.handle.ReadAt(p, off)
	if !v.intact() {
		return 0, v.changedFault
	}
	if err != nil && err != io.EOF {
		return n, fault.Wrap("pack.read", err)
	}
	return n, err
}

// readKind is the kind of a read error after the archive was mounted. A parse
// error is damage of the pack then, not a mistake of the caller.
func readKind(err error) fault.Kind {
	switch kind := fault.KindOf(err); kind {
	case fault.Malformed, fault.RatioCap, fault.BodyTooLarge:
		return fault.IntegrityFail
	default:
		return kind
	}
}
