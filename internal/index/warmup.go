package index

import (
	"context"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
)

const (
	warmPause = 20 * time.Millisecond // between two, so that those who wait come first
	warmBusy  = time.Second           // after a refusal
)

// warmUp is the Serve of the warm-up: the keys of the configuration are looked
// up, one after the other, now and after each reload.
func (x *Index) warmUp(ctx context.Context) error {
	under, version := x.settings.Seen()
	for {
		for _, key := range under.Cache.WarmupKeys {
			if err := x.warm(ctx, under, key); err != nil {
				return nil // told to stop
			}
		}
		var err error
		if under, version, err = x.settings.Changed(ctx, version); err != nil {
			return nil // likewise
		}
	}
}

// warm resolves one key. Whether that worked only matters for when to go on.
func (x *Index) warm(ctx context.Context, under *settings, key string) error {
	id, err := record.ParseID(key)
	if err != nil {
		return nil // refused when the configuration was read
	}
	for {
		_, err := x.resolve(ctx, under, id, Options{})
		if fault.KindOf(err) != fault.Busy {
			return flow.Sleep(ctx, warmPause)
		}
		if err := flow.Sleep(ctx, warmBusy); err != nil {
			return err
		}
	}
}
