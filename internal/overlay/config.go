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
	Addr   string        `toml:"addr" doc:"Where other nodes can reach this one. Empty: nowhere; it only calls others." restart:"true"`
	Peers  []string      `toml:"peers" doc:"Nodes to keep a session with, as ID@HOST:PORT. They may call us, too."`
	Open   bool          `toml:"open" doc:"Let in nodes that nobody named. Only on loopback." restart:"true"`
	Tokens config.Secret `toml:"tokens" doc:"What to show to peers that do not know this node: ID=TOKEN, with commas between them." restart:"true"`

	PQ            string          `toml:"pq" enum:"hybrid,required" doc:"Post-quantum key exchange: hybrid (used where the other side can, and told where it cannot) or required." restart:"true"`
	Handshake     config.Duration `toml:"handshake" doc:"How long a handshake may take, TLS included." seed:"overlay.handshake_timeout" restart:"true"`
	Progress      config.Duration `toml:"progress" doc:"How long a frame that has begun may bring nothing." seed:"timeouts.read" restart:"true"`
	Write         config.Duration `toml:"write" doc:"How long a peer may take nothing of what is written to it." seed:"timeouts.write" restart:"true"`
	Idle          config.Duration `toml:"idle" doc:"How long a peer may be silent. It is pinged at each third of it." seed:"timeouts.idle" restart:"true"`
	MaxConns      int             `toml:"max_conns" doc:"How many connections there may be." seed:"transport.max_conns" restart:"true"`
	HandshakeRate int             `toml:"handshake_rate" doc:"Handshakes a second that are taken from all; a quarter of them from one address." restart:"true"`
	Compress      string          `toml:"compress" enum:"auto,on,off" doc:"Whether frames are compressed with zstd: auto is not on loopback." restart:"true"`

	Peer   PeerSection   `toml:"peer" doc:"What one peer is granted."`
	Gossip gossip.Config `toml:"gossip" doc:"How letters are passed on."`
}

// PeerSection is [overlay.peer].
type PeerSection struct {
	InflightFrames int         `toml:"inflight_frames" doc:"Frames of gossip that may be on their way to one peer." seed:"overlay.peer.inflight_frames" restart:"true"`
	MaxRPS         int         `toml:"max_rps" doc:"Frames a second that are taken from one peer. Zero is any number." seed:"overlay.peer.max_rps" restart:"true"`
	QueueBytes     config.Size `toml:"queue_bytes" doc:"How much may wait for one peer." restart:"true"`
	Topics         int         `toml:"topics" doc:"Distinct topics that are taken from one peer." restart:"true"`
	Streams        int         `toml:"streams" doc:"Objects that one peer may fetch at the same time." restart:"true"`
}

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	s, p := session.DefaultConfig(), session.DefaultPeerConfig()
	return Config{
		Addr: "127.0.0.1:9500", Peers: []string{},
		PQ: s.PQ, Handshake: s.Handshake, Progress: s.Progress, Write: s.Write, Idle: s.Idle,
		MaxConns: s.MaxConns, HandshakeRate: s.HandshakeRate, Compress: s.Compress,
		Peer:   PeerSection{InflightFrames: p.InflightFrames, MaxRPS: p.MaxRPS, QueueBytes: p.QueueBytes, Topics: 128, Streams: 16},
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
	return session.PeerConfig{InflightFrames: p.InflightFrames, MaxRPS: p.MaxRPS, QueueBytes: p.QueueBytes}
}

// drop is what happens to a relayed frame for which there is no room.
func (c Config) drop() flow.Policy {
	if c.Gossip.Drop == "oldest" {
		return flow.DropOldest
	}
	return flow.RejectNew
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	problems := []error{c.sessions().Validate()}
	if c.Addr != "" {
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			problems = append(problems, config.Wrong("addr", "Write HOST:PORT, such as 127.0.0.1:9500; port 0 picks a free one.", "%q is no address to listen on", c.Addr))
		}
	}
	if c.Open && !loopback(c.Addr) {
		problems = append(problems, config.Wrong("open", "Listen on 127.0.0.1 or [::1], or name the peers in overlay.peers.",
			"an open overlay lets in everybody, and %s can be reached from outside", c.Addr))
	}
	if _, err := c.contacts(); err != nil {
		problems = append(problems, config.Wrong("peers", "Write ID@HOST:PORT, as the banner of the other node shows it.", "%v", err))
	}
	if _, err := c.tokens(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Validate refuses what cannot be meant.
func (p PeerSection) Validate() error {
	problems := []error{p.sessions().Validate()}
	if p.Topics < 1 {
		problems = append(problems, config.Wrong("topics", "Choose 1 or more.", "a peer that may name %d topics can say nothing", p.Topics))
	}
	if p.Streams < 1 {
		problems = append(problems, config.Wrong("streams", "Choose 1 or more.", "a peer that may open %d streams gets nothing", p.Streams))
	}
	return errors.Join(problems...)
}

// contacts reads the list of peers. The same node named twice with two
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

// tokens reads what to show to whom.
func (c Config) tokens() (map[oap.PeerID]string, error) {
	shown := map[oap.PeerID]string{}
	for one := range strings.SplitSeq(c.Tokens.Reveal(), ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		text, token, _ := strings.Cut(one, "=")
		id, err := oap.ParsePeerID(text)
		if err != nil || token == "" {
			return nil, config.Wrong("tokens", "Write ID=TOKEN: the peer's ID, and what `micronode token mint --scope overlay:join` printed there.", "an entry does not say which token is for whom")
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
	return config.OnThisMachine(host)
}
