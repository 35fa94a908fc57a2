package index

import (
	"context"
	"encoding/json"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/logbook"
)

// What was done once is done once over a restart, too. With a book, the key and
// the answer are on disk before anybody hears the answer. What the disk does not
// take is answered all the same, because it was done; it is written later.

const (
	longestDeed = 4 << 10 // bytes of a record; a key has 255, and an answer is a line
	deedTime    = 5 * time.Second
)

// deedRecord is a deed as it is kept.
type deedRecord struct {
	Key    string          `json:"key"`
	Asked  b3.Address      `json:"asked"`
	Begun  time.Time       `json:"begun"`
	Answer json.RawMessage `json:"answer"`
}

func (d *deed) record() []byte {
	answer, _ := json.Marshal(d.answer)                                          // a plain struct of ours
	raw, _ := json.Marshal(deedRecord{d.key, d.asked, d.begun.Round(0), answer}) // likewise
	return raw
}

// openOnce reads what was kept at a path, or begins anew in memory. If the file
// cannot be read, the error says so, and nothing is kept on disk.
func openOnce(path string) (*once, error) {
	o := newOnce()
	if path == "" {
		return o, nil
	}
	book, err := logbook.Open(path, logbook.Options{MaxRecord: longestDeed, Apply: o.recall})
	if err != nil {
		return newOnce(), &fault.Error{Op: opOnce, Kind: fault.KindOf(err), Err: err, Detail: "which requests were carried out cannot be read",
			Next: "Remove " + path + " while the node is stopped: a request that is repeated is then carried out again."}
	}
	o.book = book
	return o, nil
}

// recall takes a deed from the book. What is a day old is passed over, and so is
// what there would be no room for. Nobody else is there yet.
func (o *once) recall(raw []byte) error {
	var r deedRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return fault.WrapKind(opOnce, fault.IntegrityFail, err)
	}
	now := time.Now()
	if r.Begun.After(now) {
		r.Begun = now // the clock was wrong then, or is now
	}
	if now.Sub(r.Begun) >= onceLife || o.deeds[r.Key] != nil || len(o.order) >= mostDeeds {
		return nil
	}
	d := &deed{key: r.Key, asked: r.Asked, begun: r.Begun, done: make(chan struct{}), answer: r.Answer, kept: true}
	close(d.done)
	o.deeds[d.key] = d
	o.order = append(o.order, d)
	return nil
}

// keep writes down what was done. It was, whether or not anybody still waits. It
// is noted as kept when the disk has it, in the order of the file, so that a
// rewrite of the book cannot miss it.
func (o *once) keep(ctx context.Context, d *deed) error {
	if o.book == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deedTime)
	defer cancel()
	err := o.book.Commit(ctx, func(err error) {
		if err == nil {
			o.note(d)
		}
	}, d.record())
	if err != nil {
		o.note(d)
		o.behind.Store(true) // only now: a rewrite before it would not have had it
	}
	return fault.Wrap(opOnce, err)
}

// note says that a deed belongs into the book.
func (o *once) note(d *deed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.kept = true
}

// tidy writes the book anew if need be, and reports whether that was so.
func (o *once) tidy(ctx context.Context) (needed bool, err error) {
	needed, err = o.diary.tidy(ctx, func(add func([]byte) error) error {
		for _, d := range o.list() {
			if err := add(d.record()); err != nil {
				return err
			}
		}
		return nil
	})
	return needed, fault.Wrap(opOnce, err)
}

// list is all that belongs into the book. What is in it does not change any more.
func (o *once) list() (all []*deed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(time.Now())
	for _, d := range o.order {
		if d.kept {
			all = append(all, d)
		}
	}
	return all
}
