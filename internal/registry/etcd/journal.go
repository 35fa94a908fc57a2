package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// How many records Scan asks for at a time. The least of them fit into an
// answer however large they are.
const (
	pageLeast = 8
	pageMost  = 256
	pageBytes = 1 << 20 // a page of less than this may grow
)

// Journal keeps the records of a registry in an etcd cluster. Several journals,
// on several nodes, may be open on the same prefix.
type Journal struct {
	// set at construction
	line *line
	keys layout
	life context.Context // ends with Close
	end  context.CancelCauseFunc
}

var _ journal.Journal = (*Journal)(nil)

// Open gets ready to use a cluster. It connects on first use, so that a node
// can start before its etcd.
func Open(ctx context.Context, spec Spec) (*Journal, error) {
	if err := flow.Ended(ctx, opOpen); err != nil {
		return nil, err
	}
	at, err := spec.complete()
	if err != nil {
		return nil, err
	}
	dial, err := dialer(spec, at)
	if err != nil {
		return nil, err
	}
	return newJournal(ctx, newLine(spec.Timeout, dial), at.prefix), nil
}

func newJournal(ctx context.Context, l *line, prefix string) *Journal {
	j := &Journal{line: l, keys: layout{prefix: prefix}}
	j.life, j.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return j
}

// Close ends what is under way and lets go of the connections.
func (j *Journal) Close() error {
	j.end(flow.ErrClosed)
	return j.line.close()
}

// Calls is what became of the calls to etcd. Figures only go up.
type Calls struct {
	Retries  uint64 // calls that were made again
	Timeouts uint64 // calls that were not answered in time
	Failures uint64 // calls that failed in another way
}

// Calls tells what became of the calls to etcd. It never waits.
func (j *Journal) Calls() Calls {
	return Calls{Retries: j.line.retries.Load(), Timeouts: j.line.timeouts.Load(), Failures: j.line.failures.Load()}
}

// begin starts an operation: its context ends with the journal too.
func (j *Journal) begin(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	if j.life.Err() != nil {
		return nil, nil, closed(op)
	}
	if err := flow.Ended(ctx, op); err != nil {
		return nil, nil, err
	}
	joined, cancel := flow.Join(ctx, j.life)
	return joined, cancel, nil
}

// Head implements journal.Journal.
func (j *Journal) Head(ctx context.Context) (ledger.Head, error) {
	const op = "registry.etcd.head"
	ctx, cancel, err := j.begin(ctx, op)
	if err != nil {
		return ledger.Head{}, err
	}
	defer cancel()
	head, _, err := j.head(ctx, op)
	if err == nil && head == nil {
		return ledger.Head{}, fault.New(op, fault.NotFound, "the log is empty")
	}
	if err != nil {
		return ledger.Head{}, err
	}
	return *head, nil
}

// head reads the head, which is nil for an empty log, and at which revision of
// etcd that was.
func (j *Journal) head(ctx context.Context, op string) (*ledger.Head, int64, error) {
	answer, err := j.line.again(ctx, op, clientv3.OpGet(j.keys.head()))
	if err != nil {
		return nil, 0, err
	}
	head, err := headIn(op, answer.Get().Kvs)
	return head, answer.Get().Header.GetRevision(), err
}

func headIn(op string, found []*pb.KeyValue) (*ledger.Head, error) {
	if len(found) == 0 {
		return nil, nil
	}
	head, err := decodeHead(found[0].Value)
	if err != nil {
		return nil, damaged(op, err, "the head of the log cannot be read")
	}
	return &head, nil
}

func pruneIn(op string, found []*pb.KeyValue) (journal.Prune, error) {
	if len(found) == 0 {
		return journal.Prune{}, nil
	}
	p, err := decodePrune(found[0].Value)
	if err != nil {
		return journal.Prune{}, damaged(op, err, "the prune note cannot be read")
	}
	return p, nil
}

// sight is some records, and where the log began and ended at that moment.
type sight struct {
	records []*pb.KeyValue
	head    *ledger.Head
	prune   journal.Prune
}

// look reads the records from a version on, at most so many of them. It is one
// transaction, so that what is seen was there together.
func (j *Journal) look(ctx context.Context, op string, from uint64, limit int64) (sight, error) {
	answer, err := j.line.again(ctx, op, clientv3.OpTxn(nil, j.looking(from, limit), nil))
	if err != nil {
		return sight{}, err
	}
	return sightIn(op, answer.Txn())
}

func (j *Journal) looking(from uint64, limit int64) []clientv3.Op {
	records := clientv3.OpGet(j.keys.record(from))
	if limit > 1 {
		_, beyond := j.keys.records()
		records = clientv3.OpGet(j.keys.record(from), clientv3.WithRange(beyond), clientv3.WithLimit(limit))
	}
	return []clientv3.Op{records, clientv3.OpGet(j.keys.head()), clientv3.OpGet(j.keys.prune())}
}

// sightIn reads the answer to looking.
func sightIn(op string, answer *clientv3.TxnResponse) (s sight, err error) {
	found := func(i int) []*pb.KeyValue { return answer.Responses[i].GetResponseRange().GetKvs() }
	s.records = found(0)
	if s.head, err = headIn(op, found(1)); err != nil {
		return sight{}, err
	}
	s.prune, err = pruneIn(op, found(2))
	return s, err
}

// absent says why a version was not seen.
func (s sight) absent(op string, version uint64) error {
	switch {
	case s.head == nil || version > s.head.Version:
		return fault.New(op, fault.NotFound, "there is no version %d yet", version)
	case version < s.prune.Below:
		err := fault.New(op, fault.Expired, "version %d was pruned", version)
		err.Next = "Verify it with a bundle that was made before, or ask a registry that keeps more."
		return err
	default:
		return damaged(op, nil, "version %d is missing, and no prune note covers it", version)
	}
}

// read takes a record out of what was seen.
func (s sight) read(op string, i int, version uint64) (entry, error) {
	if i >= len(s.records) {
		return entry{}, s.absent(op, version)
	}
	e, err := decodeEntry(version, s.records[i].Value)
	if err != nil {
		return entry{}, damaged(op, err, "version %d is damaged", version)
	}
	return e, nil
}

// Read implements journal.Journal.
func (j *Journal) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	const op = "registry.etcd.read"
	ctx, cancel, err := j.begin(ctx, op)
	if err != nil {
		return ledger.Record{}, err
	}
	defer cancel()
	s, err := j.look(ctx, op, version, 1)
	if err != nil {
		return ledger.Record{}, err
	}
	e, err := s.read(op, 0, version)
	return e.Record, err
}

// Scan implements journal.Journal. Pages grow while records are small.
func (j *Journal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	const op = "registry.etcd.scan"
	ctx, cancel, err := j.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	page := int64(pageLeast)
	for {
		s, err := j.look(ctx, op, from, page)
		if fault.KindOf(err) == fault.BodyTooLarge && page > pageLeast {
			page = pageLeast
			continue
		}
		if err != nil {
			return err
		}
		if s.over(from) {
			return nil
		}
		read, err := j.visit(op, s, from, visit)
		if err != nil {
			return err
		}
		from += uint64(len(s.records))
		if read < pageBytes {
			page = min(2*page, pageMost)
		}
	}
}

// over tells whether the log ends before a version.
func (s sight) over(from uint64) bool { return s.head == nil || from > s.head.Version }

// visit shows a page to the visitor, and returns how many bytes it had. A
// version that is left out is noticed by its successor, which is in its place.
func (j *Journal) visit(op string, s sight, from uint64, visit func(ledger.Record) error) (read int, err error) {
	if len(s.records) == 0 {
		return 0, s.absent(op, from)
	}
	for i, found := range s.records {
		version := from + uint64(i)
		if at, err := j.keys.versionOf(found.Key); err != nil || at != version {
			return read, s.absent(op, version)
		}
		e, err := s.read(op, i, version)
		if err != nil {
			return read, err
		}
		if err := visit(e.Record); err != nil {
			return read, err
		}
		read += len(found.Value)
	}
	return read, nil
}
