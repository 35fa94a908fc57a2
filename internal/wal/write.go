package wal

import (
	"micronode/fault"
	"micronode/internal/disk"
)

// flush writes everything that is pending, with one sync, and finishes the
// entries. The caller holds writeLock.
func (l *Log) flush() {
	l.mu.Lock()
	batch, refused := l.pending, l.failure
	l.pending, l.pendingBytes = nil, 0
	l.mu.Unlock()
	err := refused
	if err == nil {
		err = l.write(batch)
	}
	for _, e := range batch {
		e.finish(err)
	}
}

// write writes a batch. If there is no room for it, nothing has changed; if the
// disk fails, its content is unknown, and nothing is written from then on.
func (l *Log) write(batch []*pendingAppend) error {
	const op = "wal.append"
	l.encode(batch)
	if len(l.buffer) == 0 {
		return nil
	}
	if err := l.file.Reserve(l.end + int64(len(l.buffer))); disk.IsFull(err) {
		return diskError(op, err)
	} else if err != nil {
		return l.failWrite(op, err)
	}
	if err := l.file.WriteBatch(l.buffer, l.end); err != nil {
		return l.failWrite(op, err)
	}
	l.end += int64(len(l.buffer))
	l.size.Store(l.end)
	return nil
}

// failWrite refuses everything after a write or a sync that failed. The content
// of the disk is unknown, and a second sync would not help: after a failed one,
// the system may have dropped the pages.
func (l *Log) failWrite(op string, err error) error {
	reason := diskError(op, err)
	if own := reason.(*fault.Error); own.Next == "" || own.Kind == fault.StoreFull {
		own.Detail, own.Next = "writing the log failed", "Check the disk of the --persist folder, then restart the node. No acknowledged data is lost."
	}
	_ = l.fail(reason) // it is the first: otherwise nothing would have been written
	return reason
}

// encode encodes a batch into the buffer.
func (l *Log) encode(batch []*pendingAppend) {
	size := 0
	for _, e := range batch {
		size += e.bytes
	}
	if cap(l.buffer) < size || cap(l.buffer) > 4*size+(1<<20) { // do not keep the memory of a large batch for ever
		l.buffer = make([]byte, 0, size)
	}
	l.buffer = l.buffer[:0]
	for _, e := range batch {
		for _, r := range e.records {
			if e.onDone != nil {
				e.positions = append(e.positions, l.file.position(l.end+int64(len(l.buffer)), len(r)))
			}
			l.buffer = l.file.AppendFrame(l.buffer, 0, uint64(l.end), r)
		}
	}
}
