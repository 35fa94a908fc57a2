package logbook

import (
	"context"
	"path/filepath"

	"micronode/fault"
	"micronode/internal/disk"
)

// Rewrite replaces everything in the book by the records that fill adds. They
// are written to a new file, which takes the place of the old one when the disk
// has all of it: after a crash there is the one or the other. Nothing is
// committed meanwhile; fill must not commit. On an error the book is what it
// was.
func (b *Book) Rewrite(ctx context.Context, fill func(add func(record []byte) error) error) error {
	const op = "logbook.rewrite"
	if err := b.turn.take(ctx, op); err != nil {
		return err
	}
	defer b.turn.give()
	b.writeWaiting() // nobody who came before waits for all of this
	b.mu.Lock()
	refused := b.refused
	b.mu.Unlock()
	if refused != nil {
		return fault.Wrap(op, refused)
	}
	d, err := b.newDraft()
	if err != nil {
		return failed(op, err)
	}
	if err := fill(d.add); err != nil {
		return failed(op, d.drop(err))
	}
	if err := d.finish(); err != nil {
		return failed(op, d.drop(err))
	}
	return failed(op, b.replace(d))
}

// draft is a book that is being written, under another name.
type draft struct {
	book   *Book
	file   disk.File
	salt   uint64
	end    int64 // behind what is in the file
	buffer []byte
}

func (b *Book) newDraft() (*draft, error) {
	file, err := b.fs.Open(b.draft(), disk.Anew)
	if err != nil {
		return nil, err
	}
	d := &draft{book: b, file: file, salt: newSalt()}
	d.buffer = appendBookHeader(nil, d.salt)
	return d, nil
}

// add adds a record. The draft is all one batch.
func (d *draft) add(record []byte) error {
	if len(record) == 0 || len(record) > d.book.most {
		return fault.New("logbook.rewrite", fault.BodyTooLarge, "a record has %d bytes; one has from 1 to %d", len(record), d.book.most)
	}
	d.buffer = appendFrame(d.buffer, d.salt, bookHeader, record)
	if len(d.buffer) < readBuffer {
		return nil
	}
	return d.flush()
}

func (d *draft) flush() error {
	_, err := d.file.WriteAt(d.buffer, d.end)
	d.end += int64(len(d.buffer))
	d.buffer = d.buffer[:0]
	return err
}

// finish makes sure that the disk has everything. Behind it comes an empty
// frame that is a batch of its own: it says that what is before it is not a
// torn end.
func (d *draft) finish() error {
	if err := d.flush(); err != nil {
		return err
	}
	d.buffer = appendFrame(d.buffer, d.salt, d.end, nil)
	if err := d.flush(); err != nil {
		return err
	}
	return d.file.Sync()
}

// drop gives a draft up.
func (d *draft) drop(why error) error {
	_ = d.file.Close()
	_ = d.book.fs.Remove(d.book.draft()) // or else the next one who opens the book does it
	return why
}

// replace puts a draft in the place of the book's file.
func (b *Book) replace(d *draft) error {
	old := b.file
	if err := b.adopt(d); err != nil {
		return err
	}
	_ = old.Close() // nothing in it is needed any more
	return nil
}

// adopt gives a finished draft the name of the book. When the name may or may
// not last, nothing is written to either file any more.
func (b *Book) adopt(d *draft) error {
	if err := b.fs.Rename(b.draft(), b.path); err != nil {
		return d.drop(err)
	}
	if err := b.fs.SyncFolder(filepath.Dir(b.path)); err != nil {
		_ = d.file.Close()
		return b.broken("logbook.rewrite", err)
	}
	b.file, b.salt, b.end, b.room = d.file, d.salt, d.end, d.end
	b.size.Store(b.end)
	b.live.Store(b.end)
	return nil
}
