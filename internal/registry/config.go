package registry

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"micronode/internal/config"
)

// Config is the section [registry] of the configuration.
type Config struct {
	ProposalTTL  config.Duration `toml:"proposal_ttl" doc:"How long a proposal waits for its approvals, if it does not say."`
	MaxProposals int             `toml:"max_proposals" doc:"How many proposals may be open."`
	Subscribers  int             `toml:"subscribers" doc:"How many may follow /registry/stream." restart:"true"`
	VerifyPause  config.Duration `toml:"verify_pause" doc:"The pause between two rounds in which the whole log is verified again. Zero is no second round."`
	VerifyShare  int             `toml:"verify_share" unit:"percent" doc:"How much of a core a round may take."`

	Storage Storage `toml:"storage" doc:"Where the log is kept."`
}

// Storage is [registry.storage].
type Storage struct {
	URL      string        `toml:"url" doc:"Where the log is kept: empty for memory, or for the disk with --persist; etcd+https://HOST:PORT,HOST:PORT/PREFIX for an etcd cluster, etcd+http:// on this machine only." restart:"true"`
	Username string        `toml:"username" doc:"Who we are to etcd." restart:"true"`
	Password config.Secret `toml:"password" doc:"What proves it. It is better in the environment, as MICRO_REGISTRY__STORAGE__PASSWORD, than in a file." restart:"true"`
	CAFile   string        `toml:"ca_file" doc:"PEM file with the authorities that are trusted for etcd instead of the system's." restart:"true"`
	CertFile string        `toml:"cert_file" doc:"PEM file with the certificate that we show to etcd." restart:"true"`
	KeyFile  string        `toml:"key_file" doc:"PEM file with the key of cert_file." restart:"true"`
	LogKey   config.Secret `toml:"log_key" doc:"The key that signs checkpoints: file:PATH, env:VARIABLE or fd:NUMBER, as identities are written. Without it, one that is derived from the node's identity. Nodes that share an etcd need the same one." restart:"true"`

	RAMBytes config.Size     `toml:"ram_bytes" doc:"How much memory the log may take, where it is kept in memory." restart:"true"`
	Timeout  config.Duration `toml:"timeout" doc:"How long one call to the storage may take." restart:"true"`
	Slow     config.Duration `toml:"slow" doc:"A commit that has waited this long for the storage makes the node not ready for writes."`

	CheckpointInterval config.Duration `toml:"checkpoint_interval" doc:"How often a checkpoint with a snapshot is kept, if there is something new." seed:"storage.checkpoint_interval"`
	CheckpointVersions int             `toml:"checkpoint_versions" doc:"How many new versions make one due earlier."`
	Retain             int             `toml:"retain" unit:"versions" doc:"How many versions are kept at least. Older ones that a checkpoint covers are pruned. Zero keeps all."`
}

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	return Config{
		ProposalTTL:  time.Hour,
		MaxProposals: 1024,
		Subscribers:  2048,
		VerifyPause:  time.Hour,
		VerifyShare:  10,
		Storage: Storage{
			RAMBytes:           64 * config.MiB,
			Timeout:            5 * time.Second,
			Slow:               500 * time.Millisecond,
			CheckpointInterval: time.Minute,
			CheckpointVersions: 4096,
		},
	}
}

// maxTTL is the longest that a proposal may wait.
const maxTTL = 30 * 24 * time.Hour

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var problems []error
	wrong := func(is bool, key, next, format string, args ...any) {
		if is {
			problems = append(problems, config.Wrong(key, next, format, args...))
		}
	}
	wrong(c.ProposalTTL <= 0 || c.ProposalTTL > maxTTL, "proposal_ttl", "Choose something above 0s and up to 720h.", "%s is no time to wait for approvals", c.ProposalTTL)
	wrong(c.MaxProposals < 1 || c.MaxProposals > 1<<16, "max_proposals", "Choose something from 1 to 65536.", "%d proposals", c.MaxProposals)
	wrong(c.Subscribers < 1 || c.Subscribers > 1<<16, "subscribers", "Choose something from 1 to 65536.", "%d subscribers", c.Subscribers)
	wrong(c.VerifyPause < 0, "verify_pause", "Write a time such as 1h, or 0 for no second round.", "%s is no pause", c.VerifyPause)
	wrong(c.VerifyShare < 1 || c.VerifyShare > 100, "verify_share", "Choose something from 1 to 100.", "%d percent of a core", c.VerifyShare)
	return errors.Join(problems...)
}

// Validate refuses what cannot be meant.
func (s Storage) Validate() error {
	var problems []error
	wrong := func(is bool, key, next, format string, args ...any) {
		if is {
			problems = append(problems, config.Wrong(key, next, format, args...))
		}
	}
	wrong(s.Timeout <= 0, "timeout", `Write a time such as "5s": every wait has a deadline.`, "%s would end every call at once", s.Timeout)
	wrong(s.Slow <= 0, "slow", `Write a time such as "500ms".`, "nothing is faster than %s", s.Slow)
	wrong(s.CheckpointInterval <= 0, "checkpoint_interval", `Write a time such as "1m".`, "%s is no interval", s.CheckpointInterval)
	wrong(s.CheckpointVersions < 1, "checkpoint_versions", "Choose 1 or more.", "%d versions are no reason for a checkpoint", s.CheckpointVersions)
	wrong(s.Retain < 0, "retain", "Choose 0 to keep all, or how many.", "%d versions cannot be kept", s.Retain)
	wrong(s.RAMBytes < config.MiB, "ram_bytes", "Choose 1MiB or more.", "a log of %s holds next to nothing", s.RAMBytes)
	if s.URL != "" {
		problems = append(problems, s.checkURL())
	}
	return errors.Join(problems...)
}

// checkURL looks at the form of the URL; the driver reads the rest.
func (s Storage) checkURL() error {
	scheme, _, _ := strings.Cut(s.URL, "://")
	if scheme != "etcd+https" && scheme != "etcd+http" {
		return config.Wrong("url", "Write etcd+https://HOST:PORT/PREFIX, or leave it empty.", "%q is no storage that we know", s.URL)
	}
	if at, err := url.Parse(s.URL); err == nil && at.User != nil {
		return config.Wrong("url", "Put them into username and password.", "the URL holds credentials")
	}
	return nil
}
