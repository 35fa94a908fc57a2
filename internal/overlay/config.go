package overlay

import (
	"errors"
	"net"
	"strings"
	"time"

	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
)

// Config is the section [overlay] of the configuration.
type Config struct {
	Addr     string        `toml:"addr" doc:"The listen address of the overlay. Empty: no listener; the node only dials others." restart:"true"`
	Peers    []string      `toml:"peers" doc:"Nodes to keep a session with, as ID@HOST:PORT. They may dial this node, too."`
	LAN      bool          `toml:"lan" doc:"Find nodes in the private networks of this machine by DNS-SD, and be found there; with the default address, listen in them. Nobody is connected without having been accepted on both sides." restart:"true"`
	Exchange bool          `toml:"exchange" doc:"Introduce the peers that were named here to each other, be introduced by them, and keep sessions with nodes that they introduce, so that the network stays one without any of them. Set it to false in a private network. Where a registry lists the nodes, nobody is introduced." restart:"true"`
	Open     bool          `toml:"open" doc:"Accept nodes that are not in the configuration. Only on loopback." restart:"true"`
	Tokens   config.Secret `toml:"tokens" doc:"Tokens for peers that do not know this node: ID=TOKEN, separated by commas." restart:"true"`

	PQ            string          `toml:"pq" enum:"hybrid,required" doc:"Post-quantum key exchange: hybrid (used if the peer supports it; otherwise classical, and reported) or required." restart:"true"`
	Handshake     config.Duration `toml:"handshake" doc:"The deadline of a handshake, TLS included." seed:"overlay.handshake_timeout" restart:"true"`
	Progress      config.Duration `toml:"progress" doc:"The maximum time without progress inside a frame." seed:"timeouts.read" restart:"true"`
	Write         config.Duration `toml:"write" doc:"The maximum time without progress of a write to a peer." seed:"timeouts.write" restart:"true"`
	Idle          config.Duration `toml:"idle" doc:"The maximum silence of a peer. It is pinged at each third of it." seed:"timeouts.idle" restart:"true"`
	MaxConns      int             `toml:"max_conns" doc:"The maximum number of connections." seed:"transport.max_conns" restart:"true"`
	HandshakeRate int             `toml:"handshake_rate" doc:"The number of handshakes per second that are accepted in total; a quarter of them from one address." restart:"true"`
	Compress      string          `toml:"compress" enum:"auto,on,off" doc:"Whether frames are compressed with zstd. Auto compresses except on loopback." restart:"true"`

	Peer   PeerSection   `toml:"peer" doc:"Limits of one peer."`
	Gossip gossip.Config `toml:"gossip" doc:"The relay of messages."`
}

// PeerSection is [overlay.peer].
type PeerSection struct {
	InflightFrames int         `toml:"inflight_frames" doc:"The maximum number of frames between the queue of a peer and its connection." seed:"overlay.peer.inflight_frames" restart:"true"`
	MaxRPS         int         `toml:"max_rps" doc:"The rate of frames per second that is accepted from one peer, with a burst of the same size. Zero is no limit." seed:"overlay.peer.max_rps" restart:"true"`
	QueueBytes     config.Size `toml:"queue_bytes" doc:"The maximum size of the queue to one peer." restart:"true"`
	TotalBytes     config.Size `toml:"total_bytes" doc:"The maximum size of the queues to all peers together. One peer may use at most as much as is still free." restart:"true"`
	Topics         int         `toml:"topics" doc:"The maximum number of distinct topics of one peer." restart:"true"`
	Streams        int         `toml:"streams" doc:"The maximum number of objects that one peer may fetch concurrently." restart:"true"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	s, p := session.DefaultConfig(), session.DefaultPeerConfig()
	return Config{
		Addr: "127.0.0.1:9500", Peers: []string{}, Exchange: true,
		PQ: s.PQ, Handshake: s.Handshake, Progress: s.Progress, Write: s.Write, Idle: s.Idle,
		MaxConns: s.MaxConns, HandshakeRate: s.HandshakeRate, Compress: s.Compress,
		Peer:   PeerSection{InflightFrames: p.InflightFrames, MaxRPS: p.MaxRPS, QueueBytes: p.QueueBytes, TotalBytes: p.TotalBytes, Topics: 128, Streams: 16},
		Gossip: gossip.DefaultConfig(),
	}
}

// Large changes the defaults to those of a macronode.
func (c *Config) Large() {
	c.Handshake, c.Idle = 3*time.Second, 30*time.Second
}

func (c Config) sessions() session.Config {
	return session.Config{
		PQ: c.PQ, Handshake: c.Handshake, Progress: c.Progress, Write: c.Write, Idle: c.Idle, MaxConns: c.MaxConns,
		HandshakeRate: c.HandshakeRate, Compress: c.Compress, MaxFrameBytes: c.Gossip.MaxFrameBytes, ChunkBytes: c.Gossip.ChunkBytes,
	}
}

func (p PeerSection) sessions() session.PeerConfig {
	return session.PeerConfig{InflightFrames: p.InflightFrames, MaxRPS: p.MaxRPS, QueueBytes: p.QueueBytes, TotalBytes: p.TotalBytes}
}

// drop is what happens to a relayed frame for which there is no room.
func (c Config) drop() flow.Policy {
	if c.Gossip.Drop == "oldest" {
		return flow.DropOldest
	}
	return flow.RejectNew
}

// Validate reports settings out of range.
func (c Config) Validate() error {
	problems := []error{c.sessions().Validate()}
	if c.Addr != "" {
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			problems = append(problems, config.Invalid("addr", "Write HOST:PORT, such as 127.0.0.1:9500; port 0 picks a free one.", "%q is not a valid listen address", c.Addr))
		}
	}
	if c.Open && !loopback(c.Addr) {
		problems = append(problems, config.Invalid("open", "Listen on 127.0.0.1 or [::1], or name the peers in overlay.peers.",
			"an open overlay accepts every node, and %s is not loopback", c.Addr))
	}
	if _, err := c.contacts(); err != nil {
		problems = append(problems, config.Invalid("peers", "Write ID@HOST:PORT, as the banner of the other node shows it.", "%v", err))
	}
	if _, err := c.tokens(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Validate reports settings out of range.
func (p PeerSection) Validate() error {
	problems := []error{p.sessions().Validate()}
	if p.Topics < 1 {
		problems = append(problems, config.Invalid("topics", "Choose 1 or more.", "%d is below 1", p.Topics))
	}
	if p.Streams < 1 {
		problems = append(problems, config.Invalid("streams", "Choose 1 or more.", "%d is below 1", p.Streams))
	}
	return errors.Join(problems...)
}

// contacts parses the list of peers. The same node named twice with two
// addresses is one contact with both.
func (c Config) contacts() ([]session.Contact, error) {
	var all []session.Contact
	at := map[oap.PeerID]int{}
	for _, text := range c.Peers {
		one, err := session.ParseContact(text)
		if err != nil {
			return nil, err
		}
		if i, named := at[one.ID]; named {
			all[i].Addrs = append(all[i].Addrs, one.Addrs...)
			continue
		}
		at[one.ID] = len(all)
		all = append(all, one)
	}
	return all, nil
}

// tokens parses which token is shown to which peer.
func (c Config) tokens() (map[oap.PeerID]string, error) {
	shown := map[oap.PeerID]string{}
	for one := range strings.SplitSeq(c.Tokens.Reveal(), ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		text, token, _ := strings.Cut(one, "=")
		id, err := oap.ParsePeerID(text)
		if err != nil || token == "" {
			return nil, config.Invalid("tokens", "Write ID=TOKEN: the peer's ID, and what `micronode token mint --scope overlay:join` printed there.", "an entry is not ID=TOKEN")
		}
		shown[id] = token
	}
	return shown, nil
}

// loopback reports whether an address can be reached from this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr == ""
	}
	return config.IsLoopbackHost(host)
}
