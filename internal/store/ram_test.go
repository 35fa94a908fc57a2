package store_test

import (
	"testing"

	"micronode/internal/store"
	"micronode/internal/store/storetest"
)

func TestRAMIsAStore(t *testing.T) {
	for name, spec := range map[string]store.RAMSpec{
		"plain":                {Budget: 4 << 20},
		"zeroing, odd budget":  {Budget: 5_000_001, Zero: true},
		"with limited objects": {Budget: 4 << 20, MaxObject: 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(testing.TB) store.Store { return store.NewRAM(spec) })
		})
	}
}

func TestClassesHaveNames(t *testing.T) {
	if store.Pinned.String() != "pinned" || store.Cached.String() != "cached" {
		t.Errorf("%s, %s", store.Pinned, store.Cached)
	}
}
