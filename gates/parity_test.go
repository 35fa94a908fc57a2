//go:build gates

package gates

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/node/nodetest"
)

// nodeVariant is a way to run a node that must make no difference to its users:
// with one core or with all, in memory only or with a folder.
type nodeVariant struct {
	threads  string // of MICRO_THREADS; empty for all cores
	persists bool
}

var nodeVariants = []nodeVariant{{"1", false}, {"", false}, {"1", true}, {"", true}}

func (n nodeVariant) String() string {
	cores, memory := "all cores", "amnesia"
	if n.threads != "" {
		cores = "MICRO_THREADS=" + n.threads
	}
	if n.persists {
		memory = "persist"
	}
	return cores + ", " + memory
}

// environment is the settings of the variant.
func (n nodeVariant) environment() []string {
	if n.threads == "" {
		return nil
	}
	return []string{"MICRO_THREADS=" + n.threads}
}

// arguments make it persistent, if it is, in a folder of its own.
func (n nodeVariant) arguments(t *testing.T) []string {
	if !n.persists {
		return nil
	}
	return []string{"--persist", t.TempDir()}
}

// The variant of a node makes no difference: the script of everything that a
// client can request has the same transcript, line by line, and half a body is
// rejected on every route.
func TestParity(t *testing.T) {
	var want []string
	for _, f := range nodeVariants {
		t.Run(f.String(), func(t *testing.T) {
			p := startWith(t, nil, f.arguments(t), append(append(f.environment(), unlimited...), allFacets...)...)
			addr, id := p.overlayEndpoint()
			got := nodetest.Run(t, nodetest.Target{URL: p.http, Local: p.local(), Peer: startConnectedPeer(t, p.local(), id+"@"+addr)})
			if want == nil {
				want = got
			}
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Fatalf("the transcripts differ in line %d:\n  %q\n  %q", i+1, want[min(i, len(want)-1)], got[min(i, len(got)-1)])
				}
			}
			t.Logf("%d lines of the script are the same", len(got))
			report(t, "parity of one core and all", "the same transcript", fmt.Sprintf("%d lines", len(got)))
			for _, e := range sendAll(strings.TrimPrefix(p.http, "http://"), p.token(allScopes...), p.halfBodyRequests(), 1) {
				if e.err != nil || e.answer != e.want() && e.answer != standInAnswer {
					t.Errorf("%s: %s, want %s (%v)", e.blockingRequest, e.answer, e.want(), e.err)
				}
			}
			p.stop(syscall.SIGTERM)
		})
	}
}

// The variant of a node makes no difference to when half a body is rejected: at
// its deadline, on every route.
func TestParityOfDeadlines(t *testing.T) {
	for _, f := range nodeVariants {
		t.Run(f.String(), func(t *testing.T) {
			p := startWith(t, nil, f.arguments(t), append(append(f.environment(), unlimited...), allFacets...)...)
			host, token := strings.TrimPrefix(p.http, "http://"), p.token(allScopes...)
			retryMeasurement(t, func() error { return checkDeadlines(t, sendAll(host, token, p.halfBodyRequests(), 1)) })
			p.stop(syscall.SIGTERM)
		})
	}
}

// The whole node under everything at once: each kind of work continues beside
// the others, refusals are typed, a shutdown in the middle of it is clean and
// in time, and with a folder nothing that was acknowledged is lost. With one
// core as with all, in amnesia mode and not.
func TestWholeNodeUnderMixedLoad(t *testing.T) {
	span := 1500 * time.Millisecond
	if isLong() {
		span = 30 * time.Second
	}
	var stops []time.Duration
	for _, f := range nodeVariants {
		t.Run(f.String(), func(t *testing.T) {
			book, arguments := newWorkLog(), f.arguments(t)
			w := newFullNode(t, binary, arguments, f.environment()...)
			w.prepare(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			group := w.runUsers(ctx, book, 0)
			time.Sleep(span)
			timer := watchTimer()
			took := w.stop(syscall.SIGTERM)
			late := timer()
			cancel()
			group.Wait()
			stops = append(stops, took-late.worst)
			t.Logf("done %v; refused %v; stopped in %s", book.completed, book.refusals, took)
			report(t, "the whole node under mixed load", "drained in time, nothing acknowledged lost", fmt.Sprintf("drained in %s", rounded(took)))
			w.check(book)
			if text := w.stderr.String(); !strings.Contains(text, " 0 aborted, 0 left running") {
				t.Errorf("the drain was not clean:\n%s", text)
			}
			if f.persists {
				p := startWith(t, nil, arguments, w.settings...)
				p.checkAcknowledged(book, w.council)
				p.stop(syscall.SIGTERM)
			}
		})
	}
	if slowest := percentile(stops, 1); slowest > 5*time.Second || percentile(stops, 0.5) > 2*time.Second {
		t.Errorf("stopping took too long: %v", stops)
	}
}

// checkAcknowledged checks that nothing is missing that was acknowledged.
func (p *process) checkAcknowledged(book *workLog, council *testRegistry) {
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
	for version, hash := range council.acknowledgedVersions {
		if kept, err := c.RegistryVersion(p.t.Context(), version, false); err != nil || kept.Hash != hash {
			p.t.Fatalf("version %d was acknowledged as %s; now: %s, %v", version, hash, kept.Hash, err)
		}
	}
	p.t.Logf("kept: %d objects, %d names, %d follows, %d versions, %d messages", len(book.objects), len(book.names), len(book.follows), len(council.acknowledgedVersions), len(book.unacked()))
	p.checkMail(book)
}

// checkMail receives all messages, and checks that none is missing that was
// acknowledged.
func (p *process) checkMail(book *workLog) {
	p.t.Helper()
	c, left := p.local(), book.unacked()
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
	for _, deadLetter := range dead.Messages {
		delete(left, deadLetter.ID)
	}
	if len(left) > 0 {
		p.t.Errorf("%d messages that were acknowledged are gone", len(left))
	}
}
