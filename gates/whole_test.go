//go:build gates

package gates

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/node/nodetest"
)

// form is a way to run a node that must make no difference to its users: with
// one core or with all, in memory only or with a folder.
type form struct {
	threads string // of MICRO_THREADS; empty for all cores
	keeps   bool
}

var forms = []form{{"1", false}, {"", false}, {"1", true}, {"", true}}

func (f form) String() string {
	cores, memory := "all cores", "amnesia"
	if f.threads != "" {
		cores = "MICRO_THREADS=" + f.threads
	}
	if f.keeps {
		memory = "persist"
	}
	return cores + ", " + memory
}

// environment is what makes a node of the form.
func (f form) environment() []string {
	if f.threads == "" {
		return nil
	}
	return []string{"MICRO_THREADS=" + f.threads}
}

// arguments are what makes it keep things, if it does, in a folder of its own.
func (f form) arguments(t *testing.T) []string {
	if !f.keeps {
		return nil
	}
	return []string{"--persist", t.TempDir()}
}

// The form of a node makes no difference: the script of everything that a client
// can ask has the same transcript, line by line; half a body is refused at its
// deadline on every route; and a node that is full says so at once.
func TestParity(t *testing.T) {
	var want []string
	for _, f := range forms {
		t.Run(f.String(), func(t *testing.T) {
			p := startWith(t, nil, f.arguments(t), append(append(f.environment(), unlimited...), everything...)...)
			addr, id := p.overlayOf()
			got := nodetest.Run(t, nodetest.Target{URL: p.http, Local: p.local(), Peer: company(t, p.local(), id+"@"+addr)})
			if want == nil {
				want = got
			}
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Fatalf("the transcripts differ in line %d:\n  %q\n  %q", i+1, want[min(i, len(want)-1)], got[min(i, len(got)-1)])
				}
			}
			t.Logf("%d lines of the script are the same", len(got))
			host, token := strings.TrimPrefix(p.http, "http://"), p.token(scopes...)
			measured(t, func() error { return exact(t, all(host, token, p.bodies(), 1)) })
			p.stop(syscall.SIGTERM)
		})
	}
}

// The whole node under everything at once: each kind of work goes on beside the
// others, refusals are typed, a shutdown in the middle of it is clean and in
// time, and with a folder nothing that was acknowledged is lost. With one core
// as with all, in amnesia and not.
func TestWholeNodeUnderMixedLoad(t *testing.T) {
	span := 1500 * time.Millisecond
	if long() {
		span = 30 * time.Second
	}
	var stops []time.Duration
	for _, f := range forms {
		t.Run(f.String(), func(t *testing.T) {
			book, arguments := newLedger(), f.arguments(t)
			w := newTown(t, binary, arguments, f.environment()...)
			w.settle(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			group := w.users(ctx, book, 0)
			time.Sleep(span)
			took := w.stop(syscall.SIGTERM)
			cancel()
			group.Wait()
			stops = append(stops, took)
			t.Logf("done %v; refused %v; stopped in %s", book.did, book.refusals, took)
			w.judge(book)
			if text := w.stderr.String(); !strings.Contains(text, " 0 aborted, 0 left running") {
				t.Errorf("the drain was not clean:\n%s", text)
			}
			if f.keeps {
				p := startWith(t, nil, arguments, w.settings...)
				p.checkBook(book, w.council)
				p.stop(syscall.SIGTERM)
			}
		})
	}
	if slowest := percentile(stops, 1); slowest > 5*time.Second || percentile(stops, 0.5) > 2*time.Second {
		t.Errorf("stopping took too long: %v", stops)
	}
}

// checkBook looks that nothing is missing that was acknowledged.
func (p *process) checkBook(book *ledger, council *council) {
	p.t.Helper()
	c := p.local()
	for text := range book.objects {
		if _, err := c.Stat(p.t.Context(), must(b3.Parse(text))); err != nil {
			p.t.Fatalf("an object that was acknowledged: %v", err)
		}
	}
	names, err := c.Names(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, one := range names {
		known[one.Name] = true
	}
	for name := range book.names {
		if !known[name] {
			p.t.Errorf("the name %s was acknowledged, and is gone", name)
		}
	}
	for name := range book.follows {
		near, err := c.Neighbours(p.t.Context(), name, client.NeighboursOptions{})
		if err != nil || len(near.Neighbors) != 1 {
			p.t.Fatalf("%s follows ann, it was said; now: %+v, %v", name, near, err)
		}
	}
	for version, hash := range council.told {
		if kept, err := c.RegistryVersion(p.t.Context(), version, false); err != nil || kept.Hash != hash {
			p.t.Fatalf("version %d was acknowledged as %s; now: %s, %v", version, hash, kept.Hash, err)
		}
	}
	p.t.Logf("kept: %d objects, %d names, %d follows, %d versions, %d messages", len(book.objects), len(book.names), len(book.follows), len(council.told), len(book.left()))
	p.checkMail(book)
}

// checkMail receives all messages, and looks that none is missing that was
// acknowledged.
func (p *process) checkMail(book *ledger) {
	p.t.Helper()
	c, left := p.local(), book.left()
	for deadline := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(deadline); {
		mail, err := c.ReceiveMail(p.t.Context(), "jobs", client.ReceiveOptions{Visibility: time.Minute, Wait: time.Second})
		if errors.Is(err, fault.NotFound) {
			continue // some may be leased for a moment yet
		}
		if err != nil {
			p.t.Fatal(err)
		}
		delete(left, mail.ID)
	}
	dead, err := c.DeadMail(p.t.Context(), "jobs", "", 100)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, letter := range dead.Letters {
		delete(left, letter.ID)
	}
	if len(left) > 0 {
		p.t.Errorf("%d messages that were acknowledged are gone", len(left))
	}
}
