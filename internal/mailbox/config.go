package mailbox

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"micronode/internal/config"
)

// Config is the section [mailbox] of the configuration.
type Config struct {
	URL string `toml:"url" restart:"true" doc:"The storage of messages: empty for memory, or for the disk with --persist; nats+tls://HOST:PORT for NATS JetStream, nats:// on this machine only. More servers of one cluster follow after commas."`

	Token  config.Secret `toml:"token" restart:"true" doc:"The token for NATS. Set it in the environment as MICRO_MAILBOX__TOKEN rather than in a file."`
	CAFile string        `toml:"ca_file" restart:"true" doc:"PEM file with the authorities that are trusted for NATS instead of the system's."`

	CredsFile string `toml:"creds_file" restart:"true" doc:"File with the JWT and the key for NATS, instead of a token."`
	CertFile  string `toml:"cert_file" restart:"true" doc:"PEM file with the client certificate for NATS."`
	KeyFile   string `toml:"key_file" restart:"true" doc:"PEM file with its key."`
	Replicas  int    `toml:"replicas" restart:"true" doc:"The number of replicas in a NATS cluster: 1, 3 or 5."`

	RAMBytes  config.Size `toml:"ram_bytes" restart:"true" doc:"The maximum memory of messages, dead letters and notes together. With --persist bodies are on disk; this is for notes, for 384 bytes of each message, and for the most recent bodies. With zero, the mailbox refuses all messages."`
	DiskBytes config.Size `toml:"disk_bytes" restart:"true" doc:"The maximum disk space of messages, dead letters and notes together, with --persist. Space that is freed but not yet reclaimed comes on top: at most twice as much. With zero, the mailbox refuses all messages."`

	Boxes           int                      `toml:"boxes" restart:"true" doc:"The maximum number of boxes."`
	BoxMessages     int                      `toml:"box_messages" restart:"true" doc:"The maximum number of messages in one box."`
	BoxBytes        config.Auto[config.Size] `toml:"box_bytes" restart:"true" doc:"The maximum size of the messages of one box. With auto, 16MiB in memory, and a quarter of disk_bytes with --persist."`
	MaxMessageBytes config.Size              `toml:"max_message_bytes" restart:"true" doc:"The maximum size of the body of one message."`

	MaxDeliveries int             `toml:"max_deliveries" restart:"true" doc:"The number of deliveries after which a message becomes a dead letter, unless its sender sets another."`
	Visibility    config.Duration `toml:"visibility" restart:"true" doc:"The duration of a lease, unless the receiver sets another; at most 12h."`
	MaxWait       config.Duration `toml:"max_wait" restart:"true" doc:"The maximum time that a receiver may wait for a message; at most 30s."`
	Receivers     int             `toml:"receivers" restart:"true" doc:"The maximum number of waiting receivers."`

	Keys    int             `toml:"keys" restart:"true" doc:"The maximum number of Idempotency-Keys. When it is reached, the sender with the most keys loses its oldest; with NATS, new keys of a sender that has half of them are refused."`
	KeyLife config.Duration `toml:"key_life" restart:"true" doc:"The time for which an Idempotency-Key is kept."`

	DeadLetters int             `toml:"dead_letters" restart:"true" doc:"The maximum number of dead letters of each box. When it is reached, the oldest is dropped."`
	DeadLife    config.Duration `toml:"dead_life" restart:"true" doc:"The time for which a dead letter is kept."`

	Boards     int `toml:"boards" restart:"true" doc:"The maximum number of noticeboards."`
	BoardNotes int `toml:"board_notes" restart:"true" doc:"The maximum number of notes of a noticeboard. When it is reached, the oldest is dropped."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Replicas: 1, RAMBytes: 64 * config.MiB, DiskBytes: config.GiB, Boxes: 100_000, BoxMessages: 10_000,
		BoxBytes: config.Auto[config.Size]{Auto: true}, MaxMessageBytes: 512 * config.KiB,
		MaxDeliveries: 5, Visibility: 30 * time.Second, MaxWait: 30 * time.Second, Receivers: 1024,
		Keys: 250_000, KeyLife: time.Hour, DeadLetters: 1000, DeadLife: 7 * 24 * time.Hour,
		Boards: 100_000, BoardNotes: 500,
	}
}

// The bounds of settings.
const (
	longestVisibility = 12 * time.Hour
	longestWait       = 30 * time.Second
	autoBoxBytes      = 16 * config.MiB  // of one box in memory
	largestMessage    = 512 * config.KiB // with what goes around it, it fits into a request of 1 MiB
)

// Validate reports settings out of range.
func (c *Config) Validate() error {
	var problems []error
	rejectIf := func(is bool, key, next, format string, args ...any) {
		if is {
			problems = append(problems, config.Invalid(key, next, format, args...))
		}
	}
	rejectIf(c.MaxMessageBytes < 1 || c.MaxMessageBytes > largestMessage, "max_message_bytes", "Choose something from 1B to 512KiB. Put larger content into the store, and send its address.", "%s is out of range", c.MaxMessageBytes)
	rejectIf(c.MaxDeliveries < 1 || c.MaxDeliveries > maxDeliveries, "max_deliveries", "Choose something from 1 to 1000.", "%d deliveries", c.MaxDeliveries)
	rejectIf(c.Visibility <= 0 || c.Visibility > longestVisibility, "visibility", `Write a time such as "30s", 12h at most.`, "%s is out of range", c.Visibility)
	rejectIf(c.MaxWait < 0 || c.MaxWait > longestWait, "max_wait", `Write a time such as "30s", the maximum, or 0s to disable waiting.`, "%s is out of range", c.MaxWait)
	rejectIf(c.Receivers < 1, "receivers", "Choose 1 or more; set max_wait to 0s to disable waiting.", "%d receivers", c.Receivers)
	rejectIf(c.KeyLife < time.Minute, "key_life", `Write a time such as "1h", at least one minute: clients that retry rely on it.`, "%s is too short", c.KeyLife)
	rejectIf(c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5, "replicas", "Choose 1, 3 or 5.", "%d replicas", c.Replicas)
	rejectIf(c.DeadLife < time.Minute, "dead_life", `Write a time such as "168h", one minute at least; set dead_letters to 0 to keep none.`, "%s is too short", c.DeadLife)
	for key, n := range map[string]int{"boxes": c.Boxes, "box_messages": c.BoxMessages, "boards": c.Boards, "board_notes": c.BoardNotes} {
		rejectIf(n < 1, key, "Choose 1 or more.", "%d is below 1", n)
	}
	if c.URL != "" {
		problems = append(problems, c.checkURL())
	}
	return errors.Join(problems...)
}

// checkURL checks the URL without connecting to the server. Without TLS,
// messages could be read and changed on the way, so that must not leave the
// machine.
func (c *Config) checkURL() error {
	const good = "Write nats+tls://HOST:PORT, or leave it empty to keep messages on this machine."
	for _, one := range c.Servers() {
		u, err := url.Parse(one)
		switch {
		case err != nil:
			return config.Invalid("url", good, "it cannot be read") // it is not repeated: it may hold a password
		case u.User != nil:
			return config.Invalid("url", "Write the token to mailbox.token.", "there is a user in it")
		case u.Scheme != "nats" && u.Scheme != "nats+tls":
			return config.Invalid("url", good, "unknown scheme %q", u.Scheme)
		case u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			return config.Invalid("url", good, "it is not the address of a server")
		case u.Scheme == "nats" && !config.IsLoopbackHost(u.Hostname()):
			return config.Invalid("url", "Write nats+tls://.", "%s is not this machine, and a connection without TLS can be read and changed on the way", u.Host)
		}
	}
	return nil
}

// Servers returns the servers of NATS, if messages are kept there.
func (c *Config) Servers() (all []string) {
	for _, one := range strings.Split(c.URL, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// Limits returns the limits of an engine that is not on disk.
func (c *Config) Limits() Limits {
	return Limits{
		Bytes: int64(c.RAMBytes), Boxes: c.Boxes, BoxMessages: c.BoxMessages, BoxBytes: int64(c.BoxBytes.Or(min(autoBoxBytes, c.RAMBytes))), MaxMessage: int(c.MaxMessageBytes),
		MaxDeliveries: c.MaxDeliveries, Visibility: c.Visibility, MaxVisibility: longestVisibility,
		Keys: c.Keys, KeyLife: c.KeyLife, DeadLetters: c.DeadLetters, DeadLife: c.DeadLife,
		Boards: c.Boards, BoardNotes: c.BoardNotes, Receivers: c.Receivers,
	}
}

// RAMSpec returns the spec of the mailbox in memory. Whether memory is zeroed
// is not a setting of the mailbox but follows from amnesia.
func (c *Config) RAMSpec(zero bool) RAMSpec { return RAMSpec{Limits: c.Limits(), Zero: zero} }

// DiskSpec returns the spec of the mailbox on disk.
func (c *Config) DiskSpec(folder string) DiskSpec {
	limits := c.Limits()
	limits.Bytes, limits.BoxBytes = int64(c.DiskBytes), int64(c.BoxBytes.Or(c.DiskBytes/4))
	return DiskSpec{Limits: limits, MemoryBytes: max(1, int64(c.RAMBytes)), Folder: folder}
}
