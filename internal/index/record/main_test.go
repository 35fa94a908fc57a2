package record_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alice and bob are two nodes.
var (
	alice = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	bob   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
)

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }
func idOf(key ed25519.PrivateKey) oap.PeerID          { return oap.PeerIDOf(public(key)) }

// noon is the time of the tests.
var noon = time.UnixMilli(1_800_000_000_000).UTC()

const day = 24 * time.Hour

// docs is a valid record of alice.
func docs() record.Name {
	return record.SignName(alice, record.Name{Name: "docs", Manifest: b3.Of([]byte("hello")), Seq: 5, Issued: noon, Expires: noon.Add(day)})
}

// wantRefusal fails unless the error is of the kind, and says briefly what is
// wrong and what to do about it.
func wantRefusal(t *testing.T, what string, err error, kind fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != kind {
		t.Errorf("%s: got %v (%s), want %s", what, err, fault.KindOf(err), kind)
		return
	}
	if detail, next := fault.DetailOf(err), fault.NextOf(err); detail == "" || next == "" || len(detail) > 600 || len(next) > 600 {
		t.Errorf("%s: detail %q, next %q", what, detail, next)
	}
}

// wantText fails unless the detail and the next step contain these words.
func wantText(t *testing.T, err error, detail, next string) {
	t.Helper()
	if !strings.Contains(fault.DetailOf(err), detail) || !strings.Contains(fault.NextOf(err), next) {
		t.Errorf("detail %q, next %q; want %q and %q in them", fault.DetailOf(err), fault.NextOf(err), detail, next)
	}
}
