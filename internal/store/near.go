package store

import (
	"micronode/b3"
	"micronode/internal/ingress"
)

// warm lends an object in RAM as it lies there.
func (r *RAM) warm(a b3.Address) (loan, bool) {
	o := r.hold(a)
	if o == nil {
		return loan{}, false
	}
	if o.size > ingress.WarmMost {
		r.release(o)
		return loan{}, false
	}
	return loan{Particular: ingress.Particular{Done: &handle{ram: r, object: o}}, body: o.blocks}, true
}

// warm lends an object on disk: a small one in a buffer, because all of it must
// be read to verify it, and a larger one as a part of its file, which it is when
// it was verified once. Whatever does not go as it should is left to the handler,
// which comes upon it in its turn, and can say what it is.
func (d *Disk) warm(a b3.Address) (loan, bool) {
	o, path, file := d.hold(a)
	if o == nil {
		return loan{}, false
	}
	if file == nil && o.size <= ingress.WarmMost {
		if f, err := d.tree.open(path); err == nil {
			file = d.attach(o, f)
		}
	}
	if file == nil {
		d.release(o)
		return loan{}, false
	}
	h := &diskHandle{disk: d, object: o, file: file}
	if isSmall(o.size) {
		return h.asBytes()
	}
	return h.asFile()
}

// asFile lends the object as a part of its file.
func (h *diskHandle) asFile() (loan, bool) {
	size := h.object.size
	if size > ingress.WarmMost || h.file.verify(0, size) != nil {
		_ = h.Close() // documented to be nil
		return loan{}, false
	}
	return loan{Particular: ingress.Particular{File: h.file.File, Length: size, Done: h}}, true
}

// asBytes lends a copy of the object, and closes the handle.
func (h *diskHandle) asBytes() (loan, bool) {
	defer h.Close()
	buffer := pieces.Get().(*piece)
	buffer.body[0] = buffer.room[:h.object.size]
	if h.read(buffer.body[0], 0) != nil {
		_ = buffer.Close() // documented to be nil
		return loan{}, false
	}
	return loan{Particular: ingress.Particular{Done: buffer}, body: buffer.body[:], keep: h.disk.isPinned(h.object)}, true
}
