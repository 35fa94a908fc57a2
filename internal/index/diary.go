package index

import (
	"context"
	"sync/atomic"

	"micronode/internal/logbook"
)

// mostWaste is how many bytes may be written to a diary before it is written
// anew.
const mostWaste = 4 << 20

// diary is a book whose owner goes on when the disk refuses: what it lacks then
// is made up for the next time that all of it is written anew. The owner has its
// own copy of everything in memory.
type diary struct {
	book   *logbook.Book // set at construction; nil in amnesia
	behind atomic.Bool   // it lacks something that its owner has in memory
}

// tidy writes the diary anew if most of it is of no use any more, or if it lacks
// something, and reports whether that was so.
func (d *diary) tidy(ctx context.Context, all func(add func([]byte) error) error) (needed bool, err error) {
	if d.book == nil || !d.behind.Swap(false) && d.book.Garbage() <= mostWaste {
		return false, nil
	}
	if err = d.book.Rewrite(ctx, all); err != nil {
		d.behind.Store(true)
	}
	return true, err
}

func (d *diary) close() error {
	if d.book == nil {
		return nil
	}
	return d.book.Close()
}
