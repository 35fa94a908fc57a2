package mailbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

func victimSpec(folder string) mailbox.DiskSpec {
	return mailbox.DiskSpec{Limits: mailboxtest.Limits(), Folder: folder, CompactAt: 16 << 10} // so that it is compacted all the time
}

// victim sends and acknowledges until it is killed, and reports what was done.
// What it is about to do it reports before.
func victim(args []string) int {
	d, err := mailbox.OpenDisk(flow.NewInventory(), victimSpec(args[0]))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx := context.Background()
	for _, task := range d.Tasks() {
		go func() { _ = task.Serve(ctx) }()
	}
	say := func(words ...any) { fmt.Println(words...) } // one write, which is atomic on a pipe
	for range 3 {
		go func() {
			for {
				body := fmt.Sprintf("%x", rand.Uint64())
				say("sending", body)
				if _, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: body, Body: []byte(body), MaxDeliveries: 1000}); err != nil {
					say("error", err)
				}
				say("sent", body)
			}
		}()
	}
	for range 2 {
		go func() {
			for {
				got, err := d.Receive(ctx, "jobs", time.Hour, time.Second)
				if fault.KindOf(err) == fault.NotFound {
					continue
				}
				if err != nil {
					say("error", err)
				}
				say("acking", string(got.Body))
				if err := d.Ack(ctx, "jobs", got.Receipt); err != nil {
					say("error", err)
				}
				say("acked", string(got.Body))
			}
		}()
	}
	select {}
}

// reports is the last report of a victim on each message.
type reports map[string]string

// run starts a victim, kills it after enough reports, and reads the rest of its
// output.
func (r reports) run(t *testing.T, folder string, maxLines int) {
	t.Helper()
	child := testkit.Child("victim", folder)
	testkit.ReadChild(t, child, func(line string) {
		word, body, whole := strings.Cut(line, " ")
		if word == "error" {
			t.Errorf("the victim says %q", line)
		}
		// A message may be received before its sender has got the result.
		if whole && !(word == "sent" && strings.HasPrefix(r[body], "ack")) {
			r[body] = word
		}
		if maxLines--; maxLines == 0 {
			_ = child.Process.Kill()
		}
	})
}

// check opens what a victim has left. What it reported as sent is there, what
// it reported as acknowledged is not, and of what it was doing either may be.
func (r reports) check(t *testing.T, folder string) {
	t.Helper()
	d, err := mailbox.OpenDisk(flow.NewInventory(), victimSpec(folder))
	testkit.Must(t, err)
	defer d.Close()
	seen := map[string]bool{}
	for {
		got, err := d.Receive(t.Context(), "jobs", time.Minute, 0)
		if fault.KindOf(err) == fault.NotFound {
			break
		}
		testkit.Must(t, err)
		body := string(got.Body)
		if seen[body] || r[body] == "" || r[body] == "acked" {
			t.Fatalf("%s is there; seen before: %t; the victim said %q", body, seen[body], r[body])
		}
		seen[body] = true
		testkit.Must(t, d.Ack(t.Context(), "jobs", got.Receipt))
	}
	// The rest is leased to the killed process, for an hour.
	left := int(d.Usage().Leased)
	for body, word := range r {
		if word == "sent" && !seen[body] {
			left--
		}
		if word == "sent" || word == "acking" || word == "acked" {
			if again, err := d.Send(t.Context(), mailbox.Message{Box: "jobs", Key: body, Body: []byte(body), MaxDeliveries: 1000}); err != nil || !again.Repeated {
				t.Fatalf("%s, of which the victim said %q, was forgotten: %+v, %v", body, word, again, err)
			}
		}
		delete(r, body)
	}
	if left < 0 {
		t.Fatalf("%d messages that were sent are neither to be had nor leased", -left)
	}
}

// TestKilled kills one process after the other while it sends and acknowledges.
func TestKilled(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		folder, said := t.TempDir(), reports{}
		said.run(t, folder, 100+rand.IntN(600))
		said.check(t, folder)
	}
}
