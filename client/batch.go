package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"

	"micronode/b3"
	"micronode/fault"
)

// The bounds of many objects in one exchange.
const (
	MaxBatchObjects = 1024     // objects
	MaxBatchObject  = 1 << 20  // bytes of one of them
	MaxBatch        = 16 << 20 // bytes of all of them, with their addresses and sizes
)

// MissingRequest asks which of some objects a node does not have. Those that it
// has are pinned, or named with the class named.
type MissingRequest struct {
	Objects []b3.Address `json:"objects"`
	Class   string       `json:"class,omitempty"` // pinned, which is the default, or named
}

// MissingResponse is what the node does not have.
type MissingResponse struct {
	Missing []b3.Address `json:"missing"`
}

// BatchResponse is what a node says about the objects of a batch, in their
// order.
type BatchResponse struct {
	Objects []Object `json:"objects"`
}

// Missing returns which of some objects, at most MaxBatchObjects, the node does
// not have. Those that it has are pinned, as Put would do.
func (c *Client) Missing(ctx context.Context, objects []b3.Address) ([]b3.Address, error) {
	return c.missing(ctx, objects, false)
}

// missing is Missing. With named, what the node has is kept for a name only.
func (c *Client) missing(ctx context.Context, objects []b3.Address, named bool) ([]b3.Address, error) {
	k := c.newCall(ctx, "client.missing", http.MethodPost, "/o/missing")
	k.repeatable = true // it changes nothing that a second call would not
	var answer MissingResponse
	request := MissingRequest{Objects: objects}
	if named {
		request.Class = classNamed
	}
	err := k.doJSON(ctx, request, &answer)
	return answer.Missing, err
}

// batch is objects that are sent together.
type batch struct {
	raw     []byte // each with its address and its size in front
	objects []Object
}

// add adds an object.
func (b *batch) add(data []byte, address b3.Address) {
	b.raw = append(b.raw, address[:]...)
	b.raw = binary.LittleEndian.AppendUint64(b.raw, uint64(len(data)))
	b.raw = append(b.raw, data...)
	b.objects = append(b.objects, Object{Address: address, Size: int64(len(data))})
}

// putBatch stores many small objects, and returns how many of them are new. It
// is retried like Put.
func (c *Client) putBatch(ctx context.Context, b *batch, named bool) (created int, err error) {
	path := "/o/batch"
	if named {
		path += "?class=" + classNamed
	}
	k := c.newCall(ctx, "client.putbatch", http.MethodPost, path)
	k.repeatable = true // an object has one address, however often it is put
	var answer BatchResponse
	err = k.retry(ctx, func() error {
		header := http.Header{"Content-Type": {"application/octet-stream"}, "Expect": {"100-continue"}}
		_, raw, err := k.doOnce(ctx, header, newUploadBody(upload{src: bytes.NewReader(b.raw), size: int64(len(b.raw))}))
		if err != nil {
			return err
		}
		answer = BatchResponse{}
		return k.decode(raw, &answer)
	})
	if err != nil {
		return 0, err
	}
	if len(answer.Objects) != len(b.objects) {
		return 0, k.unexpected(nil, "it is about %d objects, but %d were sent", len(answer.Objects), len(b.objects))
	}
	for i, sent := range b.objects {
		got := answer.Objects[i]
		if got.Address != sent.Address || got.Size != sent.Size {
			return 0, fault.New(k.op, fault.IntegrityFail, "%s has %d bytes as %s, but was sent %d bytes of %s", c.nodeLabel, got.Size, got.Address, sent.Size, sent.Address).
				Advise("Put it again. If it happens again, a proxy between here and the node changes bytes.").Because(&callCause{corr: k.corrID, cause: &b3.Mismatch{Want: sent.Address, Got: got.Address}})
		}
		if got.Created {
			created++
		}
	}
	return created, nil
}

// openFiles opens a part of the files of a folder, as they follow each other in
// its manifest; with fetch the node fetches those that it does not have. They are
// not verified. A broken transfer is resumed.
func (c *Client) openFiles(ctx context.Context, manifest b3.Address, fetch bool, from, length int64) (io.ReadCloser, error) {
	path := "/o/" + manifest.String() + "/files"
	if fetch {
		path = "/fetch/" + manifest.String() + "/files"
	}
	src := &objectSource{call: c.newCall(ctx, getFolderOp, http.MethodGet, path), ctx: ctx, at: from, end: from + length, size: -1}
	if err := src.connect(); err != nil {
		return nil, err
	}
	return &Reader{src: src, in: src, from: from, address: manifest}, nil
}
