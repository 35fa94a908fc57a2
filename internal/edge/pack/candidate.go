package pack

import (
	"context"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
)

// candidate is a file that may become a version. If its address is configured,
// its bytes are hashed first, in steps, so that a large file does not block
// others; a file with another address is never parsed.
type candidate struct {
	// set at construction
	path, file  string
	kind        kind
	state       fileState
	wantAddress b3.Address // zero if any bytes are accepted

	handle *os.File
	began  time.Time
	hasher *b3.Hasher
	buffer []byte
}

func newCandidate(path, file string, of kind, seen fileState, spec Spec) *candidate {
	return &candidate{path: path, file: file, kind: of, state: seen, wantAddress: spec.Expect[file]}
}

// step does a bounded amount of work and reports whether the file is ready to
// be opened as an archive.
func (c *candidate) step(ctx context.Context, limit time.Duration) (done bool, err error) {
	if err := flow.Ended(ctx, opMount); err != nil {
		return false, err
	}
	if c.handle == nil {
		if err := c.open(); err != nil {
			return false, err
		}
	}
	if c.wantAddress.IsZero() {
		return true, nil
	}
	if time.Since(c.began) > limit {
		return false, tooSlow(c.file, limit)
	}
	return c.hash()
}

// open opens the file and checks that it is the one that was found. The open is
// non-blocking, because a named pipe in its place would block it.
func (c *candidate) open() error {
	handle, err := disk.OpenAtOnce(c.path)
	if err != nil {
		return unreadable(c.file, err)
	}
	c.handle, c.began = handle, time.Now()
	return c.checkUnchanged()
}

// checkUnchanged checks that the file is still as it was found.
func (c *candidate) checkUnchanged() error {
	now, err := identityOfOpen(c.handle.Fd())
	if err != nil {
		return unreadable(c.file, err)
	}
	if now != c.state.identity {
		return errChanged
	}
	return nil
}

// hash hashes one step, and checks the address at the end of the file.
func (c *candidate) hash() (done bool, err error) {
	if c.hasher == nil {
		c.hasher, c.buffer = new(b3.Hasher), make([]byte, hashBuffer)
	}
	for range hashStep / hashBuffer {
		n, err := c.handle.ReadAt(c.buffer, c.hasher.N())
		_, _ = c.hasher.Write(c.buffer[:n]) // it never fails
		if err == io.EOF {
			return true, c.checkHash()
		}
		if err != nil {
			return false, unreadable(c.file, err)
		}
	}
	return false, nil
}

// checkHash compares the address of the file with the expected one.
func (c *candidate) checkHash() error {
	got := c.hasher.Sum()
	c.hasher, c.buffer = nil, nil
	if err := c.checkUnchanged(); err != nil {
		return err
	}
	if got != c.wantAddress {
		return wrongHash(c.file, c.wantAddress, got)
	}
	return nil
}

// close closes the file.
func (c *candidate) close() {
	if c.handle != nil {
		_ = c.handle.Close() // nothing was written
		c.handle = nil
	}
}

// open makes a version of a candidate. At the end it checks the file once more:
// if that has not changed, everything that was read in between is of one
// content.
func (m *Mounts) open(ctx context.Context, t *candidate) (*version, error) {
	v := &version{
		file: t.file, kind: t.kind, state: t.state, handle: t.handle, descriptor: t.handle.Fd(),
		requestScan: m.requestScan, closed: func() { m.live.Add(-1) },
	}
	v.id = t.state.version()
	v.etag = `"` + v.id + `"`
	if v.verified = !t.wantAddress.IsZero(); v.verified {
		v.id = hex.EncodeToString(t.wantAddress[:])
		v.etag = `"` + t.wantAddress.String() + `"`
	}
	err := m.openArchive(v, t.path)
	if err != nil {
		return nil, candidateFault(t, err)
	}
	v.checked, err = m.check(ctx, v)
	if err == nil {
		err = t.checkUnchanged()
	}
	if err != nil {
		v.archive.close()
		return nil, candidateFault(t, err)
	}
	v.finishInit()
	m.live.Add(1)
	return v, nil
}

// check runs the deep check for at most CheckTime. If it runs out of time it
// has found nothing wrong so far, and that does not refuse a large archive:
// every later read is checked by itself.
func (m *Mounts) check(ctx context.Context, v *version) (complete bool, err error) {
	if !m.spec.Deep {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, m.spec.CheckTime)
	defer cancel()
	err = v.archive.check(limited)
	kind := fault.KindOf(err)
	if (kind == fault.Timeout || kind == fault.Canceled) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// candidateFault says why a candidate was refused. A file that was written to
// or replaced meanwhile may be complete the next time.
func candidateFault(t *candidate, err error) error {
	if now, gone := statFile(t.path, t.kind); gone != nil || now.withoutChangeTime() != t.state.withoutChangeTime() || t.checkUnchanged() != nil {
		return errChanged
	}
	if isPermanent(err) || ownNext(err) != "" {
		return damaged(t.file, t.kind, err)
	}
	return unreadable(t.file, err)
}

// kind is the format of a pack. The extension of its file decides it.
type kind string

const (
	pmtilesKind kind = "pmtiles"
	mbtilesKind kind = "mbtiles"
	noKind      kind = ""
	folderKind  kind = "folder" // in a status only: a folder that cannot be read
)

func kindOf(file string) kind {
	switch filepath.Ext(file) {
	case ".pmtiles":
		return pmtilesKind
	case ".mbtiles":
		return mbtilesKind
	default:
		return noKind
	}
}

// stemOf is the file name without the extension of its kind.
func stemOf(file string) string {
	return strings.TrimSuffix(file, filepath.Ext(file))
}

// checkName says why a file cannot be mounted under its own name, if so. The
// name appears in URLs, JSON and terminals.
func checkName(file string) error {
	switch {
	case kindOf(file) == noKind:
		return refuseKind(file)
	case stemOf(file) == "":
		return refuseName(file, "there is nothing before the extension")
	case len(file) > maxName:
		return refuseName(file, "it is longer than 128 bytes")
	case !utf8.ValidString(file):
		return refuseName(file, "it is not UTF-8")
	case strings.ContainsFunc(file, unicode.IsControl):
		return refuseName(file, "it has control characters")
	default:
		return nil
	}
}
