package session

import (
	"errors"
	"time"

	"micronode/internal/config"
	"micronode/internal/oap"
)

// Config is what sessions own of the section [overlay].
type Config struct {
	PQ            string          // hybrid (falls back where the peer lacks it, and reports it) or required
	Handshake     config.Duration // how long a handshake may take, TLS included
	Progress      config.Duration // how long a peer may stop inside a frame
	Write         config.Duration // how long a write may take
	Idle          config.Duration // how long a peer may send no frame at all; a ping is sent after each third
	MaxConns      int             // accepted connections that may be open at a time
	HandshakeRate int             // connections that are accepted in a second; a quarter of it from one address
	Compress      string          // whether we compress: auto (not on loopback), on, off
	MaxFrameBytes config.Size     // the largest payload that is accepted; overlay.gossip checks it
	ChunkBytes    config.Size     // the largest chunk of object streams; overlay.gossip checks it
}

// The settings that are words.
const (
	pqHybrid     = "hybrid"
	pqRequired   = "required"
	compressAuto = "auto"
	compressOn   = "on"
	compressOff  = "off"
)

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		PQ:            pqHybrid,
		Handshake:     2 * time.Second,
		Progress:      5 * time.Second,
		Write:         5 * time.Second,
		Idle:          15 * time.Second,
		MaxConns:      4096,
		HandshakeRate: 200,
		Compress:      compressAuto,
		MaxFrameBytes: oap.MaxPayload,
		ChunkBytes:    oap.Chunk,
	}
}

// Validate reports settings that are out of range.
func (c Config) Validate() error {
	var problems []error
	if c.PQ != pqHybrid && c.PQ != pqRequired {
		problems = append(problems, config.Invalid("pq", `Choose "hybrid" or "required".`, "%q is not a key exchange", c.PQ))
	}
	if c.Compress != compressAuto && c.Compress != compressOn && c.Compress != compressOff {
		problems = append(problems, config.Invalid("compress", `Choose "auto", "on" or "off".`, "%q is not known", c.Compress))
	}
	for _, one := range []struct {
		key  string
		time config.Duration
	}{{"handshake", c.Handshake}, {"progress", c.Progress}, {"write", c.Write}, {"idle", c.Idle}} {
		if one.time < 10*time.Millisecond {
			problems = append(problems, config.Invalid(one.key, `Write a time such as "5s".`, "%s is too short for any network", one.time))
		}
	}
	if c.MaxConns < 1 {
		problems = append(problems, config.Invalid("max_conns", "Choose 1 or more.", "no peer could connect"))
	}
	if c.HandshakeRate < 1 {
		problems = append(problems, config.Invalid("handshake_rate", "Choose 1 or more.", "no peer could connect"))
	}
	return errors.Join(problems...)
}

// PeerConfig is what sessions own of the section [overlay.peer].
type PeerConfig struct {
	InflightFrames int         // frames that may have left the queue before the connection has taken them
	MaxRPS         int         // frames a second that are accepted from one peer; 0 is no limit
	QueueBytes     config.Size // how much may be queued for one peer
	TotalBytes     config.Size // and for all of them together
}

// DefaultPeerConfig returns the defaults.
func DefaultPeerConfig() PeerConfig {
	return PeerConfig{InflightFrames: 64, MaxRPS: 500_000, QueueBytes: 4 * config.MiB, TotalBytes: 64 * config.MiB}
}

// Validate reports settings that are out of range.
func (p PeerConfig) Validate() error {
	var problems []error
	if p.InflightFrames < 1 {
		problems = append(problems, config.Invalid("inflight_frames", "Choose 1 or more.", "nothing could be sent"))
	}
	if p.MaxRPS < 0 {
		problems = append(problems, config.Invalid("max_rps", "Choose 1 or more, or 0 for no limit.", "%d is below 0", p.MaxRPS))
	}
	if p.QueueBytes < 2*oap.MaxPayload {
		problems = append(problems, config.Invalid("queue_bytes", `Choose "2MiB" or more.`, "%s is too small for two frames of the maximum size", p.QueueBytes))
	}
	if p.TotalBytes < 4*oap.MaxPayload {
		problems = append(problems, config.Invalid("total_bytes", `Choose "4MiB" or more.`, "the share of one peer, half of %s, is too small for a frame of the maximum size", p.TotalBytes))
	}
	return errors.Join(problems...)
}
