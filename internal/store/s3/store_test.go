package s3

import (
	"testing"
	"testing/synctest"

	"micronode/internal/store"
	"micronode/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller at a time, through a whole suite: make race")
	}
	for _, check := range storetest.Checks() {
		t.Run(check.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check.Against(t, func(tb testing.TB) store.Store {
					f := newFake()
					s := &subject{T: t, fake: f, listener: f.run(tb)}
					return s.open(s.listener.spec())
				})
			})
		})
	}
}
