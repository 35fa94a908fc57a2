package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/fault"
	"micronode/internal/testkit"
)

// A probe takes the way of a write, is refused where a write is, and writes nothing.
func TestProbe(t *testing.T) {
	f := newFake()
	j := f.open(t)
	testkit.Must(t, j.Append(t.Context(), nil, chain(0, 3, "a")))
	keys, revision := len(f.keys), f.revision
	puts := 0
	f.loseRequest = func(op clientv3.Op) error {
		if _, then, _ := op.Txn(); len(then) == 1 && then[0].IsPut() {
			puts++
		}
		return nil
	}
	testkit.Must(t, j.Probe(t.Context()))
	if puts != 1 {
		t.Errorf("%d requests would write", puts)
	}
	if len(f.keys) != keys || f.revision != revision {
		t.Errorf("the probe wrote: %d keys at revision %d, %d at %d before", len(f.keys), f.revision, keys, revision)
	}
	f.loseRequest = func(clientv3.Op) error { return rpctypes.ErrNoSpace }
	testkit.WantKind(t, j.Probe(t.Context()), fault.StoreFull, "a probe of a cluster without space")
	_ = j.Close()
	testkit.WantKind(t, j.Probe(t.Context()), fault.Canceled, "a probe after Close")
}
