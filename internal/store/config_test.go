package store_test

import (
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/store"
)

type whole struct {
	Store store.Config `toml:"store" doc:"Objects."`
}

func load(environ ...string) (store.Config, error) {
	loaded, err := config.Load(whole{store.DefaultConfig()}, config.Sources{Environ: environ})
	if err != nil {
		return store.Config{}, err
	}
	return loaded.Value.Store, nil
}

func TestTheDefaults(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	want := store.RAMSpec{Service: "store", Budget: 256 << 20, MaxObject: 256 << 20, Zero: true}
	if got := c.RAMSpec(true); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s := store.NewRAM(flow.NewInventory(), c.RAMSpec(true))
	defer s.Close()
	scrubber := c.Scrubber(s)
	if scrubber.Store != s || scrubber.Interval != 10*time.Minute || scrubber.BytesPerSecond != 8<<20 {
		t.Errorf("%+v", scrubber)
	}
}

func TestSettings(t *testing.T) {
	c, err := load("MICRO_STORE__RAM_BYTES=1GiB", "MICRO_STORE__MAX_OBJECT_BYTES=5MiB", "MICRO_STORE__SCRUB_BYTES_PER_SECOND=0", "MICRO_STORE__SCRUB_INTERVAL=0s")
	if err != nil {
		t.Fatal(err)
	}
	if spec := c.RAMSpec(false); spec.Budget != 1<<30 || spec.MaxObject != 5<<20 || spec.Zero {
		t.Errorf("%+v", spec)
	}
}

func TestSettingsThatCannotBeMeant(t *testing.T) {
	for setting, want := range map[string]string{
		"MAX_OBJECT_BYTES=0":      "no object may have any bytes",
		"MAX_OBJECT_BYTES=512MiB": "512MiB does not fit into a store of 256MiB",
		"SCRUB_INTERVAL=0s":       "no pause",
		"RAM_BYTES=-1":            "ram_bytes",
	} {
		if _, err := load("MICRO_STORE__" + setting); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
	}
}
