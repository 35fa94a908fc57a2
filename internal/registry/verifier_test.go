package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// damageFile changes the first file of a subfolder.
func damageFile(t testing.TB, folder, part string, how func(content []byte)) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(folder, part))
	testkit.Must(t, err)
	name := filepath.Join(folder, part, entries[0].Name())
	content, err := os.ReadFile(name)
	testkit.Must(t, err)
	how(content)
	testkit.Must(t, os.WriteFile(name, content, 0o600))
}

// Damage in the middle of the log is found by the verifier: it is audited, nothing more
// is written, and what is not damaged is served.
func TestDamageInTheMiddle(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	begun := h.initOne()
	h.grow(300)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.close()
	damageFile(t, folder, "segments", func(segment []byte) { segment[len(segment)/3] ^= 0x40 })

	again := startRegistry(t, withJournal(openFiles(t, folder)))
	testkit.WaitFor(t, "the damage is audited", func() bool { return len(again.log.ofType(EventDamaged)) > 0 })
	testkit.WaitFor(t, "a round has found it", func() bool { return again.metricSum("registry_verify_rounds_total", "outcome=damaged") == 1 })
	v := again.readiness.Evaluate()
	if v.WriteReady || !v.Ready || !slices.ContainsFunc(v.Reasons, func(r observe.Reason) bool { return strings.Contains(r.Reason, "damaged at version") && r.Next != "" }) {
		t.Errorf("the verdict is %+v", v)
	}
	p := again.proposeApproved([]json.RawMessage{putName("more", "1")}, alice, bob)
	again.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "IntegrityFail")
	again.call("GET", "/registry/head", nil, nil, 200)
	again.call("GET", "/registry/299", nil, nil, 200)
	served, broken := 0, 0
	for version := range 256 {
		status, data := again.send(t.Context(), "GET", fmt.Sprintf("/registry/%d?items=false", version), nil)
		switch {
		case status == 200:
			served++
		case strings.Contains(string(data), "IntegrityFail"):
			broken++
		default:
			t.Errorf("version %d: %d %s", version, status, data)
		}
	}
	if broken == 0 || served < 250 {
		t.Errorf("%d are served and %d are said to be broken", served, broken)
	}
	again.close()
	if _, err := VerifyFolder(t.Context(), folder, Trust{Registry: &begun.Registry}, nil); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("from outside: %v", err)
	}
}

// mustVerify verifies the whole log once, and fails if it is not right.
func (r *testRegistry) mustVerify() {
	r.t.Helper()
	derivedDamage, err := r.verifyRound(r.ctx(), nil)
	testkit.Must(r.t, errors.Join(derivedDamage, err))
}

// The verifier reports its progress, and its finished rounds.
func TestTheVerifierGoesRound(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	h.init()
	h.grow(50)
	h.close()
	again := startRegistry(t, withJournal(openFiles(t, folder)), withConfig(func(c *Config) { c.VerifyPause = time.Millisecond }))
	testkit.WaitFor(t, "a round has ended", func() bool { return again.metricSum("registry_verify_rounds_total", "outcome=ok") >= 1 })
	if at := again.metricSum("registry_verified_version"); at != 49 {
		t.Errorf("it has come to version %v", at)
	}
	again.grow(60)
	testkit.WaitFor(t, "the next round has ended", func() bool { return again.metricSum("registry_verified_version") == 59 }) // the next round
}

// alteringJournal is a journal whose Scan returns altered records.
type alteringJournal struct {
	Journal
	alter func(ledger.Record) (ledger.Record, error)
}

func (a *alteringJournal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return a.Journal.Scan(ctx, from, func(r ledger.Record) error {
		r, err := a.alter(r)
		if err != nil {
			return err
		}
		return visit(r)
	})
}

// Damage that a checksum would not find is found all the same, and stops writes, too.
func TestARecordThatIsWhole(t *testing.T) {
	var damaged atomic.Bool
	h := startRegistry(t, withJournal(&alteringJournal{newRAMJournal(), func(r ledger.Record) (ledger.Record, error) {
		if r.Version == 3 && damaged.Load() {
			r.Header = append([]byte(nil), r.Header...)
			r.Header[len(r.Header)-3] ^= 1
		}
		return r, nil
	}}))
	h.init()
	h.grow(6)
	damaged.Store(true)
	_, err := h.verifyRound(t.Context(), nil)
	if fault.KindOf(err) != fault.IntegrityFail {
		t.Fatalf("the round ends with %v", err)
	}
	h.health.setDamage(err)
	p := h.proposeApproved([]json.RawMessage{putName("more", "1")}, alice, bob)
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "IntegrityFail")
	h.call("GET", "/registry/head", nil, nil, 200)
}

// New versions are read back when they are committed, and not only in the next round,
// which may be hours away. Damage to one stops writes.
func TestNewVersionsAreVerifiedAtOnce(t *testing.T) {
	var damaged atomic.Bool
	h := startRegistry(t, withJournal(&alteringJournal{newRAMJournal(), func(r ledger.Record) (ledger.Record, error) {
		if damaged.Load() {
			r.Payload = append([]byte(nil), r.Payload...)
			r.Payload[len(r.Payload)-3] ^= 1
		}
		return r, nil
	}}))
	testkit.WaitFor(t, "the only round has ended", func() bool { return h.metricSum("registry_verify_rounds_total") == 1 })
	h.init()
	h.grow(20)
	testkit.WaitFor(t, "all versions are verified", func() bool { return h.metricSum("registry_verified_commits_total") == 20 })
	if v := h.readiness.Evaluate(); !v.WriteReady {
		t.Errorf("the verdict is %+v", v)
	}
	damaged.Store(true)
	h.commitChange(putName("more", "1"))
	testkit.WaitFor(t, "the damage is audited", func() bool { return len(h.log.ofType(EventDamaged)) == 1 })
	if v := h.readiness.Evaluate(); v.WriteReady || !v.Ready {
		t.Errorf("the verdict is %+v", v)
	}
	testkit.Equal(t, "rounds", h.metricSum("registry_verify_rounds_total"), 1)
}

// A storage that cannot be read when a version is committed is asked again, and what
// was committed meanwhile is verified with it.
func TestNewVersionsAreVerifiedWhenTheStorageIsBack(t *testing.T) {
	var away atomic.Bool
	h := startRegistry(t, withJournal(&alteringJournal{newRAMJournal(), func(r ledger.Record) (ledger.Record, error) {
		if away.Load() {
			return r, fault.New("test.scan", fault.StorageBusy, "it does not answer")
		}
		return r, nil
	}}))
	testkit.WaitFor(t, "the only round has ended", func() bool { return h.metricSum("registry_verify_rounds_total") == 1 })
	away.Store(true)
	h.init()
	testkit.WaitFor(t, "a failed read is counted", func() bool { return h.metricSum("storage_backoff_total", "op=read") > 0 })
	h.grow(5)
	testkit.Equal(t, "versions verified", h.metricSum("registry_verified_commits_total"), 0)
	away.Store(false)
	testkit.WaitFor(t, "all versions are verified", func() bool { return h.metricSum("registry_verified_commits_total") == 5 })
}

// A storage that cannot be read is no damage.
func TestAStorageThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	first := startRegistry(t, withJournal(openFiles(t, folder)))
	first.init()
	first.grow(5)
	testkit.Must(t, first.saveCheckpoint(t.Context(), first.view.Load()))
	first.close()
	reads := 0
	h := startRegistry(t, withJournal(&alteringJournal{openFiles(t, folder), func(r ledger.Record) (ledger.Record, error) {
		if reads++; r.Version < 5 && reads > 5 { // the first reads are those of opening
			return r, fault.New("test.scan", fault.StorageBusy, "it does not answer")
		}
		return r, nil
	}}))
	testkit.WaitFor(t, "a failed read is counted", func() bool { return h.metricSum("storage_backoff_total", "op=read") > 0 })
	if v := h.readiness.Evaluate(); !v.WriteReady || len(h.flushedEvents(EventDamaged)) > 0 {
		t.Errorf("the verdict is %+v", v)
	}
	h.commitChange(putName("more", "1"))
}

// The verifier works for a slice and then pauses, so that it stays within its share of
// a core.
func TestTheVerifierKeepsToItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		r := &Registry{settings: flow.NewSnapshot(flow.NewInventory(), flow.SnapshotSpec{Service: service, Name: "settings"}, config)}
		for _, share := range []int{1, 10, 50, 100} {
			config.VerifyShare = share
			r.settings.Store(config)
			slice := time.Now()
			testkit.Must(t, r.throttle(t.Context(), &slice))
			if time.Since(slice) != 0 {
				t.Error("it paused before the slice was used up")
			}
			time.Sleep(verifySlice)
			before := time.Now()
			testkit.Must(t, r.throttle(t.Context(), &slice))
			if paused := time.Since(before); paused != verifySlice*time.Duration(100-share)/time.Duration(share) || slice != time.Now() {
				t.Errorf("with %d percent it paused for %s", share, paused)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		slice := time.Now().Add(-time.Second)
		config.VerifyShare = 1
		r.settings.Store(config)
		if r.throttle(ctx, &slice) == nil {
			t.Error("it does not stop when it should")
		}
	})
}

// switchingJournal is a storage that switches to another one.
type switchingJournal struct {
	Journal
	other    Journal
	switched atomic.Bool
}

func (s *switchingJournal) current() Journal {
	if s.switched.Load() {
		return s.other
	}
	return s.Journal
}

func (s *switchingJournal) Head(ctx context.Context) (ledger.Head, error) {
	return s.current().Head(ctx)
}
func (s *switchingJournal) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	return s.current().Read(ctx, version)
}
func (s *switchingJournal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return s.current().Scan(ctx, from, visit)
}

// A log can be valid and still not be the one that is served: it was replaced by an
// older one, or by one that diverged.
func TestALogThatIsNotTheOneThatIsServed(t *testing.T) {
	for what, differ := range map[string]func(h *testRegistry){
		"it is shorter":              func(*testRegistry) {},
		"it went on in another way":  func(h *testRegistry) { h.commitChange(putName("other", "1")); h.commitChange(putName("more", "1")) },
		"it has another last change": func(h *testRegistry) { h.commitChange(putName("other", "1")) },
	} {
		t.Run(what, func(t *testing.T) {
			both := &switchingJournal{Journal: newRAMJournal(), other: newRAMJournal()}
			first, second := both.Journal, both.other
			h := startRegistry(t, withJournal(both))
			h.init()
			h.commitChange(putName("docs", "1"))
			var head *ledger.Head
			testkit.Must(t, first.Scan(t.Context(), 0, func(r ledger.Record) error {
				err := second.Append(t.Context(), head, []ledger.Record{r})
				now := r.Head()
				head = &now
				return err
			}))

			differ(startRegistry(t, withJournal(second)))
			h.commitChange(putName("served", "1"))
			h.mustVerify()
			both.switched.Store(true)
			if _, err := h.verifyRound(t.Context(), nil); fault.KindOf(err) != fault.IntegrityFail {
				t.Errorf("found as %v", err)
			}
		})
	}
}
