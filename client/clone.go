package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"syscall"

	"micronode/b3"
	"micronode/fault"
)

// minClone is the smallest object that is worth a question for its file.
const minClone = 1 << 20

// ObjectFile is where a node of this machine has the bytes of an object: at the
// beginning of a file.
type ObjectFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// source is the file of a node that holds an object.
type source struct {
	*os.File
	size int64
}

// openStored opens the file that a node of this machine has of an object, or
// returns nil: if the node has none or does not say, or if this user may not read
// it. Nothing is believed of it: what is cloned is verified.
func (c *Client) openStored(ctx context.Context, address b3.Address) *source {
	if !c.local || !canClone {
		return nil
	}
	k := c.newCall(ctx, downloadOp, http.MethodGet, "/o/"+address.String()+"/file")
	var at ObjectFile
	if k.doJSON(ctx, nil, &at) != nil || at.Size < minClone {
		return nil
	}
	file, err := os.OpenFile(at.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() < at.Size {
		_ = file.Close() // nothing was written to it
		return nil
	}
	return &source{file, at.Size}
}

// clone makes an empty file one with the bytes of an object, which takes no space
// of its own, and verifies it. It reports false if the file system cannot do that,
// or if the bytes are wrong; then the file is empty, and the object has to be sent.
func (s *source) clone(ctx context.Context, into *os.File, address b3.Address, progress func(done, total int64)) (bool, error) {
	if cloneFile(into, s.File) != nil {
		return false, nil
	}
	err := into.Truncate(s.size) // what is behind the object is the node's
	if err == nil {
		_, err = into.Seek(0, io.SeekStart)
	}
	hasher := &cloneHasher{ctx: ctx, total: s.size, progress: progress}
	if err == nil {
		_, err = io.Copy(hasher, into)
	}
	if err == nil && hasher.Sum() == address {
		return true, nil
	}
	if err = errors.Join(err, into.Truncate(0)); err == nil {
		_, err = into.Seek(0, io.SeekStart)
	}
	return false, err
}

// cloneHasher hashes what was cloned.
type cloneHasher struct {
	b3.Hasher
	ctx      context.Context
	total    int64
	progress func(done, total int64) // may be nil
}

func (h *cloneHasher) Write(p []byte) (int, error) {
	if h.ctx.Err() != nil {
		return 0, fault.Wrap(downloadOp, h.ctx.Err())
	}
	n, err := h.Hasher.Write(p)
	if h.progress != nil {
		h.progress(h.N(), h.total)
	}
	return n, err
}
