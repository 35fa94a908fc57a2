package store

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"micronode/internal/config"
)

// Config is the section [store] of the configuration.
type Config struct {
	RAMBytes config.Size `toml:"ram_bytes" restart:"true" doc:"The maximum memory of objects, for a store in memory. With zero, the store refuses all objects."`

	DiskBytes config.Auto[config.Size] `toml:"disk_bytes" restart:"true" doc:"The maximum disk space of objects, with --persist. With auto, all of the disk. With zero, the store refuses all objects."`

	URL string `toml:"url" restart:"true" doc:"The storage of objects: empty for memory, or for the disk with --persist; s3+https://ENDPOINT/BUCKET/PREFIX for an S3-compatible store, s3+http:// on this machine only."`

	Region    string        `toml:"region" restart:"true" doc:"The region of the S3 bucket, if the store needs one."`
	AccessKey config.Secret `toml:"access_key" restart:"true" doc:"The access key ID for the S3 store."`
	SecretKey config.Secret `toml:"secret_key" restart:"true" doc:"The secret access key. Set it in the environment as MICRO_STORE__SECRET_KEY rather than in a file."`

	CAFile       string          `toml:"ca_file" restart:"true" doc:"PEM file with the authorities that are trusted for the S3 store instead of the system's."`
	CreateBucket bool            `toml:"create_bucket" restart:"true" doc:"Create the S3 bucket if it does not exist."`
	Timeout      config.Duration `toml:"timeout" restart:"true" doc:"The deadline of one call to the S3 store, and of one read without progress."`

	MaxObjectBytes config.Auto[config.Size] `toml:"max_object_bytes" restart:"true" doc:"The maximum size of one object. With auto, 1GiB; in memory, ram_bytes."`

	ScrubInterval config.Duration `toml:"scrub_interval" restart:"true" doc:"The pause between two verifications of all objects."`

	ScrubBytesPerSecond config.Size `toml:"scrub_bytes_per_second" restart:"true" doc:"The speed at which objects are verified again. Zero disables it."`
}

// defaultMaxObject is the default maximum size of an object outside of memory.
const defaultMaxObject = config.GiB

// DefaultConfig returns the defaults. At this rate, a full store in memory of
// the default size is scrubbed in half a minute, at less than a hundredth of a
// core.
func DefaultConfig() Config {
	return Config{
		RAMBytes:            256 * config.MiB,
		DiskBytes:           config.Auto[config.Size]{Auto: true},
		MaxObjectBytes:      config.Auto[config.Size]{Auto: true},
		Timeout:             30 * time.Second,
		ScrubInterval:       10 * time.Minute,
		ScrubBytesPerSecond: 8 * config.MiB,
	}
}

// Validate rejects invalid settings, whatever the kind of store.
func (c *Config) Validate() error {
	var problems []error
	if !c.MaxObjectBytes.Auto && c.MaxObjectBytes.Value == 0 {
		problems = append(problems, config.Invalid("max_object_bytes", `Write a size, or "auto".`, "a maximum of 0 bytes refuses every object"))
	}
	if c.ScrubBytesPerSecond > 0 && c.ScrubInterval <= 0 {
		problems = append(problems, config.Invalid("scrub_interval", "Write a pause such as \"10m\", or set scrub_bytes_per_second to 0 to disable verification.",
			"there is no pause between two rounds"))
	}
	if c.Timeout <= 0 {
		problems = append(problems, config.Invalid("timeout", `Write a time such as "30s": every wait has a deadline.`, "%s is not above zero", c.Timeout))
	}
	if c.URL != "" {
		if err := c.checkURL(); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// CheckRAM rejects settings that are invalid for a store in memory.
func (c *Config) CheckRAM() error {
	if !c.MaxObjectBytes.Auto && c.MaxObjectBytes.Value > c.RAMBytes {
		return config.Invalid("max_object_bytes", `Raise ram_bytes, lower this, or write "auto".`,
			"an object of %s does not fit into a store of %s", c.MaxObjectBytes.Value, c.RAMBytes)
	}
	return nil
}

// defaultHeadroom is what a store keeps free for bytes that are not verified
// yet: an eighth, and not more than a few large objects need.
func defaultHeadroom(budget int64) int64 { return min(budget/8, maxHeadroom) }

const maxHeadroom = 64 << 20

// RAMSpec returns the spec of the RAM store of this section. Whether memory is
// zeroed is not a setting of the store but follows from amnesia mode.
func (c *Config) RAMSpec(zero bool) RAMSpec {
	return RAMSpec{
		Budget:    int64(c.RAMBytes),
		Headroom:  defaultHeadroom(int64(c.RAMBytes)),
		MaxObject: int64(c.MaxObjectBytes.Or(c.RAMBytes)),
		Zero:      zero,
	}
}

// DiskSpec returns the spec of the disk store of this section.
func (c *Config) DiskSpec(folder string) DiskSpec {
	spec := DiskSpec{Folder: folder, MaxObject: c.MaxObject(), Sync: true}
	switch {
	case c.DiskBytes.Auto:
	case c.DiskBytes.Value == 0:
		spec.Budget = -1 // zero means zero here, and no limit there
	default:
		spec.Budget = int64(c.DiskBytes.Value)
		spec.Headroom = defaultHeadroom(spec.Budget)
	}
	return spec
}

// MaxObject returns how large an object outside of memory may be.
func (c *Config) MaxObject() int64 { return int64(c.MaxObjectBytes.Or(defaultMaxObject)) }

// Scrubber returns the scrubber of this section.
func (c *Config) Scrubber(s ScrubTarget) *Scrubber {
	return &Scrubber{Store: s, Interval: c.ScrubInterval, BytesPerSecond: int64(c.ScrubBytesPerSecond)}
}

// checkURL checks the URL as far as possible without connecting. Without TLS,
// keys and objects could be read and changed in transit, so that must not leave
// the machine.
func (c *Config) checkURL() error {
	const good = "Write s3+https://ENDPOINT/BUCKET/PREFIX, or leave it empty to keep objects on this machine."
	u, err := url.Parse(c.URL)
	if err != nil {
		return config.Invalid("url", good, "it cannot be read") // it is not repeated: it may hold a password
	}
	switch {
	case u.User != nil:
		return config.Invalid("url", "Write the keys to access_key and secret_key.", "there is a user in it")
	case u.Scheme != "s3+https" && u.Scheme != "s3+http":
		return config.Invalid("url", good, "unknown scheme %q; use s3+https or s3+http", u.Scheme)
	case u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "":
		return config.Invalid("url", good, "it is not the URL of an endpoint and a bucket")
	case u.Scheme == "s3+http" && !config.IsLoopbackHost(u.Hostname()):
		return config.Invalid("url", "Write s3+https://.", "%s is not this machine, and a connection without TLS can be read and changed on the way", u.Host)
	case !c.AccessKey.IsSet() || !c.SecretKey.IsSet():
		return config.Invalid("url", "Set access_key and secret_key too.", "there are no keys for it")
	}
	return nil
}
