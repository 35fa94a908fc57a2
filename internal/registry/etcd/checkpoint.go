package etcd

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
)

// chunkBytes is how much of a snapshot is stored under one key, and chunkPage
// how many of those are read at a time.
const (
	chunkBytes = 512 << 10
	chunkPage  = 8
)

// chunkCount returns how many chunks a snapshot has. Even an empty one has a
// first chunk: while it exists, the others have not been deleted.
func (s snapshotKey) chunkCount() uint64 { return max(1, (s.length+chunkBytes-1)/chunkBytes) }

// SaveCheckpoint implements journal.Journal. The note makes the checkpoint
// visible, so it is written last; the same transaction deletes the snapshot of
// the one that it replaces.
func (j *Journal) SaveCheckpoint(ctx context.Context, c journal.Checkpoint) error {
	const op = "registry.etcd.save_checkpoint"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	s := snapshotOf(c)
	value := s.encode(c.Note)
	for range maxAttempts {
		saved, err := j.trySaveCheckpoint(ctx, op, s, value, c.Snapshot)
		if err != nil || saved {
			return err
		}
	}
	return fault.New(op, fault.StorageBusy, "others keep changing the checkpoint of %d versions", c.Size)
}

// trySaveCheckpoint saves a checkpoint unless the same one is changed
// concurrently.
func (j *Journal) trySaveCheckpoint(ctx context.Context, op string, s snapshotKey, value string, content []byte) (saved bool, err error) {
	key := j.keys.checkpoint(s.size)
	there, err := j.existingCheckpoint(ctx, op, s)
	if err != nil {
		return false, err
	}
	revision := int64(0)
	then := []clientv3.Op{clientv3.OpPut(key, value)}
	if there != nil {
		if string(there.Value) == value {
			return true, nil
		}
		revision = there.ModRevision
		if old, _, err := decodeCheckpoint(there.Value); err == nil && old.address != s.address {
			then = append(then, clientv3.OpDelete(j.keys.chunks(old), clientv3.WithPrefix()))
		}
	}
	made, err := j.putChunks(ctx, op, s, content)
	if err != nil {
		return false, err
	}
	answer, err := j.conn.retry(ctx, op, clientv3.OpTxn([]clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		clientv3.Compare(clientv3.CreateRevision(j.keys.chunk(s, 0)), "=", made),
	}, then, nil))
	if err != nil {
		return false, err
	}
	return answer.Txn().Succeeded, nil
}

// existingCheckpoint returns the existing checkpoint of the same size, if there
// is one, and rejects a size that the log does not have.
func (j *Journal) existingCheckpoint(ctx context.Context, op string, s snapshotKey) (*pb.KeyValue, error) {
	answer, err := j.conn.retry(ctx, op, clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpGet(j.keys.checkpoint(s.size)),
		clientv3.OpGet(j.keys.head()),
	}, nil))
	if err != nil {
		return nil, err
	}
	head, err := parseHead(op, answer.Txn().Responses[1].GetResponseRange().GetKvs())
	switch {
	case err != nil:
		return nil, err
	case s.size > 0 && (head == nil || s.size-1 > head.Version):
		return nil, fault.New(op, fault.Malformed, "a checkpoint of %d versions, and the log has fewer", s.size)
	}
	if found := answer.Txn().Responses[0].GetResponseRange().GetKvs(); len(found) > 0 {
		return found[0], nil
	}
	return nil, nil
}

// putChunks writes a snapshot, and returns the revision at which its first
// chunk was created. If that is unchanged when all are written, none was
// deleted.
func (j *Journal) putChunks(ctx context.Context, op string, s snapshotKey, content []byte) (made int64, err error) {
	for i := range int(s.chunkCount()) {
		key := j.keys.chunk(s, i)
		chunk := content[i*chunkBytes : min(len(content), (i+1)*chunkBytes)]
		answer, err := j.conn.retry(ctx, op, clientv3.OpTxn(nil, []clientv3.Op{
			clientv3.OpPut(key, string(chunk)),
			clientv3.OpGet(key, clientv3.WithKeysOnly()),
		}, nil))
		if err != nil {
			return 0, err
		}
		if i == 0 {
			made = answer.Txn().Responses[1].GetResponseRange().GetKvs()[0].CreateRevision
		}
	}
	return made, nil
}

// LoadCheckpoint implements journal.Journal. Note and snapshot are read as they
// were at one revision. If etcd has compacted that one meanwhile, they are read
// again.
func (j *Journal) LoadCheckpoint(ctx context.Context, size uint64) (c journal.Checkpoint, err error) {
	const op = "registry.etcd.load_checkpoint"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return journal.Checkpoint{}, err
	}
	defer cancel()
	for range maxAttempts {
		c, err = j.tryLoadCheckpoint(ctx, op, size)
		if fault.KindOf(err) != fault.Conflict {
			break
		}
	}
	return c, err
}

func (j *Journal) tryLoadCheckpoint(ctx context.Context, op string, size uint64) (journal.Checkpoint, error) {
	answer, err := j.conn.retry(ctx, op, j.latestCheckpointOp(size))
	if err != nil {
		return journal.Checkpoint{}, err
	}
	found := answer.Get().Kvs
	if len(found) == 0 {
		return journal.Checkpoint{}, fault.New(op, fault.NotFound, "there is no checkpoint of at most %d versions", size)
	}
	s, note, err := decodeCheckpoint(found[0].Value)
	if err != nil {
		return journal.Checkpoint{}, damagedError(op, err, "a checkpoint of at most %d versions is damaged", size)
	}
	content, err := j.getChunks(ctx, op, s, answer.Get().Header.GetRevision())
	if err != nil {
		return journal.Checkpoint{}, err
	}
	return journal.Checkpoint{Size: s.size, Note: note, Snapshot: content}, nil
}

// latestCheckpointOp requests the largest checkpoint of at most size.
func (j *Journal) latestCheckpointOp(size uint64) clientv3.Op {
	return clientv3.OpGet(j.keys.checkpoint(0), append(clientv3.WithLastKey(), clientv3.WithRange(j.keys.checkpointsTo(size)))...)
}

// getChunks reads a snapshot as it was at a revision.
func (j *Journal) getChunks(ctx context.Context, op string, s snapshotKey, revision int64) ([]byte, error) {
	var content bytes.Buffer
	beyond := clientv3.GetPrefixRangeEnd(j.keys.chunks(s))
	for read := 0; uint64(read) < s.chunkCount(); {
		answer, err := j.conn.retry(ctx, op, clientv3.OpGet(j.keys.chunk(s, read), clientv3.WithRange(beyond), clientv3.WithLimit(chunkPage), clientv3.WithRev(revision)))
		if err != nil {
			return nil, err
		}
		found := answer.Get().Kvs
		if len(found) == 0 {
			break
		}
		for _, chunk := range found {
			content.Write(chunk.Value)
		}
		read += len(found)
	}
	if b3.Of(content.Bytes()) != s.address {
		return nil, damagedError(op, nil, "the snapshot of the checkpoint of %d versions is damaged", s.size)
	}
	return content.Bytes(), nil
}

// SaveTile implements journal.Journal.
func (j *Journal) SaveTile(ctx context.Context, at journal.TileID, hashes []byte) error {
	const op = "registry.etcd.save_tile"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = j.conn.retry(ctx, op, clientv3.OpPut(j.keys.tile(at), sealValue(append(newValue(len(hashes)), hashes...))))
	return err
}

// LoadTile implements journal.Journal.
func (j *Journal) LoadTile(ctx context.Context, at journal.TileID) ([]byte, error) {
	const op = "registry.etcd.load_tile"
	ctx, cancel, err := j.startCall(ctx, op)
	if err != nil {
		return nil, err
	}
	defer cancel()
	answer, err := j.conn.retry(ctx, op, clientv3.OpGet(j.keys.tile(at)))
	if err != nil {
		return nil, err
	}
	found := answer.Get().Kvs
	if len(found) == 0 {
		return nil, fault.New(op, fault.NotFound, "tile %d of level %d was not saved", at.N, at.Level)
	}
	hashes, err := openValue(found[0].Value, 0)
	if err != nil {
		return nil, damagedError(op, err, "tile %d of level %d is damaged", at.N, at.Level)
	}
	return hashes, nil
}
