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
	RAMBytes config.Size `toml:"ram_bytes" restart:"true" doc:"How much memory objects may take, where they are kept in memory. With zero, the store refuses all."`

	DiskBytes config.Auto[config.Size] `toml:"disk_bytes" restart:"true" doc:"How much of the disk objects may take, with --persist. With auto, as much as there is. With zero, the store refuses all."`

	URL string `toml:"url" restart:"true" doc:"Where objects are kept: empty for memory, or for the disk with --persist; s3+https://ENDPOINT/BUCKET/PREFIX for an S3-compatible store, s3+http:// on this machine only."`

	Region    string        `toml:"region" restart:"true" doc:"The region of the S3 bucket, where the store asks for one."`
	AccessKey config.Secret `toml:"access_key" restart:"true" doc:"Who we are to the S3 store."`
	SecretKey config.Secret `toml:"secret_key" restart:"true" doc:"What proves it. It is better in the environment, as MICRO_STORE__SECRET_KEY, than in a file."`

	CAFile       string          `toml:"ca_file" restart:"true" doc:"PEM file with the authorities that are trusted for the S3 store instead of the system's."`
	CreateBucket bool            `toml:"create_bucket" restart:"true" doc:"Make the S3 bucket if it is not there."`
	Timeout      config.Duration `toml:"timeout" restart:"true" doc:"How long one call to the S3 store may take, or one read may bring nothing."`

	MaxObjectBytes config.Auto[config.Size] `toml:"max_object_bytes" restart:"true" doc:"How large one object may be. With auto, 1GiB; in memory, as large as ram_bytes."`

	ScrubInterval config.Duration `toml:"scrub_interval" restart:"true" doc:"The pause between two rounds in which all objects are verified again."`

	ScrubBytesPerSecond config.Size `toml:"scrub_bytes_per_second" restart:"true" doc:"How fast objects are verified again. With zero, they are not."`
}

// autoObject is how large an object may be that is not kept in memory, where
// nobody says otherwise.
const autoObject = config.GiB

// DefaultConfig is what holds where nobody says otherwise. At this rate, a full
// store in memory of the default size is gone through in half a minute, at less
// than a hundredth of a core.
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

// Validate refuses what cannot be meant, wherever objects are kept.
func (c *Config) Validate() error {
	var problems []error
	if !c.MaxObjectBytes.Auto && c.MaxObjectBytes.Value == 0 {
		problems = append(problems, config.Wrong("max_object_bytes", `Write a size, or "auto".`, "no object may have any bytes"))
	}
	if c.ScrubBytesPerSecond > 0 && c.ScrubInterval <= 0 {
		problems = append(problems, config.Wrong("scrub_interval", "Write a pause such as \"10m\", or set scrub_bytes_per_second to 0 to verify nothing.",
			"there is no pause between two rounds"))
	}
	if c.Timeout <= 0 {
		problems = append(problems, config.Wrong("timeout", `Write a time such as "30s": every wait has a deadline.`, "%s would end every call at once", c.Timeout))
	}
	if c.URL != "" {
		if err := c.checkURL(); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// CheckRAM refuses what cannot be meant if objects are kept in memory.
func (c *Config) CheckRAM() error {
	if !c.MaxObjectBytes.Auto && c.MaxObjectBytes.Value > c.RAMBytes {
		return config.Wrong("max_object_bytes", `Raise ram_bytes, lower this, or write "auto".`,
			"an object of %s does not fit into a store of %s", c.MaxObjectBytes.Value, c.RAMBytes)
	}
	return nil
}

// RAMSpec is the RAM store that the section asks for. Whether memory is zeroed
// is not a setting of the store but follows from amnesia.
func (c *Config) RAMSpec(zero bool) RAMSpec {
	return RAMSpec{
		Service:   service,
		Budget:    int64(c.RAMBytes),
		MaxObject: int64(c.MaxObjectBytes.Or(c.RAMBytes)),
		Zero:      zero,
	}
}

// DiskSpec is the disk store that the section asks for.
func (c *Config) DiskSpec(folder string) DiskSpec {
	spec := DiskSpec{Service: service, Folder: folder, MaxObject: c.MaxObject(), Sync: true}
	switch {
	case c.DiskBytes.Auto:
	case c.DiskBytes.Value == 0:
		spec.Budget = -1 // zero means zero here, and no limit there
	default:
		spec.Budget = int64(c.DiskBytes.Value)
	}
	return spec
}

// MaxObject is how large an object may be that is not kept in memory.
func (c *Config) MaxObject() int64 { return int64(c.MaxObjectBytes.Or(autoObject)) }

// Scrubber is the one that the section asks for.
func (c *Config) Scrubber(s Checked) *Scrubber {
	return &Scrubber{Store: s, Interval: c.ScrubInterval, BytesPerSecond: int64(c.ScrubBytesPerSecond)}
}

// checkURL looks at the URL as far as one can without asking the store. Without
// TLS, keys and objects could be read and changed on the way, so that must not
// leave the machine.
func (c *Config) checkURL() error {
	const good = "Write s3+https://ENDPOINT/BUCKET/PREFIX, or leave it empty to keep objects on this machine."
	u, err := url.Parse(c.URL)
	if err != nil {
		return config.Wrong("url", good, "it cannot be read") // it is not repeated: it may hold a password
	}
	switch {
	case u.User != nil:
		return config.Wrong("url", "Write the keys to access_key and secret_key.", "there is a user in it")
	case u.Scheme != "s3+https" && u.Scheme != "s3+http":
		return config.Wrong("url", good, "%q is no kind of store that we know", u.Scheme)
	case u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "":
		return config.Wrong("url", good, "it does not name an endpoint and a bucket, and nothing else")
	case u.Scheme == "s3+http" && !config.OnThisMachine(u.Hostname()):
		return config.Wrong("url", "Write s3+https://.", "%s is not this machine, and without TLS anybody on the way could read and change what is sent", u.Host)
	case !c.AccessKey.IsSet() || !c.SecretKey.IsSet():
		return config.Wrong("url", "Set access_key and secret_key too.", "there are no keys for it")
	}
	return nil
}
