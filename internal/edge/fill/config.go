package fill

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"micronode/internal/breaker"
	"micronode/internal/config"
	"micronode/internal/edge/fill/freshness"
)

// Config is the section [edge.fill]: how origins are asked, and what is
// accepted from them. All of it takes effect at a reload.
type Config struct {
	Timeout  config.Duration `toml:"timeout" doc:"The maximum time of an attempt without progress: until the header of the answer arrives, then until the next bytes. A body must arrive with 1 KiB per second on average, and with as much again for each fetch that waits for its worker, up to 64 KiB per second."`
	MaxBytes config.Size     `toml:"max_bytes" doc:"The maximum size of a body from an origin."`

	Inflate      config.Size `toml:"inflate" doc:"The maximum size of a compressed body after decompression. It is cached as sent; the cap protects the clients that inflate it." seed:"ingress.decompress_abs_bytes"`
	InflateRatio int         `toml:"inflate_ratio" doc:"The maximum ratio between inflated and sent size, for a body that inflates to more than 1 MiB." seed:"ingress.decompress_max_ratio"`

	ForwardHeaders []string `toml:"forward_headers" doc:"Request headers that are forwarded to the origin. With [\"*\"] all end-to-end headers, Authorization and Cookie included; never ranges and conditions."`
	ForwardQuery   bool     `toml:"forward_query" doc:"Whether the query is forwarded, and is part of the cache key."`

	CAFile       string `toml:"ca_file" doc:"PEM file with authorities that are trusted besides those of the system. Read again at every reload."`
	AllowPrivate bool   `toml:"allow_private" doc:"Whether an allowed name may resolve to a loopback or private address. Link-local and cloud metadata addresses are never dialled."`

	Tries  int  `toml:"tries" doc:"The number of attempts if the origin times out or answers 503 or 504." seed:"retry.live_fill.max_retries"`
	BaseMS int  `toml:"base_ms" unit:"milliseconds" doc:"The pause before the second attempt. It doubles with each further one." seed:"retry.live_fill.base_ms"`
	MaxMS  int  `toml:"max_ms" unit:"milliseconds" doc:"The maximum pause between two attempts, without jitter." seed:"retry.live_fill.max_ms"`
	Jitter bool `toml:"jitter" doc:"Whether a random time of up to base_ms is added to each pause." seed:"retry.live_fill.jitter"`

	Heuristic    config.Duration `toml:"heuristic" doc:"The maximum heuristic freshness of an answer with a date but no lifetime. With zero, it is revalidated each time."`
	Negative     config.Duration `toml:"negative" doc:"The lifetime of a negative answer without one of its own."`
	StaleIfError config.Duration `toml:"stale_if_error" doc:"The time after its lifetime for which a stale answer may be served when the origin fails, unless the origin sets one."`

	Warm []string `toml:"warm" doc:"URLs that the node fetches at start and after each reload."`
}

// DefaultConfig is the configuration without any settings.
//
// The caps for compressed bodies are wider than those for requests: a ratio of
// ten would reject honest JSON, and nothing here is inflated into memory.
func DefaultConfig() Config {
	return Config{
		Timeout:        5 * time.Second,
		MaxBytes:       64 * config.MiB,
		Inflate:        64 * config.MiB,
		InflateRatio:   100,
		ForwardHeaders: []string{"accept", "accept-encoding", "accept-language"},
		ForwardQuery:   true,
		Tries:          3,
		BaseMS:         50,
		MaxMS:          800,
		Jitter:         true,
		Heuristic:      time.Hour,
		Negative:       2 * time.Second,
		Warm:           []string{},
	}
}

// Validate rejects settings that cannot work.
func (c Config) Validate() error {
	var wrong []error
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"max_bytes", int64(c.MaxBytes)}, {"inflate", int64(c.Inflate)}, {"inflate_ratio", int64(c.InflateRatio)}, {"tries", int64(c.Tries)},
	} {
		if one.value < 1 {
			wrong = append(wrong, config.Invalid(one.key, "Use 1 or more.", "%d is below 1", one.value))
		}
	}
	if c.Timeout <= 0 {
		wrong = append(wrong, config.Invalid("timeout", `Write a time such as "5s": every wait has a deadline.`, "%s is not above zero", c.Timeout))
	}
	if c.Tries > maxTries {
		wrong = append(wrong, config.Invalid("tries", "Use fewer: clients time out earlier.", "%d attempts; the maximum is %d", c.Tries, maxTries))
	}
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"base_ms", int64(c.BaseMS)}, {"max_ms", int64(c.MaxMS)}, {"heuristic", int64(c.Heuristic)},
		{"negative", int64(c.Negative)}, {"stale_if_error", int64(c.StaleIfError)},
	} {
		if one.value < 0 {
			wrong = append(wrong, config.Invalid(one.key, "Use 0 or more.", "%d is below zero", one.value))
		}
	}
	wrong = append(wrong, c.validateForward()...)
	for _, one := range c.Warm {
		if _, err := parseURL(one); err != nil {
			wrong = append(wrong, config.Invalid("warm", "Write whole URLs, such as https://tiles.example.org/style.json.", "%q is not an HTTPS URL", one))
		}
	}
	return errors.Join(wrong...)
}

// maxTries bounds how often a failing origin is asked for one object.
const maxTries = 10

// validateForward checks the names of headers.
func (c Config) validateForward() (wrong []error) {
	for _, name := range c.ForwardHeaders {
		switch {
		case name == "*" && len(c.ForwardHeaders) > 1:
			wrong = append(wrong, config.Invalid("forward_headers", `Write ["*"] alone, or leave it out.`, `"*" is combined with other names`))
		case name == "*":
		case !httpguts.ValidHeaderFieldName(name):
			wrong = append(wrong, config.Invalid("forward_headers", `Write names such as "accept-language".`, "%q is not the name of a header", name))
		case slices.Contains(neverForwarded, http.CanonicalHeaderKey(name)):
			wrong = append(wrong, config.Invalid("forward_headers", "Leave it out.", "%s is never forwarded", strings.ToLower(name)))
		case slices.Contains(personalHeaders, http.CanonicalHeaderKey(name)):
			wrong = append(wrong, config.Invalid("forward_headers", `Leave it out, or write ["*"] if every origin may see the credentials.`, "%s is forwarded only with \"*\"", strings.ToLower(name)))
		}
	}
	return wrong
}

// freshness is the part of the policy that decides what is stored and for how
// long.
func (c Config) freshness() freshness.Policy {
	return freshness.Policy{Heuristic: c.Heuristic, Negative: c.Negative, StaleIfError: c.StaleIfError}
}

// CacheConfig is the section [edge.cache]: how much is kept.
type CacheConfig struct {
	MaxBytes      config.Auto[config.Size] `toml:"max_bytes" restart:"true" doc:"The maximum size of cached bodies. Auto is 128 MiB in RAM, 1 GiB on disk."`
	ArrivingBytes config.Size              `toml:"arriving_bytes" restart:"true" doc:"The memory for bodies that are arriving and are sent on meanwhile. Beyond it, a slow reader waits for the stored copy."`
	MaxEntries    int                      `toml:"max_entries" restart:"true" doc:"The maximum number of cached answers."`
}

// DefaultCacheConfig is the configuration without any settings.
func DefaultCacheConfig() CacheConfig {
	return CacheConfig{MaxBytes: config.Auto[config.Size]{Auto: true}, ArrivingBytes: 16 * config.MiB, MaxEntries: 100_000}
}

// BreakerConfig is the section [edge.breaker]: when the breaker of an origin
// opens.
type BreakerConfig struct {
	Window    config.Duration `toml:"window" doc:"The window in which failures of an origin are counted: it is unreachable, or silent for edge.fill.timeout. An answer of any status is not a failure."`
	Threshold float64         `toml:"threshold" doc:"The breaker opens above this share of failures, with at least five results; with 1 it never opens."`
	Cooldown  config.Duration `toml:"cooldown" doc:"The time for which an open breaker refuses requests. Two probes follow."`
}

// DefaultBreakerConfig is the configuration without any settings.
func DefaultBreakerConfig() BreakerConfig {
	return BreakerConfig{Window: 30 * time.Second, Threshold: 0.5, Cooldown: 10 * time.Second}
}

// Validate rejects settings that cannot work.
func (c BreakerConfig) Validate() error {
	var wrong []error
	if c.Window < time.Second {
		wrong = append(wrong, config.Invalid("window", `Write a time such as "30s", one second at least.`, "%s is not a valid window", c.Window))
	}
	if !(c.Threshold > 0 && c.Threshold <= 1) {
		wrong = append(wrong, config.Invalid("threshold", "Choose a number above 0 and up to 1.", "%g is out of range", c.Threshold))
	}
	if c.Cooldown <= 0 {
		wrong = append(wrong, config.Invalid("cooldown", `Write a time such as "10s".`, "%s is not a valid cool-down", c.Cooldown))
	}
	return errors.Join(wrong...)
}

func (c BreakerConfig) spec() breaker.Spec {
	return breaker.Spec{Window: c.Window, Threshold: c.Threshold, Cooldown: c.Cooldown, Trials: breakerTrials}
}

// Validate rejects settings that cannot work.
func (c CacheConfig) Validate() error {
	if c.MaxEntries < 1 {
		return config.Invalid("max_entries", "Use 1 or more.", "%d is below 1", c.MaxEntries)
	}
	if c.ArrivingBytes < config.MiB {
		return config.Invalid("arriving_bytes", `Choose "1MiB" or more.`, "%s is too small for a few bodies at a time", c.ArrivingBytes)
	}
	return nil
}

// Budget is how many bytes the store of the cache may hold.
func (c CacheConfig) Budget(disk bool) int64 {
	auto := 128 * config.MiB
	if disk {
		auto = config.GiB
	}
	return int64(c.MaxBytes.Or(auto))
}
