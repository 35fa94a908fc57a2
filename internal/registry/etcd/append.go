package etcd

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// What etcd accepts in one transaction, with its default limits.
const (
	maxTxnOps       = 128
	maxRequestBytes = 3 << 19                  // 1.5 MiB
	maxRecordBytes  = maxRequestBytes - 16<<10 // with space for keys, the head and what is compared
	maxTxnBytes     = 1 << 20                  // a larger part has one record
)

// txnPart is the content of one transaction: consecutive records, and the head
// that they are appended to.
type txnPart struct {
	expect  *ledger.Head
	records []storedRecord
	values  []string
}

// head returns the head after the part was written.
func (p txnPart) head() ledger.Head { return p.records[len(p.records)-1].Head() }

// splitBatch splits a batch into parts that etcd accepts.
func splitBatch(op string, expect *ledger.Head, batch []ledger.Record, m appendID) (parts []txnPart, err error) {
	current, size := txnPart{expect: expect}, 0
	for _, record := range batch {
		e := storedRecord{Record: record, appendID: m}
		value := e.encode()
		if len(value) > maxRecordBytes {
			return nil, fault.New(op, fault.BodyTooLarge, "version %d has %d bytes; the maximum of etcd is %d", record.Version, len(value), maxRecordBytes)
		}
		if n := len(current.records); n == maxTxnOps-1 || n > 0 && size+len(value) > maxTxnBytes {
			head := current.head()
			parts = append(parts, current)
			current, size = txnPart{expect: &head}, 0
		}
		current.records = append(current.records, e)
		current.values = append(current.values, value)
		size += len(value)
	}
	return append(parts, current), nil
}

// Append implements journal.Journal. A batch that is too large for a
// transaction is written in several. If another writer appends in between, the
// error is StorageBusy and not ChainMismatch, because the first part was
// written.
func (j *Journal) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	const op = "registry.etcd.append"
	if err := journal.CheckBatch(op, expect, batch); err != nil {
		return err
	}
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	if len(batch) == 0 {
		return j.checkHead(ctx, op, expect)
	}
	var m appendID
	_, _ = cryptorand.Read(m[:]) // it does not fail
	parts, err := splitBatch(op, expect, batch, m)
	if err != nil {
		return err
	}
	for i, p := range parts {
		err := j.writeTxn(ctx, op, p)
		if i > 0 && fault.KindOf(err) == fault.ChainMismatch {
			return &fault.Error{Op: op, Kind: fault.StorageBusy, Err: fmt.Errorf("%v", err),
				Detail: fmt.Sprintf("another writer came between: version %d is kept, and those after it are not", p.expect.Version)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkHead checks that the head is the expected one.
func (j *Journal) checkHead(ctx context.Context, op string, expect *ledger.Head) error {
	head, _, err := j.head(ctx, op)
	if err == nil && !journal.SameHead(head, expect) {
		err = headMismatch(op, head)
	}
	return err
}

// appendTxn is the transaction: if the head is the expected one, and the first
// version does not exist, put the records and the new head. Otherwise read
// them.
func (j *Journal) appendTxn(p txnPart) clientv3.Op {
	head, first := j.keys.head(), p.records[0].Version
	is := clientv3.Compare(clientv3.CreateRevision(head), "=", 0)
	if p.expect != nil {
		is = clientv3.Compare(clientv3.Value(head), "=", encodeHead(*p.expect))
	}
	vacant := clientv3.Compare(clientv3.CreateRevision(j.keys.record(first)), "=", 0)
	var puts []clientv3.Op
	for i, e := range p.records {
		puts = append(puts, clientv3.OpPut(j.keys.record(e.Version), p.values[i]))
	}
	puts = append(puts, clientv3.OpPut(head, encodeHead(p.head())))
	return clientv3.OpTxn([]clientv3.Cmp{is, vacant}, puts, j.readOps(first, 1))
}

// errOutcomeUnknown means that a part may still be written.
var errOutcomeUnknown = errors.New("it is unknown whether it was stored")

// writeTxn writes a part and determines whether it was written.
//
// A lost response proves nothing, and some errors lie: etcd may report that it
// is full for the very transaction that filled it. So after every error the
// head and the record are read. If they do not resolve it, the same transaction
// is sent again. That is harmless: the head never takes an old value again, so
// of all that were sent at most one is executed, even if a member that was
// silent for an hour comes back with the first. Only this resolves a case in
// which nothing was written yet but still might be.
func (j *Journal) writeTxn(ctx context.Context, op string, p txnPart) error {
	ctx, cancel := context.WithTimeout(ctx, j.conn.timeout)
	defer cancel()
	request := j.appendTxn(p)
	for try := 1; ; try++ {
		answer, err := j.conn.attempt(ctx, op, request)
		if err == nil {
			return j.txnOutcome(op, p, answer.Txn())
		}
		s, lookErr := j.readView(ctx, op, p.records[0].Version, 1)
		if lookErr == nil {
			if verdict := s.outcome(op, p); !errors.Is(verdict, errOutcomeUnknown) {
				return verdict
			}
		}
		if !isTransient(err) {
			return err
		}
		if !j.conn.waitBackoff(ctx, try) {
			return unknownOutcome(op, err)
		}
	}
}

// unknownOutcome is the error of a part that may have been written, or still
// may be.
func unknownOutcome(op string, err error) error {
	kind := fault.KindOf(err)
	if kind != fault.Timeout {
		kind = fault.StorageBusy
	}
	return &fault.Error{Op: op, Kind: kind, Detail: details[kind] + ", and it is unknown what was stored", Next: fault.NextOf(err), Err: err}
}

// txnOutcome interprets a response. A failed comparison may be the response to
// a second request whose first was executed.
func (j *Journal) txnOutcome(op string, p txnPart, answer *clientv3.TxnResponse) error {
	if answer.Succeeded {
		return nil
	}
	s, err := parseLogView(op, answer)
	if err != nil {
		return err
	}
	verdict := s.outcome(op, p)
	if errors.Is(verdict, errOutcomeUnknown) {
		return damagedError(op, nil, "the head of the log has an unknown format")
	}
	return verdict
}

// outcome derives what happened to a part from the view at its first version:
// nil if it was written, ChainMismatch if it was not and never will be,
// errOutcomeUnknown if it still may be.
func (l logView) outcome(op string, p txnPart) error {
	first := p.records[0]
	found, err := l.record(op, 0, first.Version)
	switch kind := fault.KindOf(err); {
	case err == nil && found.appendID == first.appendID:
		return nil
	case err == nil && journal.SameHead(l.head, p.expect):
		return damagedError(op, nil, "version %d is there, and it is beyond the head of the log", first.Version)
	case err == nil:
		return headMismatch(op, l.head)
	case kind == fault.NotFound && journal.SameHead(l.head, p.expect):
		return errOutcomeUnknown
	case kind == fault.NotFound:
		return headMismatch(op, l.head)
	case kind == fault.Expired:
		return &fault.Error{Op: op, Kind: fault.StorageBusy, Detail: fmt.Sprintf("version %d was pruned before it was known whose it was", first.Version), Err: err}
	default:
		return err
	}
}

func headMismatch(op string, head *ledger.Head) error {
	if head == nil {
		return fault.New(op, fault.ChainMismatch, "the log is empty")
	}
	return fault.New(op, fault.ChainMismatch, "the log ends with version %d, %s", head.Version, head.Hash)
}
