package store

import (
	"errors"
	"time"

	"micronode/internal/config"
)

// Config is the section [store] of the configuration.
type Config struct {
	RAMBytes config.Size `toml:"ram_bytes" restart:"true" doc:"How much memory objects may take. With zero, the store refuses all."`

	MaxObjectBytes config.Auto[config.Size] `toml:"max_object_bytes" restart:"true" doc:"How large one object may be. In RAM, auto is as large as ram_bytes."`

	ScrubInterval config.Duration `toml:"scrub_interval" restart:"true" doc:"The pause between two rounds in which all objects are verified again."`

	ScrubBytesPerSecond config.Size `toml:"scrub_bytes_per_second" restart:"true" doc:"How fast objects are verified again. With zero, they are not."`
}

// DefaultConfig is what holds where nobody says otherwise. At this rate, a full
// store of the default size is gone through in half a minute, at less than a
// hundredth of a core.
func DefaultConfig() Config {
	return Config{
		RAMBytes:            256 * config.MiB,
		MaxObjectBytes:      config.Auto[config.Size]{Auto: true},
		ScrubInterval:       10 * time.Minute,
		ScrubBytesPerSecond: 8 * config.MiB,
	}
}

// Validate refuses what cannot be meant.
func (c *Config) Validate() error {
	var problems []error
	if !c.MaxObjectBytes.Auto && c.MaxObjectBytes.Value == 0 {
		problems = append(problems, config.Wrong("max_object_bytes", `Write a size, or "auto".`, "no object may have any bytes"))
	}
	if !c.MaxObjectBytes.Auto && c.MaxObjectBytes.Value > c.RAMBytes {
		problems = append(problems, config.Wrong("max_object_bytes", `Raise ram_bytes, lower this, or write "auto".`,
			"an object of %s does not fit into a store of %s", c.MaxObjectBytes.Value, c.RAMBytes))
	}
	if c.ScrubBytesPerSecond > 0 && c.ScrubInterval <= 0 {
		problems = append(problems, config.Wrong("scrub_interval", "Write a pause such as \"10m\", or set scrub_bytes_per_second to 0 to verify nothing.",
			"there is no pause between two rounds"))
	}
	return errors.Join(problems...)
}

// RAMSpec is the RAM store that the section asks for. Whether memory is zeroed
// is not a setting of the store but follows from amnesia.
func (c *Config) RAMSpec(zero bool) RAMSpec {
	return RAMSpec{
		Service:   "store",
		Budget:    int64(c.RAMBytes),
		MaxObject: int64(c.MaxObjectBytes.Or(c.RAMBytes)),
		Zero:      zero,
	}
}

// Scrubber is the one that the section asks for.
func (c *Config) Scrubber(s Checked) *Scrubber {
	return &Scrubber{Store: s, Interval: c.ScrubInterval, BytesPerSecond: int64(c.ScrubBytesPerSecond)}
}
