package store_test

import (
	"testing"

	"micronode/internal/store"
	"micronode/internal/store/storetest"
)

func openDisk(t testing.TB, spec store.DiskSpec) *store.Disk {
	t.Helper()
	if spec.Folder == "" {
		spec.Folder = t.TempDir()
	}
	d, err := store.OpenDisk(spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDiskIsAStore(t *testing.T) {
	for name, spec := range map[string]store.DiskSpec{
		"with an odd budget":   {Budget: 5_000_001},
		"without a budget":     {},
		"with limited objects": {Budget: 4 << 20, MaxObject: 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && spec.Budget != 5_000_001 {
				t.Skip("the same suite again: make race")
			}
			storetest.Run(t, func(t testing.TB) store.Store { return openDisk(t, spec) })
		})
	}
}

func TestDiskLasts(t *testing.T) {
	for name, spec := range map[string]store.DiskSpec{
		"with a budget":    {Budget: 4 << 20, Sync: true},
		"without a budget": {},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunDurable(t, func(t testing.TB) func() store.Store {
				spec.Folder = t.TempDir()
				return func() store.Store { return openDisk(t, spec) }
			})
		})
	}
}
