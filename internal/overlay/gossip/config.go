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

// Config is the section [overlay.gossip]: how messages are relayed.
type Config struct {
	RelayFanout int             `toml:"relay_fanout" doc:"The number of peers to which a message is relayed." seed:"overlay.gossip.relay_fanout" restart:"true"`
	Burst       int             `toml:"burst_budget_frames" doc:"The maximum number of messages in one batch." seed:"overlay.gossip.burst_budget_frames" restart:"true"`
	Hops        int             `toml:"hops" doc:"The maximum number of relays of a message." restart:"true"`
	TTL         config.Duration `toml:"ttl" doc:"The lifetime of a message. All nodes of a network should have the same." restart:"true"`

	Sign     string   `toml:"sign" enum:"origin,none" doc:"Whether the origin signs its messages. With none, unsigned messages are accepted on every topic." restart:"true"`
	Unsigned []string `toml:"unsigned" doc:"Topics on which messages are sent and accepted without a signature, and all topics below them." restart:"true"`
	Drop     string   `toml:"drop" enum:"newest,oldest" doc:"Which messages are dropped when the queue to a peer is full." restart:"true"`

	Workers config.Auto[int] `toml:"workers" doc:"The number of workers that check and relay messages. Auto is one per core." restart:"true"`

	Seen         int         `toml:"seen" doc:"The size of the seen-set, which prevents duplicate deliveries. One peer may use four times the free entries. Above that, and when the set is full, its messages are refused until older ones expire." restart:"true"`
	IngressBytes config.Size `toml:"ingress_bytes" doc:"The memory for messages that wait for a worker, and for as many that were checked and wait for an earlier one. One peer may use four fifths of it." restart:"true"`
	HistoryBytes config.Size `toml:"history_bytes" doc:"The memory for messages that are kept for peers that missed them." restart:"true"`
	HaveBytes    config.Size `toml:"have_bytes" doc:"Relays announce messages larger than this, and send them to peers that ask." restart:"true"`

	MaxFrameBytes config.Size `toml:"max_frame_bytes" doc:"The maximum size of a frame from a peer, at most 1 MiB." seed:"overlay.gossip.max_frame_bytes,max_frame_bytes" restart:"true"`
	ChunkBytes    config.Size `toml:"chunk_bytes" doc:"The chunk size of object streams, at most 64 KiB." seed:"overlay.gossip.chunk_bytes,max_chunk_bytes" restart:"true"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		RelayFanout: 3, Burst: 64, Hops: 8, TTL: 120 * time.Second,
		Sign: "origin", Unsigned: []string{}, Drop: "newest",
		Workers: config.Auto[int]{Auto: true},
		Seen:    1_000_000, IngressBytes: 16 * config.MiB, HistoryBytes: 16 * config.MiB, HaveBytes: 16 * config.KiB,
		MaxFrameBytes: oap.MaxPayload, ChunkBytes: oap.Chunk,
	}
}

// WorkerCount returns how many tasks run [Engine.Work].
func (c Config) WorkerCount() int { return c.Workers.Or(runtime.GOMAXPROCS(0)) }

const (
	maxBurst  = 4096
	maxFanout = 64
	maxHops   = 64
	minFrame  = 64 << 10 // nearly a chunk, or a have of a thousand ids
)

// Validate reports settings out of range.
func (c Config) Validate() error {
	var problems []error
	between := func(key string, value, least, most int) {
		if value < least || value > most {
			problems = append(problems, config.Invalid(key, "Choose a number in between.", "%d is not between %d and %d", value, least, most))
		}
	}
	between("relay_fanout", c.RelayFanout, 1, maxFanout)
	between("burst_budget_frames", c.Burst, 1, maxBurst)
	between("hops", c.Hops, 1, maxHops)
	between("max_frame_bytes", int(c.MaxFrameBytes), minFrame, oap.MaxPayload)
	between("chunk_bytes", int(c.ChunkBytes), 1, oap.Chunk)
	if c.TTL < time.Second {
		problems = append(problems, config.Invalid("ttl", `Write a time such as "120s".`, "%s is too short for a message to reach other nodes", c.TTL))
	}
	if c.IngressBytes < 2*oap.MaxPayload {
		problems = append(problems, config.Invalid("ingress_bytes", `Choose "2MiB" or more.`, "the share of one peer, four fifths of %s, is too small for a frame of the maximum size", c.IngressBytes))
	}
	if c.Seen < 1 {
		problems = append(problems, config.Invalid("seen", "Choose 1 or more; a million takes about 40 MiB when it is full.", "%d is below 1", c.Seen))
	}
	if !c.Workers.Auto && c.Workers.Value < 1 {
		problems = append(problems, config.Invalid("workers", `Choose 1 or more, or "auto".`, "%d is below 1", c.Workers.Value))
	}
	for _, topic := range c.Unsigned {
		if err := oap.CheckTopic(topic); err != nil {
			problems = append(problems, config.Invalid("unsigned", "Write topics such as news/eu.", "%s", fault.DetailOf(err)))
		}
	}
	return errors.Join(problems...)
}

// signPolicy says which messages need no signature. It is read-only once it is
// made.
type signPolicy struct {
	disabled bool            // no message is signed
	unsigned map[string]bool // topics, including everything below them
}

func newPolicy(c Config) signPolicy {
	p := signPolicy{disabled: c.Sign == "none", unsigned: make(map[string]bool, len(c.Unsigned))}
	for _, topic := range c.Unsigned {
		p.unsigned[topic] = true
	}
	return p
}

// allowsUnsigned reports whether a message on this topic may come without a
// signature.
func (p *signPolicy) allowsUnsigned(topic string) bool {
	if p.disabled || len(p.unsigned) == 0 {
		return p.disabled
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

// The reasons for dropping messages that break no rule. There are no others.
const (
	DropIngress  = "ingress"  // the queue to the workers is full
	DropEgress   = "egress"   // the queue of a peer is full
	DropSeen     = "seen"     // the seen-set is full
	DropShare    = "share"    // the peer has used up its share of the queue or the seen-set
	DropTopics   = "topics"   // the peer names more topics than it may
	DropQuota    = "quota"    // the peer announces more than it may
	DropOversize = "oversize" // larger than the peer accepts
	DropHops     = "hops"     // no hops left
	DropExpired  = "expired"  // expired in the queue of a peer
	DropDrain    = "drain"    // the node is draining
)

// DropReasons lists every reason, for counters that exist before they count.
func DropReasons() []string {
	return []string{DropIngress, DropEgress, DropSeen, DropShare, DropTopics, DropQuota, DropOversize, DropHops, DropExpired, DropDrain}
}

// Counters is where the engine counts. Each may be called concurrently; nil
// counts nothing.
type Counters struct {
	Taken     func(n int)                // messages that came and were new
	Duplicate func(n int)                // messages that came and were known
	Rejected  func(oap.Reason)           // messages that broke a rule
	Dropped   func(reason string, n int) // messages for which there was no room
	Relayed   func(n int)                // messages that were relayed, one for each peer
	Repaired  func(n int)                // messages that were sent because a peer asked for them
	Announced func(n int)                // ids that were announced to peers
	Wanted    func(n int)                // ids that peers were asked for
	Delivered func(n int)                // messages that were delivered to subscribers of this node
	Pruned    func()                     // a peer is left out of the fan-out for a while
}

// withDefaults replaces nil functions by no-ops.
func (c Counters) withDefaults() Counters {
	for _, count := range []*func(int){&c.Taken, &c.Duplicate, &c.Relayed, &c.Repaired, &c.Announced, &c.Wanted, &c.Delivered} {
		if *count == nil {
			*count = func(int) {}
		}
	}
	if c.Rejected == nil {
		c.Rejected = func(oap.Reason) {}
	}
	if c.Dropped == nil {
		c.Dropped = func(string, int) {}
	}
	if c.Pruned == nil {
		c.Pruned = func() {}
	}
	return c
}
