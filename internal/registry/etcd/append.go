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

// What etcd takes in one transaction, with the limits that it has by default.
const (
	mostOps     = 128
	mostRequest = 3 << 19              // 1.5 MiB
	mostRecord  = mostRequest - 16<<10 // with room for keys, the head and what is compared
	partBytes   = 1 << 20              // a part that is larger has one record
)

// part is what goes into one transaction: records that follow each other, and
// the head that they are put behind.
type part struct {
	expect  *ledger.Head
	entries []entry
	values  []string
}

// head is the end of the log when the part has landed.
func (p part) head() ledger.Head { return p.entries[len(p.entries)-1].Head() }

// split cuts a batch into parts that etcd takes.
func split(op string, expect *ledger.Head, batch []ledger.Record, m mark) (parts []part, err error) {
	current, size := part{expect: expect}, 0
	for _, record := range batch {
		e := entry{Record: record, mark: m}
		value := e.encode()
		if len(value) > mostRecord {
			return nil, fault.New(op, fault.BodyTooLarge, "version %d has %d bytes, and etcd takes %d", record.Version, len(value), mostRecord)
		}
		if n := len(current.entries); n == mostOps-1 || n > 0 && size+len(value) > partBytes {
			head := current.head()
			parts = append(parts, current)
			current, size = part{expect: &head}, 0
		}
		current.entries = append(current.entries, e)
		current.values = append(current.values, value)
		size += len(value)
	}
	return append(parts, current), nil
}

// Append implements journal.Journal. A batch that is too large for a
// transaction is written in several. Should another writer come in between,
// then the error is StorageBusy and not ChainMismatch, because the first part
// is kept.
func (j *Journal) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	const op = "registry.etcd.append"
	if err := journal.CheckBatch(op, expect, batch); err != nil {
		return err
	}
	ctx, cancel, err := j.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	if len(batch) == 0 {
		return j.still(ctx, op, expect)
	}
	var m mark
	_, _ = cryptorand.Read(m[:]) // it does not fail
	parts, err := split(op, expect, batch, m)
	if err != nil {
		return err
	}
	for i, p := range parts {
		err := j.land(ctx, op, p)
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

// still checks that the head is the one that is expected.
func (j *Journal) still(ctx context.Context, op string, expect *ledger.Head) error {
	head, _, err := j.head(ctx, op)
	if err == nil && !same(head, expect) {
		err = mismatch(op, head)
	}
	return err
}

// request is the transaction: if the head is the expected one, and the first
// version is not there, put the records and the new head. If not, look at what
// is there instead.
func (j *Journal) request(p part) clientv3.Op {
	head, first := j.keys.head(), p.entries[0].Version
	is := clientv3.Compare(clientv3.CreateRevision(head), "=", 0)
	if p.expect != nil {
		is = clientv3.Compare(clientv3.Value(head), "=", encodeHead(*p.expect))
	}
	vacant := clientv3.Compare(clientv3.CreateRevision(j.keys.record(first)), "=", 0)
	var puts []clientv3.Op
	for i, e := range p.entries {
		puts = append(puts, clientv3.OpPut(j.keys.record(e.Version), p.values[i]))
	}
	puts = append(puts, clientv3.OpPut(head, encodeHead(p.head())))
	return clientv3.OpTxn([]clientv3.Cmp{is, vacant}, puts, j.looking(first, 1))
}

// errOpen says that a part may still land.
var errOpen = errors.New("it is not known whether it was kept")

// land writes a part and finds out whether it was kept.
//
// An answer that is lost says nothing, and some errors lie: etcd may say
// that it is full for the very transaction that filled it. So after every error
// the head and the record are read. If they do not settle it, the same
// transaction is sent again. That does no harm: the head never takes an old
// value again, so of all that were sent at most one is carried out, also if a
// member that was silent for an hour comes back with the first. Only this can
// close a case in which nothing was written yet but still might be.
func (j *Journal) land(ctx context.Context, op string, p part) error {
	ctx, cancel := context.WithTimeout(ctx, j.line.timeout)
	defer cancel()
	request := j.request(p)
	for try := 1; ; try++ {
		answer, err := j.line.once(ctx, op, request)
		if err == nil {
			return j.answered(op, p, answer.Txn())
		}
		s, lookErr := j.look(ctx, op, p.entries[0].Version, 1)
		if lookErr == nil {
			if verdict := s.verdict(op, p); !errors.Is(verdict, errOpen) {
				return verdict
			}
		}
		if !passing(err) {
			return err
		}
		if !j.line.pause(ctx, try) {
			return open(op, err)
		}
	}
}

// open is the error of a part that may have been kept, or still may be.
func open(op string, err error) error {
	kind := fault.KindOf(err)
	if kind != fault.Timeout {
		kind = fault.StorageBusy
	}
	return &fault.Error{Op: op, Kind: kind, Detail: details[kind] + ", and it is not known what was kept", Next: fault.NextOf(err), Err: err}
}

// answered is what an answer means. A refusal may be the answer to a second
// sending of what was kept the first time.
func (j *Journal) answered(op string, p part, answer *clientv3.TxnResponse) error {
	if answer.Succeeded {
		return nil
	}
	s, err := sightIn(op, answer)
	if err != nil {
		return err
	}
	verdict := s.verdict(op, p)
	if errors.Is(verdict, errOpen) {
		return damaged(op, nil, "the head of the log is written in a way that we do not know")
	}
	return verdict
}

// verdict tells from what was seen at its first version what became of a part:
// nil if it was kept, ChainMismatch if it was not and never will be, errOpen if
// it still may be.
func (s sight) verdict(op string, p part) error {
	first := p.entries[0]
	found, err := s.read(op, 0, first.Version)
	switch kind := fault.KindOf(err); {
	case err == nil && found.mark == first.mark:
		return nil
	case err == nil && same(s.head, p.expect):
		return damaged(op, nil, "version %d is there, and it is beyond the head of the log", first.Version)
	case err == nil:
		return mismatch(op, s.head)
	case kind == fault.NotFound && same(s.head, p.expect):
		return errOpen
	case kind == fault.NotFound:
		return mismatch(op, s.head)
	case kind == fault.Expired:
		return &fault.Error{Op: op, Kind: fault.StorageBusy, Detail: fmt.Sprintf("version %d was pruned before it was known whose it was", first.Version), Err: err}
	default:
		return err
	}
}

func same(a, b *ledger.Head) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func mismatch(op string, head *ledger.Head) error {
	if head == nil {
		return fault.New(op, fault.ChainMismatch, "the log is empty")
	}
	return fault.New(op, fault.ChainMismatch, "the log ends with version %d, %s", head.Version, head.Hash)
}
