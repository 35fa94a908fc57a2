package storetest

import (
	"bytes"
	"slices"

	"micronode/b3"
	"micronode/internal/store"
)

var listChecks = []Check{
	{Name: "a list is complete and in order", rule: listAll},
	{Name: "a walk can be left", rule: listLeave},
	{Name: "pages are bounded", rule: listBounded},
}

func byAddress(x, y store.Info) int { return bytes.Compare(x.Address[:], y.Address[:]) }

// putMany puts n small objects and describes them in the order of a list.
func (s *subject) putMany(n int) []store.Info {
	s.Helper()
	var infos []store.Info
	for i := range n {
		data, class := content(uint64(i), 8+i%40), store.Class(i%2)
		s.put(data, class)
		infos = append(infos, store.Info{Address: b3.Of(data), Size: int64(len(data)), Class: class})
	}
	slices.SortFunc(infos, byAddress)
	return infos
}

func listAll(c *subject) {
	if page, err := c.s.List(c.ctx, b3.Address{}, 10); err != nil || len(page) != 0 {
		c.Fatalf("list of an empty store: %v, %v", page, err)
	}
	want := c.putMany(600)
	for _, limit := range []int{1, 7, 599, 600, 601} {
		if got := c.pages(limit, len(want)); !slices.Equal(got, want) {
			c.Fatalf("in pages of %d, %d objects were listed, not those %d that are there, or in another order", limit, len(got), len(want))
		}
	}
	var walked []store.Info
	for info, err := range store.Walk(c.ctx, c.s) {
		if err != nil {
			c.Fatalf("walk: %v", err)
		}
		walked = append(walked, info)
	}
	if !slices.Equal(walked, want) {
		c.Fatalf("walked over %d objects of %d, or in another order", len(walked), len(want))
	}
}

// pages lists everything, in no more pages than it can take.
func (s *subject) pages(limit, most int) (all []store.Info) {
	s.Helper()
	var after b3.Address
	for range most + 1 {
		page, err := s.s.List(s.ctx, after, limit)
		if err != nil || len(page) > limit {
			s.Fatalf("list of at most %d: %d, %v", limit, len(page), err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].Address
	}
	s.Fatalf("after %d pages of %d there is still no end to %d objects", most+1, limit, most)
	return nil
}

func listLeave(c *subject) {
	c.putMany(20)
	seen := 0
	for range store.Walk(c.ctx, c.s) {
		if seen++; seen == 5 {
			break
		}
	}
	if seen != 5 {
		c.Errorf("%d objects were seen before the walk was left, want 5", seen)
	}
}

func listBounded(c *subject) {
	c.putMany(store.MaxPage + 50)
	for limit, want := range map[int]int{-1: 1, 0: 1, 1: 1, store.MaxPage: store.MaxPage, store.MaxPage + 1: store.MaxPage, 1 << 40: store.MaxPage} {
		if page, err := c.s.List(c.ctx, b3.Address{}, limit); err != nil || len(page) != want {
			c.Errorf("list of at most %d: %d objects, %v; want %d", limit, len(page), err, want)
		}
	}
}
