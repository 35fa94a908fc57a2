package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// watchTimeout is how long a watch is trusted. After that the head is read, so
// that one that has died silently costs no more than this.
const watchTimeout = 5 * time.Second

// Changed implements journal.Journal. It watches the head. When a watch ends
// without an event, because it was compacted or lost, the head is read again,
// after pauses that grow.
func (j *Journal) Changed(ctx context.Context, since *ledger.Head) error {
	const op = "registry.etcd.changed"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	for lost := 0; ; {
		head, revision, err := j.head(ctx, op)
		if err != nil || !journal.SameHead(head, since) {
			return err
		}
		if j.watch(ctx, revision) {
			lost = 0
			continue
		}
		if err := flow.Ended(ctx, op); err != nil {
			return err
		}
		lost++
		j.conn.waitBackoff(ctx, lost)
	}
}

// watch waits until the head is written after a revision, or the watch is too
// old to be trusted. It reports false if the watch was lost before.
func (j *Journal) watch(ctx context.Context, revision int64) bool {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), watchTimeout)
	defer cancel()
	r, err := j.conn.connect(ctx)
	if err != nil {
		return false
	}
	for seen := range r.watch.Watch(ctx, j.keys.head(), clientv3.WithRev(revision+1)) {
		if seen.Err() != nil {
			return false
		}
		if len(seen.Events) > 0 {
			return true
		}
	}
	return ctx.Err() == context.DeadlineExceeded
}
