package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/ledger"
)

// damage changes the first file of a part of a folder.
func damage(t testing.TB, folder, part string, how func(content []byte)) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(folder, part))
	must(t, err)
	name := filepath.Join(folder, part, entries[0].Name())
	content, err := os.ReadFile(name)
	must(t, err)
	how(content)
	must(t, os.WriteFile(name, content, 0o600))
}

// Damage in the middle of the log is found by the verifier: it is told for the
// record, nothing is written behind it, and what is not damaged is served.
func TestDamageInTheMiddle(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)))
	begun := h.initOne()
	h.grow(300)
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	h.close()
	damage(t, folder, "segments", func(segment []byte) { segment[len(segment)/3] ^= 0x40 })

	again := open(t, on(files(t, folder)))
	waitFor(t, func() bool { return len(again.log.of(Damaged)) > 0 })
	waitFor(t, func() bool { return again.count("registry_verify_rounds_total", "outcome=damaged") == 1 })
	v := again.readiness.Evaluate()
	if v.WriteReady || !v.Ready || !slices.ContainsFunc(v.Reasons, func(r observe.Reason) bool { return strings.Contains(r.Reason, "damaged at version") && r.Next != "" }) {
		t.Errorf("the verdict is %+v", v)
	}
	p := again.proposed([]json.RawMessage{name("more", "1")}, alice, bob)
	again.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "IntegrityFail")
	again.call("GET", "/registry/head", nil, nil, 200)
	again.call("GET", "/registry/299", nil, nil, 200)
	served, broken := 0, 0
	for version := range 256 {
		status, data := again.try(t.Context(), "GET", fmt.Sprintf("/registry/%d?items=false", version), nil)
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

// The verifier shows how far it is, and that it has been round.
func TestTheVerifierGoesRound(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)))
	h.init()
	h.grow(50)
	h.close()
	again := open(t, on(files(t, folder)), with(func(c *Config) { c.VerifyPause = time.Millisecond }))
	waitFor(t, func() bool { return again.count("registry_verify_rounds_total", "outcome=ok") >= 1 })
	if at := again.count("registry_verified_version"); at != 49 {
		t.Errorf("it has come to version %v", at)
	}
	again.grow(60)
	waitFor(t, func() bool { return again.count("registry_verified_version") == 59 }) // the next round
}

// liar is a journal that shows other records to those who read all of them.
type liar struct {
	Journal
	lie func(ledger.Record) (ledger.Record, error)
}

func (l *liar) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return l.Journal.Scan(ctx, from, func(r ledger.Record) error {
		r, err := l.lie(r)
		if err != nil {
			return err
		}
		return visit(r)
	})
}

// What a checksum would not find is found all the same, and stops writes, too.
func TestARecordThatIsWhole(t *testing.T) {
	h := open(t, on(&liar{inMemory(), func(r ledger.Record) (ledger.Record, error) {
		if r.Version == 3 {
			r.Header = append([]byte(nil), r.Header...)
			r.Header[len(r.Header)-3] ^= 1
		}
		return r, nil
	}}))
	h.init()
	h.grow(6)
	err := h.verifyRound(t.Context())
	if fault.KindOf(err) != fault.IntegrityFail {
		t.Fatalf("the round ends with %v", err)
	}
	h.gate.harm(err)
	p := h.proposed([]json.RawMessage{name("more", "1")}, alice, bob)
	h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "IntegrityFail")
	h.call("GET", "/registry/head", nil, nil, 200)
}

// A storage that cannot be read is no damage.
func TestAStorageThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	first := open(t, on(files(t, folder)))
	first.init()
	first.grow(5)
	must(t, first.keepCheckpoint(t.Context(), first.view.Load()))
	first.close()
	reads := 0
	h := open(t, on(&liar{files(t, folder), func(r ledger.Record) (ledger.Record, error) {
		if reads++; r.Version < 5 && reads > 5 { // opening reads them first
			return r, fault.New("test.scan", fault.StorageBusy, "it does not answer")
		}
		return r, nil
	}}))
	waitFor(t, func() bool { return h.count("storage_backoff_total", "op=read") > 0 })
	if v := h.readiness.Evaluate(); !v.WriteReady || len(h.told(Damaged)) > 0 {
		t.Errorf("the verdict is %+v", v)
	}
	h.change(name("more", "1"))
}

// The verifier works for a slice and then pauses for as long as leaves it its
// share of a core.
func TestTheVerifierKeepsToItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		r := &Registry{settings: flow.NewSnapshot(flow.NewInventory(), flow.SnapshotSpec{Service: service, Name: "settings"}, config)}
		for _, share := range []int{1, 10, 50, 100} {
			config.VerifyShare = share
			r.settings.Store(config)
			slice := time.Now()
			must(t, r.breathe(t.Context(), &slice))
			if time.Since(slice) != 0 {
				t.Error("it paused before the slice was used up")
			}
			time.Sleep(verifySlice)
			before := time.Now()
			must(t, r.breathe(t.Context(), &slice))
			if paused := time.Since(before); paused != verifySlice*time.Duration(100-share)/time.Duration(share) || slice != time.Now() {
				t.Errorf("with %d percent it paused for %s", share, paused)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		slice := time.Now().Add(-time.Second)
		config.VerifyShare = 1
		r.settings.Store(config)
		if r.breathe(ctx, &slice) == nil {
			t.Error("it does not stop when it should")
		}
	})
}
