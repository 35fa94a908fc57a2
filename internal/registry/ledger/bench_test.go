package ledger_test

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"micronode/internal/registry/ledger"
)

// registryOf is a registry with many items, and a proposal with a payload of
// about 1 KiB that is approved by two.
func registryOf(b *testing.B, items int) (*ledger.State, *ledger.Proposal, []ledger.Approval) {
	b.Helper()
	s := twoOfThree(b)
	for n := 0; n < items; n += ledger.MaxOps {
		ops := make([]ledger.Op, 0, ledger.MaxOps)
		for i := range ledger.MaxOps {
			ops = append(ops, ledger.Put(name(b, fmt.Sprintf("name-%d", n+i), "x")))
		}
		p := propose(b, s, n, ops...)
		var err error
		if _, s, err = s.Commit(p, []ledger.Approval{alice.approve(p, start), bob.approve(p, start)}, s.CommittedAt().Add(time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	labels := make([]string, 0, 8)
	for i := range 8 {
		labels = append(labels, fmt.Sprintf(`"label-%d":%q`, i, strings.Repeat("x", 100)))
	}
	p := propose(b, s, 1<<30, ledger.Put(item(b, `{"kind":"region","id":"eu","labels":{`+strings.Join(labels, ",")+`}}`)))
	return s, p, []ledger.Approval{alice.approve(p, s.CommittedAt()), bob.approve(p, s.CommittedAt())}
}

var sizes = []int{0, 10_000, 100_000}

func BenchmarkCommit(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint("items=", n), func(b *testing.B) {
			s, p, approvals := registryOf(b, n)
			at := s.CommittedAt().Add(time.Second)
			b.ReportAllocs()
			b.SetBytes(int64(len(p.Payload)))
			for b.Loop() {
				if _, _, err := s.Commit(p, approvals, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCommits is a long row of commits: what a version costs when all the
// proposals before it are still remembered.
func BenchmarkCommits(b *testing.B) {
	s := twoOfThree(b)
	at := s.CommittedAt().Add(time.Second)
	first := propose(b, s, 0, ledger.Put(name(b, "docs", "0")))
	approvals := []ledger.Approval{alice.approve(first, at), bob.approve(first, at)} // Commit does not verify them
	puts := [2]ledger.Op{ledger.Put(name(b, "docs", "0")), ledger.Put(name(b, "docs", "1"))}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p, err := s.Propose(ledger.Request{Ops: puts[i%2 : i%2+1]}, proposalID(i), at, at.Add(time.Hour))
		if err != nil {
			b.Fatal(err)
		}
		if _, s, err = s.Commit(p, approvals, at); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	s, p, approvals := registryOf(b, 0)
	now := s.CommittedAt().Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Check(s, approvals[0], now, skew); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkApply(b *testing.B, apply func(*ledger.State, ledger.Record) (*ledger.State, error)) {
	s, p, approvals := registryOf(b, 10_000)
	r, _, err := s.Commit(p, approvals, s.CommittedAt())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := apply(s, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApply(b *testing.B)  { benchmarkApply(b, (*ledger.State).Apply) }
func BenchmarkReplay(b *testing.B) { benchmarkApply(b, (*ledger.State).Replay) }

func BenchmarkPropose(b *testing.B) {
	s, p, _ := registryOf(b, 10_000)
	body := strings.Replace(string(p.Payload), `"ops"`, `"ttl_s":60,"ops"`, 1)
	now := s.CommittedAt().Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		r, err := ledger.DecodeRequest([]byte(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Propose(r, p.ID, now, now.Add(time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s, _, _ := registryOf(b, 100_000)
	data := s.Snapshot()
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			s.Snapshot()
		}
	})
	b.Run("open", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := ledger.OpenSnapshot(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkVerify is the standard library on the same signature: the reference
// for Check.
func BenchmarkVerify(b *testing.B) {
	_, p, approvals := registryOf(b, 0)
	public := alice.public()
	for b.Loop() {
		if !ed25519.Verify(public[:], p.SignThis, approvals[0].Sig) {
			b.Fatal("a good signature was refused")
		}
	}
}
