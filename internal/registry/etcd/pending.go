package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/internal/registry/journal"
)

var _ journal.PendingStore = (*Journal)(nil)

// folderPending holds proposals and approvals that wait to be committed, those of
// all nodes on the same storage.
const folderPending = "proposals/"

func (l layout) pending(name string) string { return l.prefix + folderPending + name }

// SavePending implements journal.PendingStore.
func (j *Journal) SavePending(ctx context.Context, key journal.PendingKey, value []byte) error {
	const op = "registry.etcd.save_pending"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	name, err := key.Name(op)
	if err != nil {
		return err
	}
	_, err = j.conn.retry(ctx, op, clientv3.OpPut(j.keys.pending(name), sealValue(append(newValue(len(value)), value...))))
	return err
}

// RemovePending implements journal.PendingStore. It removes the approvals of all
// signers: another node may have accepted some.
func (j *Journal) RemovePending(ctx context.Context, proposal string, _ []string) error {
	const op = "registry.etcd.remove_pending"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	name, err := journal.PendingKey{Proposal: proposal}.Name(op)
	if err != nil {
		return err
	}
	first := j.keys.pending(name)
	_, err = j.conn.retry(ctx, op, clientv3.OpDelete(first, clientv3.WithRange(first+"/"))) // a slash is the next after the dot of approvals
	return err
}

// ScanPending implements journal.PendingStore.
func (j *Journal) ScanPending(ctx context.Context, visit func(proposal string, isApproval bool, value []byte) error) error {
	const op = "registry.etcd.scan_pending"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	next, beyond := j.keys.pending(""), j.keys.pending("~")
	for {
		answer, err := j.conn.retry(ctx, op, clientv3.OpGet(next, clientv3.WithRange(beyond), clientv3.WithLimit(minPage)))
		if err != nil {
			return err
		}
		found := answer.Get().Kvs
		for _, one := range found {
			proposal, isApproval, ok := journal.ParsePendingName(strings.TrimPrefix(string(one.Key), j.keys.pending("")))
			value, err := openValue(one.Value, 0)
			if !ok || err != nil {
				continue // not ours, or damaged
			}
			if err := visit(proposal, isApproval, value); err != nil {
				return err
			}
		}
		if len(found) < minPage {
			return nil
		}
		next = string(found[len(found)-1].Key) + "\x00"
	}
}
