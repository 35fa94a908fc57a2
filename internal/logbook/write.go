package logbook

import (
	"micronode/fault"
)

// writeWaiting writes everything that waits, with one sync, and tells who
// waits. The caller has the turn.
func (b *Book) writeWaiting() {
	b.mu.Lock()
	batch, refused := b.waiting, b.refused
	b.waiting, b.bytes = nil, 0
	b.mu.Unlock()
	err := refused
	if err == nil {
		err = b.write(batch)
	}
	for _, e := range batch {
		e.settle(err)
	}
}

// write writes a batch. If there is no room for it, nothing has changed; if the
// disk fails, nobody knows what it has, and nothing is written from then on.
func (b *Book) write(batch []*entry) error {
	const op = "logbook.append"
	b.encode(batch)
	if len(b.buffer) == 0 {
		return nil
	}
	if err := b.makeRoom(b.end + int64(len(b.buffer))); err != nil {
		return failed(op, err)
	}
	if _, err := b.file.WriteAt(b.buffer, b.end); err != nil {
		return b.broken(op, err)
	}
	if err := b.file.Sync(); err != nil {
		return b.broken(op, err)
	}
	b.end += int64(len(b.buffer))
	b.size.Store(b.end)
	return nil
}

// broken refuses everything after a write or a sync that failed. What the disk
// has is not known any more, and a second sync would not tell: after a failed
// one, the system may have dropped the pages.
func (b *Book) broken(op string, err error) error {
	reason := failed(op, err)
	if own := reason.(*fault.Error); own.Next == "" || own.Kind == fault.StoreFull {
		own.Detail, own.Next = "writing the log failed", "Look at the disk of the --persist folder, then restart the node: nothing that was acknowledged is lost."
	}
	_ = b.refuse(reason) // it is the first: otherwise nothing would have been written
	return reason
}

// encode makes the bytes of a batch.
func (b *Book) encode(batch []*entry) {
	size := 0
	for _, e := range batch {
		size += e.bytes
	}
	if cap(b.buffer) < size || cap(b.buffer) > 4*size+(1<<20) { // a large batch does not keep its memory for ever
		b.buffer = make([]byte, 0, size)
	}
	b.buffer = b.buffer[:0]
	for _, e := range batch {
		for _, r := range e.records {
			b.buffer = appendFrame(b.buffer, b.salt, b.end, r)
		}
	}
}

// Room is made in steps, each as large as the file was, between these. Writing
// over zeros syncs faster than letting a file grow, and a full disk is noticed
// before anything is written.
const (
	leastRoom = 64 << 10
	mostRoom  = 4 << 20
)

// zeros is what room is made of.
var zeros = make([]byte, leastRoom)

// makeRoom fills the file with zeros until it is at least so long, and waits
// until the disk has them.
func (b *Book) makeRoom(size int64) error {
	if size <= b.room {
		return nil
	}
	size = max(size, b.room+min(max(b.room, leastRoom), mostRoom))
	for at := b.room; at < size; at += int64(len(zeros)) {
		if _, err := b.file.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			_ = b.file.Truncate(b.room) // zeros do no harm; this gives others their room back
			return err
		}
	}
	if err := b.file.Sync(); err != nil {
		return b.broken("logbook.append", err)
	}
	b.room = size
	return nil
}
