package store

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Verify reads the file of an object again, with its outboard, group by group.
// It does not hold the object open, so as not to block evictions; if it is
// removed meanwhile, that is noticed before the next group.
func (d *Disk) Verify(ctx context.Context, a b3.Address, pace Pace) error {
	const op = "store.verify"
	o, file, err := d.openForVerify(ctx, op, a)
	if err != nil {
		return err
	}
	defer file.close()
	err = file.scrub(func(n int64) error {
		if pace != nil {
			if err := pace(ctx, n); err != nil {
				return fault.Wrap(op, err)
			}
		}
		if err := flow.Ended(ctx, op); err != nil {
			return err
		}
		if now, _ := d.find(a); now != o {
			return notFound(op, a)
		}
		return nil
	})
	if isCorrupt(err) {
		d.quarantineObject(o)
	}
	return diskReadFault(op, err)
}

// openForVerify opens the file of an object without a reference to the object.
func (d *Disk) openForVerify(ctx context.Context, op string, a b3.Address) (*object, *diskFile, error) {
	for {
		if err := d.checkOpen(ctx, op); err != nil {
			return nil, nil, err
		}
		o, path := d.find(a)
		if o == nil {
			return nil, nil, notFound(op, a)
		}
		f, err := d.layout.open(path)
		if err == nil {
			return o, &diskFile{File: f, address: a, size: o.size}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, diskFault(op, err)
		}
		if err := d.checkMissing(ctx, op, a); err != nil {
			return nil, nil, err
		}
	}
}

// scrub verifies every byte and every node of the tree. It calls proceed before
// each group.
func (f *diskFile) scrub(proceed func(n int64) error) error {
	buffer := ioBuffers.Get().(*ioBuffer)
	defer buffer.Close()
	if isSmall(f.size) {
		if err := proceed(f.size); err != nil {
			return err
		}
		return f.readSmall(buffer.data[:])
	}
	now, err := f.currentStamp()
	if err != nil {
		return err
	}
	p, err := f.newVerifiedGroups(now)
	if err != nil {
		return err
	}
	all, err := p.tree.Range(0, f.size)
	for off := int64(0); off < f.size && err == nil; off += b3.GroupSize {
		group := buffer.data[:min(b3.GroupSize, f.size-off)]
		if err = proceed(int64(len(group))); err == nil {
			_, err = io.ReadFull(all, group)
		}
	}
	return err
}
