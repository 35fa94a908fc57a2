package pack

import (
	"context"
	"encoding/hex"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// trial is a file on its way to become a version. If something is expected of
// its bytes, they are hashed first, a step at a time, so that a large file does
// not keep others waiting; what is not the right file is never parsed.
type trial struct {
	// set at construction
	path, file string
	kind       kind
	look       look
	want       b3.Address // zero if any bytes will do

	handle *os.File
	began  time.Time
	hasher *b3.Hasher
	buffer []byte
}

func newTrial(path, file string, of kind, seen look, spec Spec) *trial {
	return &trial{path: path, file: file, kind: of, look: seen, want: spec.Expect[file]}
}

// step does a bounded piece of work and tells whether the file is ready to be
// opened as an archive.
func (t *trial) step(ctx context.Context, limit time.Duration) (done bool, err error) {
	if err := flow.Ended(ctx, opMount); err != nil {
		return false, err
	}
	if t.handle == nil {
		if err := t.open(); err != nil {
			return false, err
		}
	}
	if t.want.IsZero() {
		return true, nil
	}
	if time.Since(t.began) > limit {
		return false, tooSlow(t.file, limit)
	}
	return t.hash()
}

// open opens the file and makes sure that it is the one that was seen. A pipe
// that was put in its place must not make us wait, hence non-blocking.
func (t *trial) open() error {
	handle, err := os.OpenFile(t.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return unreadable(t.file, err)
	}
	t.handle, t.began = handle, time.Now()
	return t.unmoved()
}

// unmoved makes sure that the file is still as it was seen.
func (t *trial) unmoved() error {
	now, err := identityOfOpen(int(t.handle.Fd()))
	if err != nil {
		return unreadable(t.file, err)
	}
	if now != t.look.identity {
		return errMoved
	}
	return nil
}

// hash reads on for a step, and judges at the end of the file.
func (t *trial) hash() (done bool, err error) {
	if t.hasher == nil {
		t.hasher, t.buffer = new(b3.Hasher), make([]byte, hashBuffer)
	}
	for range hashStep / hashBuffer {
		n, err := t.handle.ReadAt(t.buffer, t.hasher.N())
		_, _ = t.hasher.Write(t.buffer[:n]) // it never fails
		if err == io.EOF {
			return true, t.judge()
		}
		if err != nil {
			return false, unreadable(t.file, err)
		}
	}
	return false, nil
}

// judge compares what was read with what was expected.
func (t *trial) judge() error {
	got := t.hasher.Sum()
	t.hasher, t.buffer = nil, nil
	if err := t.unmoved(); err != nil {
		return err
	}
	if got != t.want {
		return other(t.file, t.want, got)
	}
	return nil
}

// close gives up what the trial holds.
func (t *trial) close() {
	if t.handle != nil {
		_ = t.handle.Close() // it was only read
		t.handle = nil
	}
}

// open makes a version of a file that stood its trial. In the end it looks at
// the file once more: if that has not changed, all that was read in between is
// of one content.
func (m *Mounts) open(ctx context.Context, t *trial) (*version, error) {
	v := &version{
		file: t.file, kind: t.kind, look: t.look, handle: t.handle, descriptor: int(t.handle.Fd()),
		nudge: m.ring, closed: func() { m.live.Add(-1) },
	}
	v.id = t.look.version()
	v.etag = `"` + v.id + `"`
	if v.verified = !t.want.IsZero(); v.verified {
		v.id = hex.EncodeToString(t.want[:])
		v.etag = `"` + t.want.String() + `"`
	}
	err := m.openArchive(v, t.path)
	if err != nil {
		return nil, refusedBy(t, err)
	}
	v.checked, err = m.check(ctx, v)
	if err == nil {
		err = t.unmoved()
	}
	if err != nil {
		v.archive.close()
		return nil, refusedBy(t, err)
	}
	v.ready()
	m.live.Add(1)
	return v, nil
}

// check runs the deep check for as long as it may take. One that did not get to
// the end found nothing wrong so far, and that is not a reason to refuse a
// large archive: every later read is checked by itself.
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

// refusedBy says why a file did not stand its trial. A file that was written to
// or replaced meanwhile may be whole the next time.
func refusedBy(t *trial, err error) error {
	if now, gone := lookAt(t.path, t.kind); gone != nil || now.content() != t.look.content() || t.unmoved() != nil {
		return errMoved
	}
	if lasting(err) || ownNext(err) != "" {
		return damaged(t.file, t.kind, err)
	}
	return unreadable(t.file, err)
}
