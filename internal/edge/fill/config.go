package fill

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"micronode/internal/config"
	"micronode/internal/edge/fill/freshness"
)

// Config is the section [edge.fill]: how origins are asked, and what is taken
// from them. All of it takes effect at a reload.
type Config struct {
	Timeout  config.Duration `toml:"timeout" doc:"How long one try may take, from the look-up of the name to the last byte. Raise it where large files come over slow lines."`
	MaxBytes config.Size     `toml:"max_bytes" doc:"The largest body that is taken from an origin."`

	Inflate      config.Size `toml:"inflate" doc:"What a compressed body may inflate to. It is kept as it was sent; this is about those who will inflate it." seed:"ingress.decompress_abs_bytes"`
	InflateRatio int         `toml:"inflate_ratio" doc:"How much larger than sent a compressed body may be once it inflates to more than 1 MiB." seed:"ingress.decompress_max_ratio"`

	ForwardHeaders []string `toml:"forward_headers" doc:"Request headers that the origin gets to see. With [\"*\"] all that are meant for it, Authorization and Cookie too; never ranges and conditions."`
	ForwardQuery   bool     `toml:"forward_query" doc:"Whether the query is passed on, and tells objects apart."`

	CAFile       string `toml:"ca_file" doc:"PEM file with authorities that are trusted besides those of the system. Read again at every reload."`
	AllowPrivate bool   `toml:"allow_private" doc:"Whether an allowed name may lead to a loopback, private or link-local address."`

	Tries  int  `toml:"tries" doc:"How often an origin is asked that takes too long or answers 503 or 504." seed:"retry.live_fill.max_retries"`
	BaseMS int  `toml:"base_ms" unit:"milliseconds" doc:"The pause before the second try. It doubles with each further one." seed:"retry.live_fill.base_ms"`
	MaxMS  int  `toml:"max_ms" unit:"milliseconds" doc:"The longest pause between two tries, without jitter." seed:"retry.live_fill.max_ms"`
	Jitter bool `toml:"jitter" doc:"Whether up to base_ms is added to each pause, by chance." seed:"retry.live_fill.jitter"`

	Heuristic    config.Duration `toml:"heuristic" doc:"The longest that an answer is taken for fresh that has a date but no lifetime. With zero, it is asked for again each time."`
	Negative     config.Duration `toml:"negative" doc:"How long it is remembered that something is not there, where the origin does not say."`
	StaleIfError config.Duration `toml:"stale_if_error" doc:"How long after its lifetime an answer may serve when the origin fails, where the origin does not say."`

	Warm []string `toml:"warm" doc:"URLs that are fetched at the start and after each reload."`
}

// DefaultConfig is what holds where nobody says otherwise.
//
// The caps for compressed bodies are wider than those for requests: ten times
// would refuse honest JSON, and nothing here is inflated into memory.
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

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var wrong []error
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"max_bytes", int64(c.MaxBytes)}, {"inflate", int64(c.Inflate)}, {"inflate_ratio", int64(c.InflateRatio)}, {"tries", int64(c.Tries)},
	} {
		if one.value < 1 {
			wrong = append(wrong, config.Wrong(one.key, "Use 1 or more.", "with %d, nothing would be fetched", one.value))
		}
	}
	if c.Timeout <= 0 {
		wrong = append(wrong, config.Wrong("timeout", `Write a time such as "5s": every wait has a deadline.`, "%s would end every try at once", c.Timeout))
	}
	if c.Tries > mostTries {
		wrong = append(wrong, config.Wrong("tries", "Use fewer: one who waits has given up long before.", "%d tries, and at most %d make sense", c.Tries, mostTries))
	}
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"base_ms", int64(c.BaseMS)}, {"max_ms", int64(c.MaxMS)}, {"heuristic", int64(c.Heuristic)},
		{"negative", int64(c.Negative)}, {"stale_if_error", int64(c.StaleIfError)},
	} {
		if one.value < 0 {
			wrong = append(wrong, config.Wrong(one.key, "Use 0 or more.", "%d is below zero", one.value))
		}
	}
	wrong = append(wrong, c.validateForward()...)
	for _, one := range c.Warm {
		if _, err := parseURL(one); err != nil {
			wrong = append(wrong, config.Wrong("warm", "Write whole URLs, such as https://tiles.example.org/style.json.", "%q is no HTTPS URL that could be fetched", one))
		}
	}
	return errors.Join(wrong...)
}

// mostTries bounds how long a failing origin is asked for one object.
const mostTries = 10

// validateForward checks the names of headers.
func (c Config) validateForward() (wrong []error) {
	for _, name := range c.ForwardHeaders {
		switch {
		case name == "*" && len(c.ForwardHeaders) > 1:
			wrong = append(wrong, config.Wrong("forward_headers", `Write ["*"] alone, or leave it out.`, `"*" stands beside other names`))
		case name == "*":
		case !httpguts.ValidHeaderFieldName(name):
			wrong = append(wrong, config.Wrong("forward_headers", `Write names such as "accept-language".`, "%q is no name of a header", name))
		case slices.Contains(neverForwarded, http.CanonicalHeaderKey(name)):
			wrong = append(wrong, config.Wrong("forward_headers", "Leave it out.", "%s is never passed on", strings.ToLower(name)))
		case slices.Contains(personal, http.CanonicalHeaderKey(name)):
			wrong = append(wrong, config.Wrong("forward_headers", `Leave it out, or write ["*"] if every origin may see who asks.`, "%s is passed on only with \"*\"", strings.ToLower(name)))
		}
	}
	return wrong
}

// freshness is the part of the policy that decides about keeping.
func (c Config) freshness() freshness.Policy {
	return freshness.Policy{Heuristic: c.Heuristic, Negative: c.Negative, StaleIfError: c.StaleIfError}
}

// CacheConfig is the section [edge.cache]: how much is kept.
type CacheConfig struct {
	MaxBytes   config.Auto[config.Size] `toml:"max_bytes" restart:"true" doc:"How many bytes of bodies are kept. Auto is 128 MiB in RAM, 1 GiB on disk."`
	MaxEntries int                      `toml:"max_entries" restart:"true" doc:"How many answers are kept, whatever their size."`
}

// DefaultCacheConfig is what holds where nobody says otherwise.
func DefaultCacheConfig() CacheConfig {
	return CacheConfig{MaxBytes: config.Auto[config.Size]{Auto: true}, MaxEntries: 100_000}
}

// Validate refuses what cannot be meant.
func (c CacheConfig) Validate() error {
	if c.MaxEntries < 1 {
		return config.Wrong("max_entries", "Use 1 or more.", "with %d, nothing would be kept", c.MaxEntries)
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
