package s3

import (
	"context"

	"micronode/b3"
	"micronode/internal/store"
)

// List returns a page of objects. A page costs a call for the objects, one for
// the named/ keys and one for the pinned/ keys.
func (s *Store) List(ctx context.Context, after b3.Address, limit int) ([]store.Info, error) {
	const op = "store.list"
	ctx, cancel, err := s.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.list(ctx, op, after, max(1, min(limit, store.MaxPage)))
}

func (s *Store) list(ctx context.Context, op string, after b3.Address, limit int) ([]store.Info, error) {
	var page []store.Info
	err := s.walk(ctx, op, folderData, after, limit, func(a b3.Address, size int64) bool {
		page = append(page, store.Info{Address: a, Size: size, Class: store.Cached})
		return len(page) < limit
	})
	if err != nil || len(page) == 0 {
		return nil, hideUnauthorized(err)
	}
	for _, kept := range []struct {
		folder string
		class  store.Class
	}{{folderNamed, store.Named}, {folderPinned, store.Pinned}} { // what is both is pinned
		i := 0
		err = s.walk(ctx, op, kept.folder, after, limit, func(a b3.Address, _ int64) bool {
			for i < len(page) && string(page[i].Address[:]) < string(a[:]) {
				i++
			}
			if i < len(page) && page[i].Address == a {
				page[i].Class = kept.class
			}
			return i < len(page)
		})
		if err != nil {
			return nil, hideUnauthorized(err)
		}
	}
	return page, nil
}

// walk lists a folder in the order of addresses, until it ends or visit returns
// false. Keys that are not addresses are not ours, and skipped.
func (s *Store) walk(ctx context.Context, op, folder string, after b3.Address, batch int, visit func(a b3.Address, size int64) bool) error {
	from := s.bucket.keyOf(folder, after)
	for {
		found, err := s.bucket.list(ctx, op, s.bucket.location.prefix+folder, from, batch)
		if err != nil {
			return err
		}
		for _, it := range found {
			if a, ours := s.bucket.addressOf(folder, it.key); ours && !visit(a, it.size) {
				return nil
			}
		}
		if len(found) < batch {
			return nil
		}
		from = found[len(found)-1].key
	}
}
