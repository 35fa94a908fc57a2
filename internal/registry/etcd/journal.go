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

// How many records Scan requests at a time. The minimum fits into a response
// however large they are.
const (
	minPage        = 8
	maxPage        = 256
	growBelowBytes = 1 << 20 // a page smaller than this may grow
)

// Journal keeps the records of a registry in an etcd cluster. Several journals,
// on several nodes, may be open on the same prefix.
type Journal struct {
	// set at construction
	conn   *conn
	keys   layout
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
}

var _ journal.Journal = (*Journal)(nil)

// Open returns a journal on a cluster. It connects on first use, so that a node
// can start before its etcd.
func Open(ctx context.Context, spec Spec) (*Journal, error) {
	if err := flow.Ended(ctx, opOpen); err != nil {
		return nil, err
	}
	at, err := spec.parse()
	if err != nil {
		return nil, err
	}
	dial, err := dialer(spec, at)
	if err != nil {
		return nil, err
	}
	conn := newConn(spec.Timeout, dial)
	conn.endpoints = at.endpoints
	return newJournal(ctx, conn, at.prefix), nil
}

func newJournal(ctx context.Context, l *conn, prefix string) *Journal {
	j := &Journal{conn: l, keys: layout{prefix: prefix}}
	j.ctx, j.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return j
}

// Close cancels running calls and closes the connections.
func (j *Journal) Close() error {
	j.cancel(flow.ErrClosed)
	return j.conn.close()
}

// Calls counts the results of the calls to etcd.
type Calls = journal.Calls

// Calls returns the counters of the calls to etcd. It never waits.
func (j *Journal) Calls() Calls {
	return Calls{Retries: j.conn.retries.Load(), Timeouts: j.conn.timeouts.Load(), Failures: j.conn.failures.Load()}
}

// startCall starts an operation: its context ends with the journal too.
func (j *Journal) startCall(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	if j.ctx.Err() != nil {
		return nil, nil, closedError(op)
	}
	if err := flow.Ended(ctx, op); err != nil {
		return nil, nil, err
	}
	joined, cancel := flow.Join(ctx, j.ctx)
	return joined, cancel, nil
}

// Head implements journal.Journal.
func (j *Journal) Head(ctx context.Context) (ledger.Head, error) {
	const op = "registry.etcd.head"
	ctx, cancel, err := j.startCall(ctx, op)
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

// head reads the head, which is nil for an empty log, and the revision of etcd
// at which it was read.
func (j *Journal) head(ctx context.Context, op string) (*ledger.Head, int64, error) {
	answer, err := j.conn.retry(ctx, op, clientv3.OpGet(j.keys.head()))
	if err != nil {
		return nil, 0, err
	}
	head, err := parseHead(op, answer.Get().Kvs)
	return head, answer.Get().Header.GetRevision(), err
}

func parseHead(op string, found []*pb.KeyValue) (*ledger.Head, error) {
	if len(found) == 0 {
		return nil, nil
	}
	head, err := decodeHead(found[0].Value)
	if err != nil {
		return nil, damagedError(op, err, "the head of the log cannot be read")
	}
	return &head, nil
}

func parsePruneNote(op string, found []*pb.KeyValue) (journal.Prune, error) {
	if len(found) == 0 {
		return journal.Prune{}, nil
	}
	p, err := decodePrune(found[0].Value)
	if err != nil {
		return journal.Prune{}, damagedError(op, err, "the prune note cannot be read")
	}
	return p, nil
}

// logView is some records, and the start and the end of the log at one
// revision.
type logView struct {
	records []*pb.KeyValue
	head    *ledger.Head
	prune   journal.Prune
}

// readView reads at most limit records from a version on. It is one
// transaction, so that the result is consistent.
func (j *Journal) readView(ctx context.Context, op string, from uint64, limit int64) (logView, error) {
	answer, err := j.conn.retry(ctx, op, clientv3.OpTxn(nil, j.readOps(from, limit), nil))
	if err != nil {
		return logView{}, err
	}
	return parseLogView(op, answer.Txn())
}

func (j *Journal) readOps(from uint64, limit int64) []clientv3.Op {
	records := clientv3.OpGet(j.keys.record(from))
	if limit > 1 {
		_, beyond := j.keys.records()
		records = clientv3.OpGet(j.keys.record(from), clientv3.WithRange(beyond), clientv3.WithLimit(limit))
	}
	return []clientv3.Op{records, clientv3.OpGet(j.keys.head()), clientv3.OpGet(j.keys.prune())}
}

// parseLogView reads the response of readView.
func parseLogView(op string, answer *clientv3.TxnResponse) (s logView, err error) {
	found := func(i int) []*pb.KeyValue { return answer.Responses[i].GetResponseRange().GetKvs() }
	s.records = found(0)
	if s.head, err = parseHead(op, found(1)); err != nil {
		return logView{}, err
	}
	s.prune, err = parsePruneNote(op, found(2))
	return s, err
}

// missingError returns why a version was not found.
func (l logView) missingError(op string, version uint64) error {
	switch {
	case l.head == nil || version > l.head.Version:
		return fault.New(op, fault.NotFound, "there is no version %d yet", version)
	case version < l.prune.Below:
		return fault.New(op, fault.Expired, "version %d was pruned", version).
			Advise("Verify it with a bundle that was made before, or ask a registry that keeps more.")
	default:
		return damagedError(op, nil, "version %d is missing, and no prune note covers it", version)
	}
}

// record decodes a record of the view.
func (l logView) record(op string, i int, version uint64) (storedRecord, error) {
	if i >= len(l.records) {
		return storedRecord{}, l.missingError(op, version)
	}
	e, err := decodeRecord(version, l.records[i].Value)
	if err != nil {
		return storedRecord{}, damagedError(op, err, "version %d is damaged", version)
	}
	return e, nil
}

// Read implements journal.Journal.
func (j *Journal) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	const op = "registry.etcd.read"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return ledger.Record{}, err
	}
	defer cancel()
	s, err := j.readView(ctx, op, version, 1)
	if err != nil {
		return ledger.Record{}, err
	}
	e, err := s.record(op, 0, version)
	return e.Record, err
}

// Scan implements journal.Journal. Pages grow while records are small.
func (j *Journal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	const op = "registry.etcd.scan"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	page := int64(minPage)
	for {
		s, err := j.readView(ctx, op, from, page)
		if fault.KindOf(err) == fault.BodyTooLarge && page > minPage {
			page = minPage
			continue
		}
		if err != nil {
			return err
		}
		if s.endsBefore(from) {
			return nil
		}
		read, err := j.visit(op, s, from, visit)
		if err != nil {
			return err
		}
		from += uint64(len(s.records))
		if read < growBelowBytes {
			page = min(2*page, maxPage)
		}
	}
}

// endsBefore reports whether the log ends before a version.
func (l logView) endsBefore(from uint64) bool { return l.head == nil || from > l.head.Version }

// visit passes a page to the visitor, and returns how many bytes it had. A
// missing version is noticed because its successor is at its index.
func (j *Journal) visit(op string, s logView, from uint64, visit func(ledger.Record) error) (read int, err error) {
	if len(s.records) == 0 {
		return 0, s.missingError(op, from)
	}
	for i, found := range s.records {
		version := from + uint64(i)
		if at, err := j.keys.versionOf(found.Key); err != nil || at != version {
			return read, s.missingError(op, version)
		}
		e, err := s.record(op, i, version)
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
