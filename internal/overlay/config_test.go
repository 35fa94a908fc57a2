package overlay

import (
	"strings"
	"testing"

	"micronode/internal/config"
	"micronode/internal/flow"
)

func TestConfig(t *testing.T) {
	id := strings.Repeat("a", 51) + "q"
	for name, c := range map[string]struct {
		change func(*Config)
		wrong  string
	}{
		"defaults":             {func(*Config) {}, ""},
		"no listener":          {func(c *Config) { c.Addr = "" }, ""},
		"large":                {func(c *Config) { c.Large() }, ""},
		"open on loopback":     {func(c *Config) { c.Open, c.Addr = true, "[::1]:0" }, ""},
		"open on localhost":    {func(c *Config) { c.Open, c.Addr = true, "localhost:0" }, ""},
		"open to the world":    {func(c *Config) { c.Open, c.Addr = true, "0.0.0.0:9500" }, "open"},
		"open by name":         {func(c *Config) { c.Open, c.Addr = true, "node.example.org:9500" }, "open"},
		"an address without":   {func(c *Config) { c.Addr = "9500" }, "addr"},
		"a peer":               {func(c *Config) { c.Peers = []string{id + "@192.0.2.1:9500", id + "@192.0.2.2:9500"} }, ""},
		"a peer without an ID": {func(c *Config) { c.Peers = []string{"192.0.2.1:9500"} }, "peers"},
		"a token":              {func(c *Config) { c.Tokens = config.NewSecret(id + "=mn1_x, ") }, ""},
		"a token for nobody":   {func(c *Config) { c.Tokens = config.NewSecret("mn1_x") }, "tokens"},
		"no topics":            {func(c *Config) { c.Peer.Topics = 0 }, "topics"},
		"no streams":           {func(c *Config) { c.Peer.Streams = 0 }, "streams"},
		"drop the oldest":      {func(c *Config) { c.Gossip.Drop = "oldest" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			it := DefaultConfig()
			c.change(&it)
			_, err := config.Load(struct {
				Overlay Config `toml:"overlay" doc:"x"`
			}{it}, config.Sources{})
			switch {
			case c.wrong == "" && err != nil:
				t.Error(err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWhichMessagesAreDropped(t *testing.T) {
	c := DefaultConfig()
	if c.drop() != flow.RejectNew {
		t.Errorf("by default: %s", c.drop())
	}
	c.Gossip.Drop = "oldest"
	if c.drop() != flow.DropOldest {
		t.Errorf("oldest: %s", c.drop())
	}
}

// Two addresses of one node are one contact.
func TestContactsAreMerged(t *testing.T) {
	id := strings.Repeat("a", 51) + "q"
	c := DefaultConfig()
	c.Peers = []string{id + "@192.0.2.1:9500", id + "@192.0.2.2:9500"}
	contacts, err := c.contacts()
	if err != nil || len(contacts) != 1 || len(contacts[0].Addrs) != 2 {
		t.Errorf("%+v, %v", contacts, err)
	}
}
