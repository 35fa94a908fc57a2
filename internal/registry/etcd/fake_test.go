package etcd

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "/team/log/"

// fakeEtcd is a cluster in memory. It supports the requests that this package
// makes, and can lose them, or the responses to them. Its transactions are
// compared with a real cluster in the module of interoperability tests.
type fakeEtcd struct {
	clientv3.KV // what is not used here panics

	// set before use
	loseRequest  func(op clientv3.Op) error // the request is lost with this error
	loseResponse func(op clientv3.Op) error // it is executed, and answered with this error
	watchesFail  bool                       // watches end at once

	mu sync.Mutex

	// guarded by mu
	revision  int64
	compacted int64
	keys      map[string]*mvccpb.KeyValue
	watches   map[chan clientv3.WatchResponse]string
	calls     int
	lost      int // for tests to count in
}

func newFake() *fakeEtcd {
	return &fakeEtcd{keys: map[string]*mvccpb.KeyValue{}, watches: map[chan clientv3.WatchResponse]string{}, revision: 1}
}

// open makes a journal on the fake.
func (f *fakeEtcd) open(t testing.TB) *Journal {
	j := newJournal(context.Background(), newConn(5*time.Second, func(context.Context) (*etcdClient, error) {
		return &etcdClient{kv: f, watch: &fakeWatcher{fake: f}, close: func() error { return nil }}, nil
	}), prefix)
	if t != nil {
		t.Cleanup(func() { _ = j.Close() })
	}
	return j
}

func (f *fakeEtcd) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if err := ctx.Err(); err != nil {
		return clientv3.OpResponse{}, err
	}
	if f.loseRequest != nil {
		if err := f.loseRequest(op); err != nil {
			return clientv3.OpResponse{}, f.waitIfSilent(ctx, err)
		}
	}
	answer, err := f.execute(op)
	if err == nil && f.loseResponse != nil {
		err = f.loseResponse(op)
	}
	if err != nil {
		return clientv3.OpResponse{}, f.waitIfSilent(ctx, err)
	}
	return answer, nil
}

// waitIfSilent blocks until the attempt ends, if the member is silent.
func (f *fakeEtcd) waitIfSilent(ctx context.Context, err error) error {
	if err == errSilent {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *fakeEtcd) execute(op clientv3.Op) (clientv3.OpResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if op.Rev() > 0 && op.Rev() <= f.compacted {
		return clientv3.OpResponse{}, rpctypes.ErrCompacted
	}
	before := f.revision
	answer := f.apply(op, before+1)
	return answer, nil
}

// apply executes an operation. The caller holds mu.
func (f *fakeEtcd) apply(op clientv3.Op, revision int64) clientv3.OpResponse {
	switch {
	case op.IsPut():
		f.put(string(op.KeyBytes()), bytes.Clone(op.ValueBytes()), revision)
		return (&clientv3.PutResponse{Header: &pb.ResponseHeader{Revision: f.revision}}).OpResponse()
	case op.IsGet():
		return (*clientv3.GetResponse)(f.get(op)).OpResponse()
	case op.IsDelete():
		for _, kv := range f.inRange(op) {
			delete(f.keys, string(kv.Key))
			f.revision = revision
		}
		return (&clientv3.DeleteResponse{Header: &pb.ResponseHeader{Revision: f.revision}}).OpResponse()
	}
	compares, then, otherwise := op.Txn()
	answer := &clientv3.TxnResponse{Succeeded: !slices.ContainsFunc(compares, func(c clientv3.Cmp) bool { return !f.compares(c) })}
	if !answer.Succeeded {
		then = otherwise
	}
	for _, op := range then {
		response := &pb.ResponseOp{}
		if got := f.apply(op, revision).Get(); got != nil {
			response.Response = &pb.ResponseOp_ResponseRange{ResponseRange: (*pb.RangeResponse)(got)}
		}
		answer.Responses = append(answer.Responses, response)
	}
	answer.Header = &pb.ResponseHeader{Revision: f.revision}
	return answer.OpResponse()
}

func (f *fakeEtcd) put(key string, value []byte, revision int64) {
	f.revision = revision
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: revision, ModRevision: revision}
	if old := f.keys[key]; old != nil {
		kv.CreateRevision = old.CreateRevision
	}
	f.keys[key] = kv
	for watch, at := range f.watches {
		if at == key {
			select {
			case watch <- clientv3.WatchResponse{Events: []*clientv3.Event{{Type: mvccpb.Event_PUT, Kv: kv}}}:
			default: // it has a buffer of one, and is removed after that
			}
			delete(f.watches, watch)
		}
	}
}

func (f *fakeEtcd) get(op clientv3.Op) *pb.RangeResponse {
	found := f.inRange(op)
	if op.IsSortSet() {
		slices.Reverse(found)
	}
	if limit := op.Limit(); limit > 0 && int64(len(found)) > limit {
		found = found[:limit]
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: f.revision}, Kvs: found}
}

func (f *fakeEtcd) inRange(op clientv3.Op) (found []*mvccpb.KeyValue) {
	first, end := string(op.KeyBytes()), string(op.RangeBytes())
	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if key == first || end != "" && key >= first && key < end {
			found = append(found, f.keys[key])
		}
	}
	return found
}

func (f *fakeEtcd) compares(c clientv3.Cmp) bool {
	compare := c.GetCompare()
	kv := f.keys[string(compare.Key)]
	switch want := compare.TargetUnion.(type) {
	case *pb.Compare_Value:
		return kv != nil && bytes.Equal(kv.Value, want.Value)
	case *pb.Compare_CreateRevision:
		return kv.GetCreateRevision() == want.CreateRevision
	case *pb.Compare_ModRevision:
		return kv.GetModRevision() == want.ModRevision
	}
	panic("the fake does not know this comparison")
}

// change does something to the value of a key.
func (f *fakeEtcd) change(key string, change func(value []byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kv := f.keys[key]
	f.keys[key] = &mvccpb.KeyValue{Key: kv.Key, Value: change(bytes.Clone(kv.Value)), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}
}

func (f *fakeEtcd) remove(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, key)
}

// names lists the keys that begin with something.
func (f *fakeEtcd) names(beginning string) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if len(key) >= len(beginning) && key[:len(beginning)] == beginning {
			names = append(names, key[len(beginning):])
		}
	}
	return names
}

type fakeWatcher struct {
	clientv3.Watcher
	fake *fakeEtcd
}

func (w *fakeWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	events := make(chan clientv3.WatchResponse, 1)
	switch {
	case w.fake.watchesFail:
		events <- clientv3.WatchResponse{CompactRevision: 1, Canceled: true}
		close(events)
	case w.fake.watchOrPassed(key, clientv3.OpGet(key, opts...).Rev(), events):
		events <- clientv3.WatchResponse{Events: []*clientv3.Event{{}}}
	default:
		context.AfterFunc(ctx, func() { w.fake.unwatch(events) })
	}
	return events
}

// watchOrPassed reports whether a key was written since a revision. If not, the watch
// begins.
func (f *fakeEtcd) watchOrPassed(key string, revision int64, events chan clientv3.WatchResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys[key].GetModRevision() >= revision {
		return true
	}
	f.watches[events] = key
	return false
}

func (f *fakeEtcd) unwatch(events chan clientv3.WatchResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, events)
	close(events)
}
