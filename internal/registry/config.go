package registry

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"micronode/internal/config"
	"micronode/internal/registry/journal"
)

// Config is the section [registry] of the configuration.
type Config struct {
	ProposalTTL  config.Duration `toml:"proposal_ttl" doc:"The lifetime of a proposal without a ttl_s."`
	MaxProposals int             `toml:"max_proposals" doc:"The maximum number of open proposals. One client may hold at most as many as remain free."`
	Queue        int             `toml:"queue" doc:"The numbers of proposals, of approvals and of commits that wait for the committer. A full queue refuses with 429, those of the busiest client first." restart:"true"`
	Subscribers  int             `toml:"subscribers" doc:"The maximum number of subscribers of /registry/stream." restart:"true"`
	VerifyPause  config.Duration `toml:"verify_pause" doc:"The pause between two verifications of the whole log. Zero verifies it once. New versions are verified when they are committed, whatever the pause."`
	VerifyShare  int             `toml:"verify_share" unit:"percent" doc:"The share of a core that a verification may use."`

	Storage Storage `toml:"storage" doc:"The storage of the log."`
}

// Storage is [registry.storage].
type Storage struct {
	URL      string        `toml:"url" doc:"The storage of the log: empty for memory, or for the disk with --persist; etcd+https://HOST:PORT,HOST:PORT/PREFIX for an etcd cluster, etcd+http:// on this machine only." restart:"true"`
	Username string        `toml:"username" doc:"The user name for etcd." restart:"true"`
	Password config.Secret `toml:"password" doc:"The password for etcd. Set it in the environment as MICRO_REGISTRY__STORAGE__PASSWORD rather than in a file." restart:"true"`
	CAFile   string        `toml:"ca_file" doc:"PEM file with the authorities that are trusted for etcd instead of the system's." restart:"true"`
	CertFile string        `toml:"cert_file" doc:"PEM file with the client certificate for etcd." restart:"true"`
	KeyFile  string        `toml:"key_file" doc:"PEM file with the key of cert_file." restart:"true"`
	LogKey   config.Secret `toml:"log_key" doc:"The key that signs checkpoints: file:PATH, env:VARIABLE or fd:NUMBER, as identities are written. Without it, one that is derived from the node's identity. Nodes that share an etcd need the same one." restart:"true"`

	RAMBytes config.Size     `toml:"ram_bytes" doc:"The maximum memory of a log in memory." restart:"true"`
	Timeout  config.Duration `toml:"timeout" doc:"The deadline of one call to the storage." restart:"true"`
	Slow     config.Duration `toml:"slow" doc:"A commit that has waited this long for the storage makes the node not ready for writes."`

	CheckpointInterval config.Duration `toml:"checkpoint_interval" doc:"The interval between checkpoints with a snapshot, if there are new versions." seed:"storage.checkpoint_interval"`
	CheckpointVersions int             `toml:"checkpoint_versions" doc:"The number of new versions that triggers a checkpoint earlier."`
	Retain             int             `toml:"retain" unit:"versions" doc:"The minimum number of versions to keep. Older versions that a checkpoint covers are pruned. Zero keeps all."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		ProposalTTL:  time.Hour,
		MaxProposals: 1024,
		Queue:        512,
		Subscribers:  2048,
		VerifyPause:  6 * time.Hour,
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

// maxTTL is the longest time that a proposal may be open.
const maxTTL = 30 * 24 * time.Hour

// Validate reports settings that are out of range.
func (c Config) Validate() error {
	var problems []error
	rejectIf := func(is bool, key, next, format string, args ...any) {
		if is {
			problems = append(problems, config.Invalid(key, next, format, args...))
		}
	}
	rejectIf(c.ProposalTTL <= 0 || c.ProposalTTL > maxTTL, "proposal_ttl", "Choose something above 0s and up to 720h.", "%s is out of range", c.ProposalTTL)
	rejectIf(c.MaxProposals < 1 || c.MaxProposals > 1<<16, "max_proposals", "Choose something from 1 to 65536.", "%d proposals", c.MaxProposals)
	rejectIf(c.Queue < 1 || c.Queue > 1<<16, "queue", "Choose something from 1 to 65536.", "%d places", c.Queue)
	rejectIf(c.Subscribers < 1 || c.Subscribers > 1<<16, "subscribers", "Choose something from 1 to 65536.", "%d subscribers", c.Subscribers)
	rejectIf(c.VerifyPause < 0, "verify_pause", "Write a time such as 1h, or 0 for no second round.", "%s is not a valid cool-down", c.VerifyPause)
	rejectIf(c.VerifyShare < 1 || c.VerifyShare > 100, "verify_share", "Choose something from 1 to 100.", "%d percent is out of range", c.VerifyShare)
	return errors.Join(problems...)
}

// Validate reports settings that are out of range.
func (s Storage) Validate() error {
	var problems []error
	rejectIf := func(is bool, key, next, format string, args ...any) {
		if is {
			problems = append(problems, config.Invalid(key, next, format, args...))
		}
	}
	rejectIf(s.Timeout <= 0, "timeout", `Write a time such as "5s": every wait has a deadline.`, "%s is not above zero", s.Timeout)
	rejectIf(s.Slow <= 0, "slow", `Write a time such as "500ms".`, "%s is not above zero", s.Slow)
	rejectIf(s.CheckpointInterval <= 0, "checkpoint_interval", `Write a time such as "1m".`, "%s is not above zero", s.CheckpointInterval)
	rejectIf(s.CheckpointVersions < 1, "checkpoint_versions", "Choose 1 or more.", "%d is below 1", s.CheckpointVersions)
	rejectIf(s.Retain < 0, "retain", "Choose a number of versions, or 0 to keep all.", "%d is below 0", s.Retain)
	rejectIf(s.RAMBytes < config.MiB, "ram_bytes", "Choose 1MiB or more.", "%s is below 1MiB", s.RAMBytes)
	if s.URL != "" {
		problems = append(problems, s.checkURL())
	}
	return errors.Join(problems...)
}

// checkURL checks the scheme of the URL and that it holds no credentials; the driver
// parses the rest.
func (s Storage) checkURL() error {
	scheme, _, _ := strings.Cut(s.URL, "://")
	if scheme != "etcd+https" && scheme != "etcd+http" {
		return config.Invalid("url", "Write etcd+https://HOST:PORT/PREFIX, or leave it empty.", "%q is not a supported storage", s.URL)
	}
	if at, err := url.Parse(s.URL); err == nil && at.User != nil {
		return config.Invalid("url", "Put them into username and password.", "the URL holds credentials")
	}
	return nil
}

// InMemory returns a journal in memory, which is gone when the node stops.
func (s Storage) InMemory() Journal {
	return journal.NewRAM(journal.RAMSpec{MaxBytes: int64(s.RAMBytes)})
}

// InFolder returns a journal in files. The folder is used by the registry only.
func (s Storage) InFolder(folder string) (Journal, error) {
	files, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	if err != nil {
		return nil, err // not an interface that holds a nil pointer
	}
	return files, nil
}
