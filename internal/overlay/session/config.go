package session

import (
	"errors"
	"time"

	"micronode/internal/config"
	"micronode/internal/oap"
)

// Config is what sessions own of the section [overlay].
type Config struct {
	PQ            string          // hybrid (falls back where the peer lacks it, and says so) or required
	Handshake     config.Duration // how long a handshake may take, TLS included
	Progress      config.Duration // how long a peer may stop inside a frame
	Write         config.Duration // how long a write may take
	Idle          config.Duration // how long a peer may send no frame at all; it is asked with a ping after each third
	MaxConns      int             // connections that are accepted at a time
	HandshakeRate int             // connections that are accepted in a second; a quarter of it from one address
	Compress      string          // whether we compress: auto (not on loopback), on, off
	MaxFrameBytes config.Size     // the largest payload that is taken; overlay.gossip checks it
	ChunkBytes    config.Size     // the chunk of object streams, at most; overlay.gossip checks it
}

// The settings that are words.
const (
	hybrid   = "hybrid"
	required = "required"
	auto     = "auto"
	on       = "on"
	off      = "off"
)

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	return Config{
		PQ:            hybrid,
		Handshake:     2 * time.Second,
		Progress:      5 * time.Second,
		Write:         5 * time.Second,
		Idle:          15 * time.Second,
		MaxConns:      4096,
		HandshakeRate: 200,
		Compress:      auto,
		MaxFrameBytes: oap.MaxPayload,
		ChunkBytes:    oap.Chunk,
	}
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var problems []error
	if c.PQ != hybrid && c.PQ != required {
		problems = append(problems, config.Wrong("pq", `Choose "hybrid" or "required".`, "%q is no way to exchange keys", c.PQ))
	}
	if c.Compress != auto && c.Compress != on && c.Compress != off {
		problems = append(problems, config.Wrong("compress", `Choose "auto", "on" or "off".`, "%q is not known", c.Compress))
	}
	for _, one := range []struct {
		key  string
		time config.Duration
	}{{"handshake", c.Handshake}, {"progress", c.Progress}, {"write", c.Write}, {"idle", c.Idle}} {
		if one.time < 10*time.Millisecond {
			problems = append(problems, config.Wrong(one.key, `Write a time such as "5s".`, "%s is too short for any network", one.time))
		}
	}
	if c.MaxConns < 1 {
		problems = append(problems, config.Wrong("max_conns", "Choose 1 or more.", "nobody could connect"))
	}
	if c.HandshakeRate < 1 {
		problems = append(problems, config.Wrong("handshake_rate", "Choose 1 or more.", "nobody could connect"))
	}
	return errors.Join(problems...)
}

// PeerConfig is what sessions own of the section [overlay.peer].
type PeerConfig struct {
	InflightFrames int         // frames of gossip that may be on their way to one peer
	MaxRPS         int         // frames a second that are taken from one peer; 0 is no limit
	QueueBytes     config.Size // how much may wait to be sent to one peer
}

// DefaultPeerConfig is what holds where nobody says otherwise.
func DefaultPeerConfig() PeerConfig {
	return PeerConfig{InflightFrames: 64, QueueBytes: 4 * config.MiB}
}

// Validate refuses what cannot be meant.
func (p PeerConfig) Validate() error {
	var problems []error
	if p.InflightFrames < 1 {
		problems = append(problems, config.Wrong("inflight_frames", "Choose 1 or more.", "nothing could be sent"))
	}
	if p.MaxRPS < 0 {
		problems = append(problems, config.Wrong("max_rps", "Choose 1 or more, or 0 for no limit.", "%d frames a second cannot be taken", p.MaxRPS))
	}
	if p.QueueBytes < 2*oap.MaxPayload {
		problems = append(problems, config.Wrong("queue_bytes", `Choose "2MiB" or more.`, "%s has no room for two frames of the largest size", p.QueueBytes))
	}
	return errors.Join(problems...)
}
