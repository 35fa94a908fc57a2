package etcd

import (
	"testing"

	"micronode/internal/registry/journal"
	"micronode/internal/registry/tampertest"
)

// TestTampering changes logs in etcd in every way that is possible with write
// access to the prefix.
func TestTampering(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller at a time, through a whole suite: make race")
	}
	tampertest.Run(t, func(t *testing.T) tampertest.Storage {
		f := newFake()
		return tampertest.Storage{Journal: f.open(t), Reopen: func() journal.Journal { return f.open(t) }}
	})
}
