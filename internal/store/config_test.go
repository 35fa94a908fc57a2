package store_test

import (
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/store"
)

type fileConfig struct {
	Store store.Config `toml:"store" doc:"Objects."`
}

func load(environ ...string) (store.Config, error) {
	loaded, err := config.Load(fileConfig{store.DefaultConfig()}, config.Sources{Environ: environ})
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
	want := store.RAMSpec{Budget: 256 << 20, Headroom: 32 << 20, MaxObject: 256 << 20, Zero: true}
	if got := c.RAMSpec(true); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s := store.NewRAM(c.RAMSpec(true))
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
		"MAX_OBJECT_BYTES=0":               "a maximum of 0 bytes refuses every object",
		"SCRUB_INTERVAL=0s":                "no pause",
		"RAM_BYTES=-1":                     "ram_bytes",
		"DISK_BYTES=much":                  "disk_bytes",
		"URL=file:///objects":              `unknown scheme "file"`,
		"URL=s3+https://example.com":       "not the URL of an endpoint and a bucket",
		"URL=s3+https://example.com/b?x=1": "not the URL of an endpoint and a bucket",
		"URL=s3+https://u:p@example.com/b": "there is a user in it",
		"URL=s3+http://example.com/b":      "is not this machine",
		"URL=s3+https://example.com/b":     "there are no keys",
		"URL=s3+http://[::1]:9000/b":       "there are no keys",
		"URL=%zz":                          "cannot be read",
	} {
		if _, err := load("MICRO_STORE__" + setting); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
	}
}

// Where objects are kept decides how large one may be.
func TestTheLargestObject(t *testing.T) {
	c, err := load("MICRO_STORE__MAX_OBJECT_BYTES=512MiB")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckRAM(); err == nil || !strings.Contains(err.Error(), "512MiB does not fit into a store of 256MiB") {
		t.Errorf("in memory: %v", err)
	}
	if spec := c.DiskSpec("/objects"); spec.MaxObject != 512<<20 || spec.Folder != "/objects" || spec.Budget != 0 || !spec.Sync {
		t.Errorf("on disk: %+v", spec)
	}
	c, err = load("MICRO_STORE__DISK_BYTES=10GiB")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckRAM(); err != nil {
		t.Errorf("in memory: %v", err)
	}
	if spec := c.DiskSpec("/objects"); spec.MaxObject != 1<<30 || spec.Budget != 10<<30 {
		t.Errorf("on disk: %+v", spec)
	}
	c.DiskBytes.Value = 0
	if spec := c.DiskSpec("/objects"); spec.Budget >= 0 {
		t.Error("a quota of zero has become none")
	}
}

func TestAnS3Store(t *testing.T) {
	c, err := load("MICRO_STORE__URL=s3+https://s3.example.com/bucket/prefix", "MICRO_STORE__ACCESS_KEY=me", "MICRO_STORE__SECRET_KEY=secret", "MICRO_STORE__REGION=eu")
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxObject() != 1<<30 || c.Region != "eu" || c.AccessKey.Reveal() != "me" || c.SecretKey.Reveal() != "secret" {
		t.Errorf("%+v", c)
	}
}
