package registry

import (
	"errors"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
)

// The defaults are valid, and settings out of range are refused by name.
func TestSettings(t *testing.T) {
	good := DefaultConfig()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if err := good.Storage.Validate(); err != nil {
		t.Error(err)
	}
	for key, change := range map[string]func(*Config){
		"proposal_ttl":  func(c *Config) { c.ProposalTTL = 31 * 24 * time.Hour },
		"max_proposals": func(c *Config) { c.MaxProposals = 0 },
		"subscribers":   func(c *Config) { c.Subscribers = 1 << 20 },
		"verify_pause":  func(c *Config) { c.VerifyPause = -1 },
		"verify_share":  func(c *Config) { c.VerifyShare = 101 },
	} {
		c := DefaultConfig()
		change(&c)
		if wrong, ok := errors.AsType[*config.Problem](c.Validate()); !ok || wrong.Key != key || wrong.Next == "" {
			t.Errorf("%s: %+v", key, wrong)
		}
	}
	for key, change := range map[string]func(*Storage){
		"timeout":             func(s *Storage) { s.Timeout = 0 },
		"slow":                func(s *Storage) { s.Slow = -time.Second },
		"checkpoint_interval": func(s *Storage) { s.CheckpointInterval = 0 },
		"checkpoint_versions": func(s *Storage) { s.CheckpointVersions = 0 },
		"retain":              func(s *Storage) { s.Retain = -1 },
		"ram_bytes":           func(s *Storage) { s.RAMBytes = 1 },
		"url":                 func(s *Storage) { s.URL = "mysql://localhost" },
		"credentials in url":  func(s *Storage) { s.URL = "etcd+https://alice:secret@localhost:2379/registry" },
	} {
		s := DefaultConfig().Storage
		change(&s)
		err := s.Validate()
		if wrong, ok := errors.AsType[*config.Problem](err); !ok || wrong.Key != strings.TrimPrefix(key, "credentials in ") || wrong.Next == "" {
			t.Errorf("%s: %+v", key, wrong)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s tells what should stay a secret: %v", key, err)
		}
	}
	s := DefaultConfig().Storage
	s.URL = "etcd+https://one:2379,two:2379/registry"
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

// A log in memory is bounded.
func TestALogInMemoryIsBounded(t *testing.T) {
	storage := DefaultConfig().Storage
	storage.RAMBytes = 1 << 20
	h := startRegistry(t, withJournal(storage.InMemory()))
	h.initOne()
	for i := 0; ; i++ {
		_, err := h.Registry.Commit(t.Context(), h.approveDirectly(strings.Repeat("n", 1+i%200)+time.Duration(i).String()))
		if err == nil {
			continue
		}
		if code := codeOf(err); code != "StoreFull" && code != "QuotaExceeded" {
			t.Fatalf("full with %v", err)
		}
		break
	}
	h.call("GET", "/registry/head", nil, nil, 200)
}

// A folder that cannot be opened is an error, and not a journal.
func TestAFolderThatCannotBeOpened(t *testing.T) {
	if j, err := (Storage{}).InFolder("/dev/null/registry"); err == nil || j != nil {
		t.Errorf("opened %v, %v", j, err)
	}
}
