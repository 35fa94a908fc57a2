package mailbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/mailbox"
	"micronode/internal/testkit"
)

func TestTheDefaultsHold(t *testing.T) {
	c := mailbox.DefaultConfig()
	testkit.Must(t, c.Validate())
	l := c.Limits()
	if l.Bytes != 64<<20 || l.BoxMessages != 10_000 || l.BoxBytes != 16<<20 || l.MaxMessage != 512<<10 || l.MaxDeliveries != 5 ||
		l.Visibility != 30*time.Second || l.MaxVisibility != 12*time.Hour || l.KeyLife != time.Hour || l.DeadLetters != 1000 || l.BoardNotes != 500 || l.Receivers != 1024 {
		t.Errorf("%+v", l)
	}
	if ram := c.RAMSpec(true); !ram.Zero || ram.Limits != l {
		t.Errorf("%+v", ram)
	}
	onDisk := l
	onDisk.Bytes, onDisk.BoxBytes = 1<<30, 256<<20
	if disk := c.DiskSpec("folder"); disk.Folder != "folder" || disk.Limits != onDisk || disk.MemoryBytes != 64<<20 {
		t.Errorf("%+v", disk)
	}
	c.RAMBytes, c.DiskBytes = 4*config.MiB, 100*config.MiB
	if l := c.Limits(); l.BoxBytes != 4<<20 {
		t.Errorf("a box may take more than there is: %+v", l)
	}
	c.BoxBytes = config.Auto[config.Size]{Value: 3 * config.MiB}
	if ram, disk := c.Limits(), c.DiskSpec("").Limits; ram.BoxBytes != 3<<20 || disk.BoxBytes != 3<<20 || disk.Bytes != 100<<20 {
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
	testkit.Must(t, c.Validate())
	if servers := c.Servers(); len(servers) != 4 || servers[1] != "nats+tls://b:4222" {
		t.Errorf("servers %q", servers)
	}
}

func url(text string) func(*mailbox.Config) { return func(c *mailbox.Config) { c.URL = text } }
