package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/internal/registry/journal"
)

var _ journal.Prober = (*Journal)(nil)

// Probe checks that the cluster accepts a write: a transaction whose condition
// never holds. A majority has to agree to it, and a member without space refuses
// it, as if it wrote; but it changes nothing.
func (j *Journal) Probe(ctx context.Context) error {
	const op = "registry.etcd.probe"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	key := j.keys.probe()
	_, err = j.conn.retry(ctx, op, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", -1)},
		[]clientv3.Op{clientv3.OpPut(key, "")}, nil))
	return err
}

// Engine is the cluster as operators know it.
func (j *Journal) Engine() string { return "etcd at " + strings.Join(j.conn.endpoints, ", ") }
