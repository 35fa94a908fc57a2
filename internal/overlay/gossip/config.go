package gossip

import (
	"errors"
	"runtime"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/oap"
)

// Config is the section [overlay.gossip]: how letters are passed on.
type Config struct {
	RelayFanout int             `toml:"relay_fanout" doc:"To how many peers a letter is passed on." seed:"overlay.gossip.relay_fanout" restart:"true"`
	Burst       int             `toml:"burst_budget_frames" doc:"How many letters are handled in one go." seed:"overlay.gossip.burst_budget_frames" restart:"true"`
	Hops        int             `toml:"hops" doc:"How many relays a letter may pass." restart:"true"`
	TTL         config.Duration `toml:"ttl" doc:"How long a letter is good for. All nodes of a network should have the same." restart:"true"`

	Sign     string   `toml:"sign" enum:"origin,none" doc:"Who signs letters: their origin, or nobody. With none, unsigned letters are taken on every topic." restart:"true"`
	Unsigned []string `toml:"unsigned" doc:"Topics on which letters are sent and taken without a signature, and everything below them." restart:"true"`
	Drop     string   `toml:"drop" enum:"newest,oldest" doc:"Which letters are dropped when too many wait for a peer." restart:"true"`

	Workers config.Auto[int] `toml:"workers" doc:"How many workers check letters and pass them on. Auto is one for each core." restart:"true"`

	Seen         int         `toml:"seen" doc:"How many letters are remembered, so that none is delivered twice. When it is full, letters are refused until older ones expire." restart:"true"`
	HistoryBytes config.Size `toml:"history_bytes" doc:"How much memory letters may take that are kept for peers which missed them." restart:"true"`
	HaveBytes    config.Size `toml:"have_bytes" doc:"Relays announce letters that are larger than this, and send them to peers that ask." restart:"true"`

	MaxFrameBytes config.Size `toml:"max_frame_bytes" doc:"The largest frame that is taken from a peer, 1 MiB at most." seed:"overlay.gossip.max_frame_bytes" restart:"true"`
	ChunkBytes    config.Size `toml:"chunk_bytes" doc:"The chunk of object streams, 64 KiB at most." seed:"overlay.gossip.chunk_bytes" restart:"true"`
}

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	return Config{
		RelayFanout: 3, Burst: 64, Hops: 8, TTL: 120 * time.Second,
		Sign: "origin", Unsigned: []string{}, Drop: "newest",
		Workers: config.Auto[int]{Auto: true},
		Seen:    1_000_000, HistoryBytes: 16 * config.MiB, HaveBytes: 16 * config.KiB,
		MaxFrameBytes: oap.MaxPayload, ChunkBytes: oap.Chunk,
	}
}

// WorkerCount is how many tasks are to run [Engine.Work].
func (c Config) WorkerCount() int { return c.Workers.Or(runtime.GOMAXPROCS(0)) }

const (
	maxBurst  = 4096
	maxFanout = 64
	maxHops   = 64
	minFrame  = 64 << 10 // a chunk nearly, or a have of a thousand ids
)

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var problems []error
	between := func(key string, value, least, most int) {
		if value < least || value > most {
			problems = append(problems, config.Wrong(key, "Choose a number in between.", "%d is not between %d and %d", value, least, most))
		}
	}
	between("relay_fanout", c.RelayFanout, 1, maxFanout)
	between("burst_budget_frames", c.Burst, 1, maxBurst)
	between("hops", c.Hops, 1, maxHops)
	between("max_frame_bytes", int(c.MaxFrameBytes), minFrame, oap.MaxPayload)
	between("chunk_bytes", int(c.ChunkBytes), 1, oap.Chunk)
	if c.TTL < time.Second {
		problems = append(problems, config.Wrong("ttl", `Write a time such as "120s".`, "in %s a letter gets nowhere", c.TTL))
	}
	if c.Seen < 1 {
		problems = append(problems, config.Wrong("seen", "Choose 1 or more; a million takes about 40 MiB when it is full.", "a node that remembers %d letters takes none", c.Seen))
	}
	if !c.Workers.Auto && c.Workers.Value < 1 {
		problems = append(problems, config.Wrong("workers", `Choose 1 or more, or "auto".`, "%d workers pass nothing on", c.Workers.Value))
	}
	for _, topic := range c.Unsigned {
		if err := oap.CheckTopic(topic); err != nil {
			problems = append(problems, config.Wrong("unsigned", "Write topics such as news/eu.", "%s", fault.DetailOf(err)))
		}
	}
	return errors.Join(problems...)
}

// policy says which letters need no signature. It is read-only once it is made.
type policy struct {
	none     bool            // nobody signs
	unsigned map[string]bool // topics, and with them everything below
}

func newPolicy(c Config) policy {
	p := policy{none: c.Sign == "none", unsigned: make(map[string]bool, len(c.Unsigned))}
	for _, topic := range c.Unsigned {
		p.unsigned[topic] = true
	}
	return p
}

// mayLack tells whether a letter on this topic may come without a signature.
func (p *policy) mayLack(topic string) bool {
	if p.none || len(p.unsigned) == 0 {
		return p.none
	}
	for {
		if p.unsigned[topic] {
			return true
		}
		slash := strings.LastIndexByte(topic, '/')
		if slash < 0 {
			return false
		}
		topic = topic[:slash]
	}
}
