package store

import (
	"micronode/b3"
	"micronode/internal/ingress"
)

// openWarm lends an object in RAM without copying.
func (r *RAM) openWarm(a b3.Address) (warmObject, bool) {
	o := r.acquire(a)
	if o == nil {
		return warmObject{}, false
	}
	if o.size > ingress.WarmMaxBody {
		r.release(o)
		return warmObject{}, false
	}
	return warmObject{TemplateValues: ingress.TemplateValues{Done: &ramHandle{ram: r, object: o}}, body: o.blocks}, true
}

// openWarm lends an object on disk: a small one in a buffer, because all of it
// must be read to verify it, and a larger one as a part of its file, if it was
// verified before. All failures are left to the handler, which meets them again
// and can report them.
func (d *Disk) openWarm(a b3.Address) (warmObject, bool) {
	o, path, file := d.acquire(a)
	if o == nil {
		return warmObject{}, false
	}
	if file == nil && o.size <= ingress.WarmMaxBody {
		if f, err := d.layout.open(path); err == nil {
			file = d.attachFile(o, f)
		}
	}
	if file == nil {
		d.release(o)
		return warmObject{}, false
	}
	h := &diskHandle{disk: d, object: o, file: file}
	if isSmall(o.size) {
		return h.warmBytes()
	}
	return h.warmFile()
}

// warmFile lends the object as a part of its file.
func (h *diskHandle) warmFile() (warmObject, bool) {
	size := h.object.size
	if size > ingress.WarmMaxBody || h.file.verify(0, size) != nil {
		_ = h.Close() // documented to be nil
		return warmObject{}, false
	}
	return warmObject{TemplateValues: ingress.TemplateValues{File: h.file.File, Length: size, Done: h}}, true
}

// warmBytes lends a copy of the object, and closes the handle.
func (h *diskHandle) warmBytes() (warmObject, bool) {
	defer h.Close()
	buffer := ioBuffers.Get().(*ioBuffer)
	buffer.body[0] = buffer.data[:h.object.size]
	if h.read(buffer.body[0], 0) != nil {
		_ = buffer.Close() // documented to be nil
		return warmObject{}, false
	}
	return warmObject{TemplateValues: ingress.TemplateValues{Done: buffer}, body: buffer.body[:], cacheable: h.disk.classOf(h.object) != Cached}, true
}
