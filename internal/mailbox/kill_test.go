package mailbox_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
)

// victimFolder is the environment of a process that is there to be killed.
const victimFolder = "MAILBOX_TEST_VICTIM_FOLDER"

func victimSpec(folder string) mailbox.DiskSpec {
	return mailbox.DiskSpec{Limits: mailboxtest.Limits(), Folder: folder, CompactAt: 16 << 10} // so that it is written anew all the time
}

// victim sends and acknowledges until it is killed, and says what was done. What
// it is about to do it says before.
func victim(folder string) {
	d, err := mailbox.OpenDisk(flow.NewInventory(), victimSpec(folder))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	ctx := context.Background()
	for _, task := range d.Tasks() {
		go func() { _ = task.Serve(ctx) }()
	}
	say := func(words ...any) { fmt.Println(words...) } // one write, which a pipe takes whole
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

// testament is what a victim has said of each message: the last word.
type testament map[string]string

// run starts a victim, kills it after it has said enough, and hears it to the
// end.
func (said testament) run(t *testing.T, folder string, enough int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), victimFolder+"="+folder)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, body, whole := strings.Cut(lines.Text(), " ")
		if word == "error" {
			t.Errorf("the victim says %q", lines.Text())
		}
		// A message may be received before its sender has heard that it is kept.
		if whole && !(word == "sent" && strings.HasPrefix(said[body], "ack")) {
			said[body] = word
		}
		if enough--; enough == 0 {
			_ = child.Process.Kill()
		}
	}
	_ = child.Wait() // it was killed
}

// check opens what a victim has left. What it said is sent is there, what it said
// is acknowledged is not, and of what it was doing either may be.
func (said testament) check(t *testing.T, folder string) {
	t.Helper()
	d, err := mailbox.OpenDisk(flow.NewInventory(), victimSpec(folder))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	seen := map[string]bool{}
	for {
		got, err := d.Receive(t.Context(), "jobs", time.Minute, 0)
		if fault.KindOf(err) == fault.NotFound {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body := string(got.Body)
		if seen[body] || said[body] == "" || said[body] == "acked" {
			t.Fatalf("%s is there; seen before: %t; the victim said %q", body, seen[body], said[body])
		}
		seen[body] = true
		if err := d.Ack(t.Context(), "jobs", got.Receipt); err != nil {
			t.Fatal(err)
		}
	}
	// The rest is leased to the dead, for an hour.
	left := int(d.Usage().Leased)
	for body, word := range said {
		if word == "sent" && !seen[body] {
			left--
		}
		if word == "sent" || word == "acking" || word == "acked" {
			if again, err := d.Send(t.Context(), mailbox.Message{Box: "jobs", Key: body, Body: []byte(body), MaxDeliveries: 1000}); err != nil || !again.Repeated {
				t.Fatalf("%s, of which the victim said %q, was forgotten: %+v, %v", body, word, again, err)
			}
		}
		delete(said, body)
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
		folder, said := t.TempDir(), testament{}
		said.run(t, folder, 100+rand.IntN(600))
		said.check(t, folder)
	}
}
