package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/fault"
	"micronode/internal/registry/journal"
)

// pruneBatch is how many records are deleted at a time, so that etcd can do
// other work in between.
const pruneBatch = 1000

// Prune implements journal.Journal. It removes exactly what was requested. The
// checkpoints that are no longer needed are deleted too: all below the largest
// one of at most that many versions.
func (j *Journal) Prune(ctx context.Context, p journal.Prune) (first uint64, err error) {
	const op = "registry.etcd.prune"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return 0, err
	}
	defer cancel()
	for range maxAttempts {
		b, err := j.readStart(ctx, op)
		if err != nil {
			return 0, err
		}
		if p.Below > 0 && p.Below-1 > b.head {
			return b.first, fault.New(op, fault.Malformed, "a note for %d versions, and the log has fewer", p.Below)
		}
		if p.Below < b.prune.Below {
			return b.first, nil // more was pruned before, and its note stays
		}
		noted, err := j.savePruneNote(ctx, op, p, b.revision)
		if err != nil {
			return b.first, err
		}
		if noted {
			return j.deletePruned(ctx, op, b.first, min(p.Below, b.head))
		}
	}
	return 0, fault.New(op, fault.StorageBusy, "others are pruning")
}

// logStart is where the log begins after pruning.
type logStart struct {
	prune    journal.Prune
	revision int64  // when the note was written; zero if there is none
	first    uint64 // the first version that exists
	head     uint64 // the last one
}

// readStart reads where the log begins.
func (j *Journal) readStart(ctx context.Context, op string) (b logStart, err error) {
	from, beyond := j.keys.records()
	answer, err := j.conn.retry(ctx, op, clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpGet(from, clientv3.WithRange(beyond), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
		clientv3.OpGet(j.keys.head()),
		clientv3.OpGet(j.keys.prune()),
	}, nil))
	if err != nil {
		return logStart{}, err
	}
	s, err := parseLogView(op, answer.Txn())
	switch {
	case err != nil:
		return logStart{}, err
	case s.head == nil || len(s.records) == 0:
		return logStart{}, fault.New(op, fault.NotFound, "the log is empty")
	}
	b = logStart{prune: s.prune, head: s.head.Version}
	if note := answer.Txn().Responses[2].GetResponseRange().GetKvs(); len(note) > 0 {
		b.revision = note[0].ModRevision
	}
	if b.first, err = j.keys.versionOf(s.records[0].Key); err != nil {
		return logStart{}, damagedError(op, err, "there is a key among the records that is no version")
	}
	return b, nil
}

// savePruneNote saves a prune note, unless another one was saved meanwhile.
func (j *Journal) savePruneNote(ctx context.Context, op string, p journal.Prune, revision int64) (bool, error) {
	key, value := j.keys.prune(), encodePrune(p)
	answer, err := j.conn.retry(ctx, op, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		[]clientv3.Op{clientv3.OpPut(key, value)},
		[]clientv3.Op{clientv3.OpGet(key)},
	))
	if err != nil || answer.Txn().Succeeded {
		return err == nil, err
	}
	found := answer.Txn().Responses[0].GetResponseRange().GetKvs()
	return len(found) > 0 && string(found[0].Value) == value, nil // it was our own, whose response was lost
}

// deletePruned deletes what a note covers, and returns the first version that
// remains.
func (j *Journal) deletePruned(ctx context.Context, op string, first, below uint64) (uint64, error) {
	for first < below {
		end := min(first+pruneBatch, below)
		if _, err := j.conn.retry(ctx, op, clientv3.OpDelete(j.keys.record(first), clientv3.WithRange(j.keys.record(end)))); err != nil {
			return first, err
		}
		first = end
	}
	return first, j.deleteOldCheckpoints(ctx, op, below)
}

// deleteOldCheckpoints deletes the checkpoints below the one that the log
// begins with, and the remains of unfinished ones.
func (j *Journal) deleteOldCheckpoints(ctx context.Context, op string, below uint64) error {
	answer, err := j.conn.retry(ctx, op, j.latestCheckpointOp(below))
	if err != nil || len(answer.Get().Kvs) == 0 {
		return err
	}
	keep, _, err := decodeCheckpoint(answer.Get().Kvs[0].Value)
	if err != nil {
		return damagedError(op, err, "a checkpoint of at most %d versions is damaged", below)
	}
	none, kept := snapshotKey{}, snapshotKey{size: keep.size}
	_, err = j.conn.retry(ctx, op, clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpDelete(j.keys.checkpoint(0), clientv3.WithRange(j.keys.checkpoint(keep.size))),
		clientv3.OpDelete(j.keys.chunks(none), clientv3.WithRange(j.keys.chunks(kept))),
	}, nil))
	return err
}

// Pruned implements journal.Journal.
func (j *Journal) Pruned(ctx context.Context) (p journal.Prune, first uint64, err error) {
	const op = "registry.etcd.pruned"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return journal.Prune{}, 0, err
	}
	defer cancel()
	b, err := j.readStart(ctx, op)
	if fault.KindOf(err) == fault.NotFound {
		return journal.Prune{}, 0, nil
	}
	return b.prune, b.first, err
}
