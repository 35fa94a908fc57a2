package etcd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"micronode/b3"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// layout maps everything to its key. Numbers have as many digits as the largest
// one, so that etcd's order of keys is theirs.
type layout struct{ prefix string }

const (
	folderRecords     = "records/"
	folderCheckpoints = "checkpoints/"
	folderSnapshots   = "snapshots/"
	folderTiles       = "tiles/"
)

func (l layout) head() string  { return l.prefix + "head" }
func (l layout) prune() string { return l.prefix + "prune" }
func (l layout) probe() string { return l.prefix + "probe" } // never written

func (l layout) record(version uint64) string {
	return l.prefix + folderRecords + paddedNumber(version)
}
func (l layout) checkpoint(size uint64) string {
	return l.prefix + folderCheckpoints + paddedNumber(size)
}
func (l layout) tile(at journal.TileID) string {
	return fmt.Sprintf("%s%s%02d/%020d", l.prefix, folderTiles, at.Level, at.N)
}
func (l layout) chunk(s snapshotKey, i int) string { return fmt.Sprintf("%s%06d", l.chunks(s), i) }
func (l layout) chunks(s snapshotKey) string {
	return fmt.Sprintf("%s%s%020d/%x/", l.prefix, folderSnapshots, s.size, s.address[:])
}
func (l layout) records() (first, beyond string) {
	return l.record(0), l.record(math.MaxUint64) + "\x00"
}
func (l layout) checkpointsTo(size uint64) string { return l.checkpoint(size) + "\x00" }

// versionOf reads the key of a record.
func (l layout) versionOf(key []byte) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(string(key), l.prefix+folderRecords), 10, 64)
}

func paddedNumber(n uint64) string { return fmt.Sprintf("%020d", n) }

// headJSON is a head as stored in etcd. It is compared byte by byte, so this
// package writes it in one way only; and it is text, because operators look at
// it.
type headJSON struct {
	Version uint64     `json:"version"`
	Hash    b3.Address `json:"hash"`
}

func encodeHead(h ledger.Head) string {
	text, _ := json.Marshal(headJSON(h)) // numbers and addresses can always be written
	return string(text)
}

func decodeHead(value []byte) (ledger.Head, error) {
	var h headJSON
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&h); err != nil {
		return ledger.Head{}, fmt.Errorf("the head does not parse: %w", err)
	}
	return ledger.Head(h), nil
}

// appendID identifies the Append that wrote a record. Two of them may carry the
// same bytes, and each must know whether its own was written.
type appendID [16]byte

// storedRecord is a record as stored in etcd.
type storedRecord struct {
	ledger.Record
	appendID appendID
}

// storedRecordHeader is the version, the appendID, and the lengths of header
// and payload.
const storedRecordHeader = 8 + len(appendID{}) + 4 + 4

func (s storedRecord) encode() string {
	b := newValue(storedRecordHeader + len(s.Header) + len(s.Payload) + len(s.Preconditions))
	b = binary.BigEndian.AppendUint64(b, s.Version)
	b = append(b, s.appendID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Header)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Payload)))
	b = append(b, s.Header...)
	b = append(b, s.Payload...)
	return sealValue(append(b, s.Preconditions...))
}

// decodeRecord reads a record that must be of a version. The record shares the
// memory of the value.
func decodeRecord(version uint64, value []byte) (e storedRecord, err error) {
	b, err := openValue(value, storedRecordHeader)
	if err != nil {
		return storedRecord{}, err
	}
	e.Version = binary.BigEndian.Uint64(b)
	copy(e.appendID[:], b[8:])
	header := uint64(binary.BigEndian.Uint32(b[8+len(e.appendID):]))
	payload := uint64(binary.BigEndian.Uint32(b[12+len(e.appendID):]))
	b = b[storedRecordHeader:]
	if e.Version != version || header+payload > uint64(len(b)) {
		return storedRecord{}, fmt.Errorf("it says that it is version %d, with a header of %d bytes and a payload of %d", e.Version, header, payload)
	}
	e.Header, e.Payload, e.Preconditions = b[:header:header], b[header:header+payload:header+payload], b[header+payload:]
	return e, nil
}

// snapshotKey names the chunks of a snapshot. Equal snapshots have equal names, so
// two nodes that save the same one do not disturb each other.
type snapshotKey struct {
	size    uint64 // of the checkpoint
	address b3.Address
	length  uint64
}

func snapshotOf(c journal.Checkpoint) snapshotKey {
	return snapshotKey{size: c.Size, address: b3.Of(c.Snapshot), length: uint64(len(c.Snapshot))}
}

const storedCheckpointHeader = 8 + len(b3.Address{}) + 8

func (s snapshotKey) encode(note []byte) string {
	b := newValue(storedCheckpointHeader + len(note))
	b = binary.BigEndian.AppendUint64(b, s.size)
	b = append(b, s.address[:]...)
	b = binary.BigEndian.AppendUint64(b, s.length)
	return sealValue(append(b, note...))
}

func decodeCheckpoint(value []byte) (s snapshotKey, note []byte, err error) {
	b, err := openValue(value, storedCheckpointHeader)
	if err != nil {
		return snapshotKey{}, nil, err
	}
	s.size = binary.BigEndian.Uint64(b)
	copy(s.address[:], b[8:])
	s.length = binary.BigEndian.Uint64(b[8+len(s.address):])
	return s, b[storedCheckpointHeader:], nil
}

func encodePrune(p journal.Prune) string {
	return sealValue(append(binary.BigEndian.AppendUint64(newValue(8+len(p.Note)), p.Below), p.Note...))
}

func decodePrune(value []byte) (journal.Prune, error) {
	b, err := openValue(value, 8)
	if err != nil {
		return journal.Prune{}, err
	}
	return journal.Prune{Below: binary.BigEndian.Uint64(b), Note: b[8:]}, nil
}

// Every value but the head begins with a checksum of the rest. etcd checksums
// its log but not its database.
const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newValue allocates a value of n bytes and its checksum.
func newValue(n int) []byte { return make([]byte, sumSize, sumSize+n) }

func sealValue(b []byte) string {
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[sumSize:], castagnoli))
	return string(b)
}

// openValue checks a value and returns its content, at least that many bytes.
func openValue(value []byte, least int) ([]byte, error) {
	if len(value) < sumSize+least {
		return nil, fmt.Errorf("it has %d bytes, and needs %d at least", len(value), sumSize+least)
	}
	if binary.BigEndian.Uint32(value) != crc32.Checksum(value[sumSize:], castagnoli) {
		return nil, fmt.Errorf("its checksum is wrong")
	}
	return value[sumSize:], nil
}
