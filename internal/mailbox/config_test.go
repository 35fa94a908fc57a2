package mailbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/mailbox"
)

func TestTheDefaultsHold(t *testing.T) {
	c := mailbox.DefaultConfig()
	must(t, c.Validate())
	l := c.Limits()
	if l.Bytes != 64<<20 || l.BoxMessages != 10_000 || l.BoxBytes != 16<<20 || l.MaxMessage != 512<<10 || l.MaxDeliveries != 5 ||
		l.Visibility != 30*time.Second || l.MaxVisibility != 12*time.Hour || l.KeyLife != time.Hour || l.Dead != 1000 || l.BoardNotes != 500 || l.Waiting != 1024 {
		t.Errorf("%+v", l)
	}
	if ram, disk := c.RAMSpec(true), c.DiskSpec("folder"); !ram.Zero || ram.Limits != l || disk.Folder != "folder" || disk.Limits != l {
		t.Errorf("%+v, %+v", ram, disk)
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	for key, changes := range map[string][]func(*mailbox.Config){
		"max_message_bytes": {func(c *mailbox.Config) { c.MaxMessageBytes = 0 }, func(c *mailbox.Config) { c.MaxMessageBytes = 1 << 20 }},
		"max_deliveries":    {func(c *mailbox.Config) { c.MaxDeliveries = 0 }, func(c *mailbox.Config) { c.MaxDeliveries = 1001 }},
		"visibility":        {func(c *mailbox.Config) { c.Visibility = 0 }, func(c *mailbox.Config) { c.Visibility = 13 * time.Hour }},
		"max_wait":          {func(c *mailbox.Config) { c.MaxWait = -1 }, func(c *mailbox.Config) { c.MaxWait = time.Minute }},
		"receivers":         {func(c *mailbox.Config) { c.Receivers = 0 }},
		"key_life":          {func(c *mailbox.Config) { c.KeyLife = time.Second }},
		"dead_life":         {func(c *mailbox.Config) { c.DeadLife = 0 }},
		"boxes":             {func(c *mailbox.Config) { c.Boxes = 0 }},
		"box_messages":      {func(c *mailbox.Config) { c.BoxMessages = 0 }},
		"boards":            {func(c *mailbox.Config) { c.Boards = 0 }},
		"board_notes":       {func(c *mailbox.Config) { c.BoardNotes = 0 }},
		"url": {url("http://x:1"), url("nats://example.org:4222"), url("nats+tls://"), url("nats+tls://user:secret@h:1"), url("nats+tls://h/path"),
			url("nats+tls://h:1,nats://other:1"), url("nats+tls://%zz")},
	} {
		for i, change := range changes {
			c := mailbox.DefaultConfig()
			change(&c)
			err := c.Validate()
			problem, ok := errors.AsType[*config.Problem](err)
			if !ok || problem.Key != key || problem.Next == "" || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %d: %v", key, i, err)
			}
		}
	}
	c := mailbox.DefaultConfig()
	c.URL = "nats+tls://a:4222, nats+tls://b:4222,nats://127.0.0.1:4222,nats://localhost:4222"
	must(t, c.Validate())
	if servers := c.Servers(); len(servers) != 4 || servers[1] != "nats+tls://b:4222" {
		t.Errorf("servers %q", servers)
	}
}

func url(text string) func(*mailbox.Config) { return func(c *mailbox.Config) { c.URL = text } }
