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
	URL string `toml:"url" restart:"true" doc:"Where messages are kept: empty for memory, or for the disk with --persist; nats+tls://HOST:PORT for NATS JetStream, nats:// on this machine only. More servers of one cluster follow after commas."`

	Token  config.Secret `toml:"token" restart:"true" doc:"What proves to NATS who we are. It is better in the environment, as MICRO_MAILBOX__TOKEN, than in a file."`
	CAFile string        `toml:"ca_file" restart:"true" doc:"PEM file with the authorities that are trusted for NATS instead of the system's."`

	CredsFile string `toml:"creds_file" restart:"true" doc:"File with the JWT and the key that prove to NATS who we are, instead of a token."`
	CertFile  string `toml:"cert_file" restart:"true" doc:"PEM file with the certificate that is shown to NATS."`
	KeyFile   string `toml:"key_file" restart:"true" doc:"PEM file with its key."`
	Replicas  int    `toml:"replicas" restart:"true" doc:"On how many servers of a NATS cluster everything is kept: 1, 3 or 5."`

	RAMBytes        config.Size `toml:"ram_bytes" restart:"true" doc:"How much memory messages, dead letters and notes may take together. With zero, the mailbox refuses all."`
	Boxes           int         `toml:"boxes" restart:"true" doc:"How many boxes there may be at a time."`
	BoxMessages     int         `toml:"box_messages" restart:"true" doc:"How many messages may be in one box."`
	BoxBytes        config.Size `toml:"box_bytes" restart:"true" doc:"How much memory the messages of one box may take."`
	MaxMessageBytes config.Size `toml:"max_message_bytes" restart:"true" doc:"How large the body of one message may be."`

	MaxDeliveries int             `toml:"max_deliveries" restart:"true" doc:"How often a message is leased before it becomes a dead letter, unless its sender says otherwise."`
	Visibility    config.Duration `toml:"visibility" restart:"true" doc:"How long a lease lasts, unless the receiver says otherwise; 12h at most."`
	MaxWait       config.Duration `toml:"max_wait" restart:"true" doc:"How long a receiver may wait for a message; 30s at most."`
	Receivers     int             `toml:"receivers" restart:"true" doc:"How many receivers may wait at a time."`

	Keys    int             `toml:"keys" restart:"true" doc:"How many Idempotency-Keys are remembered. When there are as many, new ones are refused until the oldest is forgotten."`
	KeyLife config.Duration `toml:"key_life" restart:"true" doc:"How long an Idempotency-Key is remembered."`

	DeadLetters int             `toml:"dead_letters" restart:"true" doc:"How many dead letters are kept for each box. When there are more, the oldest goes."`
	DeadLife    config.Duration `toml:"dead_life" restart:"true" doc:"How long a dead letter is kept."`

	Boards     int `toml:"boards" restart:"true" doc:"How many boards there may be at a time."`
	BoardNotes int `toml:"board_notes" restart:"true" doc:"How many notes a board has. When there are more, the oldest goes."`
}

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	return Config{
		Replicas: 1, RAMBytes: 64 * config.MiB, Boxes: 100_000, BoxMessages: 10_000, BoxBytes: 16 * config.MiB, MaxMessageBytes: 512 * config.KiB,
		MaxDeliveries: 5, Visibility: 30 * time.Second, MaxWait: 30 * time.Second, Receivers: 1024,
		Keys: 250_000, KeyLife: time.Hour, DeadLetters: 1000, DeadLife: 7 * 24 * time.Hour,
		Boards: 100_000, BoardNotes: 500,
	}
}

// The bounds of what may be set.
const (
	longestVisibility = 12 * time.Hour
	longestWait       = 30 * time.Second
	largestMessage    = 512 * config.KiB // with what goes around it, it fits into a request of 1 MiB
)

// Validate refuses what cannot be meant.
func (c *Config) Validate() error {
	var problems []error
	wrong := func(is bool, key, next, format string, args ...any) {
		if is {
			problems = append(problems, config.Wrong(key, next, format, args...))
		}
	}
	wrong(c.MaxMessageBytes < 1 || c.MaxMessageBytes > largestMessage, "max_message_bytes", "Choose something from 1B to 512KiB. Larger things belong into the store; send their addresses.", "messages of %s", c.MaxMessageBytes)
	wrong(c.MaxDeliveries < 1 || c.MaxDeliveries > mostDeliveries, "max_deliveries", "Choose something from 1 to 1000.", "%d deliveries", c.MaxDeliveries)
	wrong(c.Visibility <= 0 || c.Visibility > longestVisibility, "visibility", `Write a time such as "30s", 12h at most.`, "%s is no time for a lease", c.Visibility)
	wrong(c.MaxWait < 0 || c.MaxWait > longestWait, "max_wait", `Write a time such as "30s", which is the most, or 0s to let nobody wait.`, "%s is no time to wait", c.MaxWait)
	wrong(c.Receivers < 1, "receivers", "Choose 1 or more; set max_wait to 0s to let nobody wait.", "%d receivers", c.Receivers)
	wrong(c.KeyLife < time.Minute, "key_life", `Write a time such as "1h", one minute at least: a client that repeats a message counts on it.`, "%s is too short", c.KeyLife)
	wrong(c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5, "replicas", "Choose 1, 3 or 5.", "%d replicas", c.Replicas)
	wrong(c.DeadLife < time.Minute, "dead_life", `Write a time such as "168h", one minute at least; set dead_letters to 0 to keep none.`, "%s is too short", c.DeadLife)
	for key, n := range map[string]int{"boxes": c.Boxes, "box_messages": c.BoxMessages, "boards": c.Boards, "board_notes": c.BoardNotes} {
		wrong(n < 1, key, "Choose 1 or more.", "%d would refuse all", n)
	}
	if c.URL != "" {
		problems = append(problems, c.checkURL())
	}
	return errors.Join(problems...)
}

// checkURL looks at the URL as far as one can without asking the server. Without
// TLS, messages could be read and changed on the way, so that must not leave
// the machine.
func (c *Config) checkURL() error {
	const good = "Write nats+tls://HOST:PORT, or leave it empty to keep messages on this machine."
	for _, one := range c.Servers() {
		u, err := url.Parse(one)
		switch {
		case err != nil:
			return config.Wrong("url", good, "it cannot be read") // it is not repeated: it may hold a password
		case u.User != nil:
			return config.Wrong("url", "Write the token to mailbox.token.", "there is a user in it")
		case u.Scheme != "nats" && u.Scheme != "nats+tls":
			return config.Wrong("url", good, "%q is no kind of mailbox that we know", u.Scheme)
		case u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			return config.Wrong("url", good, "it does not name a server, and nothing else")
		case u.Scheme == "nats" && !config.OnThisMachine(u.Hostname()):
			return config.Wrong("url", "Write nats+tls://.", "%s is not this machine, and without TLS anybody on the way could read and change what is sent", u.Host)
		}
	}
	return nil
}

// Servers is the servers of NATS, if messages are kept there.
func (c *Config) Servers() (all []string) {
	for _, one := range strings.Split(c.URL, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// Limits is what the section lets an engine be filled with.
func (c *Config) Limits() Limits {
	return Limits{
		Bytes: int64(c.RAMBytes), Boxes: c.Boxes, BoxMessages: c.BoxMessages, BoxBytes: int64(c.BoxBytes), MaxMessage: int(c.MaxMessageBytes),
		MaxDeliveries: c.MaxDeliveries, Visibility: c.Visibility, MaxVisibility: longestVisibility,
		Keys: c.Keys, KeyLife: c.KeyLife, Dead: c.DeadLetters, DeadLife: c.DeadLife,
		Boards: c.Boards, BoardNotes: c.BoardNotes, Waiting: c.Receivers,
	}
}

// RAMSpec is the mailbox in memory that the section asks for. Whether memory is
// zeroed is not a setting of the mailbox but follows from amnesia.
func (c *Config) RAMSpec(zero bool) RAMSpec { return RAMSpec{Limits: c.Limits(), Zero: zero} }

// DiskSpec is the mailbox on disk that the section asks for.
func (c *Config) DiskSpec(folder string) DiskSpec {
	return DiskSpec{Limits: c.Limits(), Folder: folder}
}
