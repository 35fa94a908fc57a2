package search

import (
	"bytes"
	"context"
	"io"
	"unicode/utf8"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/store"
)

// maxText is the maximum size of an object whose text is indexed.
const maxText = 1 << 20

// namePrefix distinguishes the IDs of names from those of objects.
const namePrefix = "name:"

// manifestHead is the common start of every manifest.
var manifestHead = func() []byte {
	empty, _ := client.Manifest{}.Encode() // an empty manifest cannot fail
	return empty[:bytes.IndexByte(empty, '[')+1]
}()

// extract passes the documents of an object to take, the object's own last:
// once that is indexed, the others are. It stops at the first error of take.
func extract(ctx context.Context, from store.Store, address b3.Address, take func(Document) error) error {
	handle, err := from.Open(ctx, address)
	if err != nil {
		return err
	}
	defer handle.Close()
	own := Document{ID: address.String(), Address: address}
	raw, err := readIndexable(ctx, handle)
	if err != nil {
		return err
	}
	switch manifest, err := client.DecodeManifest(raw); {
	case err == nil:
		for _, one := range manifest.Entries {
			if err := take(Document{ID: own.ID + "/" + one.Path, Of: own.ID, Address: one.B3, Field: InPath, Value: one.Path}); err != nil {
				return err
			}
		}
	case len(raw) <= maxText && isText(raw):
		own.Field, own.Value = InText, string(raw)
	}
	return take(own)
}

// readIndexable reads an object that may be a manifest or a text; of any other,
// it returns nothing.
func readIndexable(ctx context.Context, handle store.Handle) ([]byte, error) {
	size := handle.Size()
	if size > client.MaxManifest {
		return nil, nil
	}
	if size > maxText {
		head := make([]byte, len(manifestHead))
		if _, err := handle.ReadAt(head, 0); err != nil {
			return nil, err
		}
		if !bytes.Equal(head, manifestHead) {
			return nil, nil
		}
	}
	raw := make([]byte, size)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := handle.ReadAt(raw, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return raw, nil
}

// isText reports whether bytes are readable text: UTF-8, with at most one
// percent of control characters.
func isText(raw []byte) bool {
	if len(raw) == 0 || bytes.IndexByte(raw, 0) >= 0 || !utf8.Valid(raw) {
		return false
	}
	odd := 0
	for _, c := range raw {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != '\f' || c == 0x7f {
			odd++
		}
	}
	return odd*100 <= len(raw)
}

// isGone reports whether an error says that there is no such object. A damaged
// object counts as gone, too.
func isGone(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.IntegrityFail:
		return true
	}
	return false
}
