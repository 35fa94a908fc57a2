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

// Prune implements journal.Journal. It keeps no more than was asked for. The
// checkpoints that no record needs any longer go too: all below the largest one
// of at most that many versions.
func (j *Journal) Prune(ctx context.Context, p journal.Prune) (first uint64, err error) {
	const op = "registry.etcd.prune"
	ctx, cancel, err := j.begin(ctx, op)
	if err != nil {
		return 0, err
	}
	defer cancel()
	for range tries {
		b, err := j.beginning(ctx, op)
		if err != nil {
			return 0, err
		}
		if p.Below > 0 && p.Below-1 > b.head {
			return b.first, fault.New(op, fault.Malformed, "a note for %d versions, and the log has fewer", p.Below)
		}
		if p.Below < b.prune.Below {
			return b.first, nil // more was given up before, and its note stays
		}
		noted, err := j.note(ctx, op, p, b.revision)
		if err != nil {
			return b.first, err
		}
		if noted {
			return j.clear(ctx, op, b.first, min(p.Below, b.head))
		}
	}
	return 0, fault.New(op, fault.StorageBusy, "others are pruning")
}

// beginning is how much of a log was given up.
type beginning struct {
	prune    journal.Prune
	revision int64  // when the note was written; zero if there is none
	first    uint64 // the first version that is there
	head     uint64 // the last one
}

// beginning reads where the log begins.
func (j *Journal) beginning(ctx context.Context, op string) (b beginning, err error) {
	from, beyond := j.keys.records()
	answer, err := j.line.again(ctx, op, clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpGet(from, clientv3.WithRange(beyond), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
		clientv3.OpGet(j.keys.head()),
		clientv3.OpGet(j.keys.prune()),
	}, nil))
	if err != nil {
		return beginning{}, err
	}
	s, err := sightIn(op, answer.Txn())
	switch {
	case err != nil:
		return beginning{}, err
	case s.head == nil || len(s.records) == 0:
		return beginning{}, fault.New(op, fault.NotFound, "the log is empty")
	}
	b = beginning{prune: s.prune, head: s.head.Version}
	if note := answer.Txn().Responses[2].GetResponseRange().GetKvs(); len(note) > 0 {
		b.revision = note[0].ModRevision
	}
	if b.first, err = j.keys.versionOf(s.records[0].Key); err != nil {
		return beginning{}, damaged(op, err, "there is a key among the records that is no version")
	}
	return b, nil
}

// note keeps a prune note, unless another one was kept meanwhile.
func (j *Journal) note(ctx context.Context, op string, p journal.Prune, revision int64) (bool, error) {
	key, value := j.keys.prune(), encodePrune(p)
	answer, err := j.line.again(ctx, op, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		[]clientv3.Op{clientv3.OpPut(key, value)},
		[]clientv3.Op{clientv3.OpGet(key)},
	))
	if err != nil || answer.Txn().Succeeded {
		return err == nil, err
	}
	found := answer.Txn().Responses[0].GetResponseRange().GetKvs()
	return len(found) > 0 && string(found[0].Value) == value, nil // it was our own, whose answer was lost
}

// clear deletes what a note has given up, and returns the first version that is
// still there.
func (j *Journal) clear(ctx context.Context, op string, first, below uint64) (uint64, error) {
	for first < below {
		end := min(first+pruneBatch, below)
		if _, err := j.line.again(ctx, op, clientv3.OpDelete(j.keys.record(first), clientv3.WithRange(j.keys.record(end)))); err != nil {
			return first, err
		}
		first = end
	}
	return first, j.clearCheckpoints(ctx, op, below)
}

// clearCheckpoints deletes the checkpoints below the one that the log begins
// with, and whatever was left behind of those that were never finished.
func (j *Journal) clearCheckpoints(ctx context.Context, op string, below uint64) error {
	answer, err := j.line.again(ctx, op, j.latest(below))
	if err != nil || len(answer.Get().Kvs) == 0 {
		return err
	}
	keep, _, err := decodeCheckpoint(answer.Get().Kvs[0].Value)
	if err != nil {
		return damaged(op, err, "a checkpoint of at most %d versions is damaged", below)
	}
	none, kept := snapshot{}, snapshot{size: keep.size}
	_, err = j.line.again(ctx, op, clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpDelete(j.keys.checkpoint(0), clientv3.WithRange(j.keys.checkpoint(keep.size))),
		clientv3.OpDelete(j.keys.chunks(none), clientv3.WithRange(j.keys.chunks(kept))),
	}, nil))
	return err
}

// Pruned implements journal.Journal.
func (j *Journal) Pruned(ctx context.Context) (p journal.Prune, first uint64, err error) {
	const op = "registry.etcd.pruned"
	ctx, cancel, err := j.begin(ctx, op)
	if err != nil {
		return journal.Prune{}, 0, err
	}
	defer cancel()
	b, err := j.beginning(ctx, op)
	if fault.KindOf(err) == fault.NotFound {
		return journal.Prune{}, 0, nil
	}
	return b.prune, b.first, err
}
