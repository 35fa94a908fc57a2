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

// layout says under which key each thing lies. Numbers have as many digits as
// the largest one, so that etcd's order of keys is theirs.
type layout struct{ prefix string }

const (
	folderRecords     = "records/"
	folderCheckpoints = "checkpoints/"
	folderSnapshots   = "snapshots/"
	folderTiles       = "tiles/"
)

func (l layout) head() string  { return l.prefix + "head" }
func (l layout) prune() string { return l.prefix + "prune" }

func (l layout) record(version uint64) string  { return l.prefix + folderRecords + number(version) }
func (l layout) checkpoint(size uint64) string { return l.prefix + folderCheckpoints + number(size) }
func (l layout) tile(at journal.TileID) string {
	return fmt.Sprintf("%s%s%02d/%020d", l.prefix, folderTiles, at.Level, at.N)
}
func (l layout) chunk(s snapshot, i int) string { return fmt.Sprintf("%s%06d", l.chunks(s), i) }
func (l layout) chunks(s snapshot) string {
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

func number(n uint64) string { return fmt.Sprintf("%020d", n) }

// headJSON is a head as it lies in etcd. It is compared byte by byte, so it is
// written by this package in one way only; and it is text, because operators
// look at it.
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

// mark tells which Append wrote a record. Two of them may carry the same bytes,
// and each must know whether it was its own that was kept.
type mark [16]byte

// entry is a record as it lies in etcd.
type entry struct {
	ledger.Record
	mark mark
}

// entryHead is the version, the mark, and the lengths of header and payload.
const entryHead = 8 + len(mark{}) + 4 + 4

func (e entry) encode() string {
	b := begin(entryHead + len(e.Header) + len(e.Payload) + len(e.Preconditions))
	b = binary.BigEndian.AppendUint64(b, e.Version)
	b = append(b, e.mark[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Header)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Payload)))
	b = append(b, e.Header...)
	b = append(b, e.Payload...)
	return seal(append(b, e.Preconditions...))
}

// decodeEntry reads a record that must be of a version. The record shares the
// memory of the value.
func decodeEntry(version uint64, value []byte) (e entry, err error) {
	b, err := unseal(value, entryHead)
	if err != nil {
		return entry{}, err
	}
	e.Version = binary.BigEndian.Uint64(b)
	copy(e.mark[:], b[8:])
	header := uint64(binary.BigEndian.Uint32(b[8+len(e.mark):]))
	payload := uint64(binary.BigEndian.Uint32(b[12+len(e.mark):]))
	b = b[entryHead:]
	if e.Version != version || header+payload > uint64(len(b)) {
		return entry{}, fmt.Errorf("it says that it is version %d, with a header of %d bytes and a payload of %d", e.Version, header, payload)
	}
	e.Header, e.Payload, e.Preconditions = b[:header:header], b[header:header+payload:header+payload], b[header+payload:]
	return e, nil
}

// snapshot names the chunks of a snapshot. Equal snapshots have equal names, so
// two nodes that save the same one do not disturb each other.
type snapshot struct {
	size    uint64 // of the checkpoint
	address b3.Address
	length  uint64
}

func snapshotOf(c journal.Checkpoint) snapshot {
	return snapshot{size: c.Size, address: b3.Of(c.Snapshot), length: uint64(len(c.Snapshot))}
}

const checkpointHead = 8 + len(b3.Address{}) + 8

func (s snapshot) encode(note []byte) string {
	b := begin(checkpointHead + len(note))
	b = binary.BigEndian.AppendUint64(b, s.size)
	b = append(b, s.address[:]...)
	b = binary.BigEndian.AppendUint64(b, s.length)
	return seal(append(b, note...))
}

func decodeCheckpoint(value []byte) (s snapshot, note []byte, err error) {
	b, err := unseal(value, checkpointHead)
	if err != nil {
		return snapshot{}, nil, err
	}
	s.size = binary.BigEndian.Uint64(b)
	copy(s.address[:], b[8:])
	s.length = binary.BigEndian.Uint64(b[8+len(s.address):])
	return s, b[checkpointHead:], nil
}

func encodePrune(p journal.Prune) string {
	return seal(append(binary.BigEndian.AppendUint64(begin(8+len(p.Note)), p.Below), p.Note...))
}

func decodePrune(value []byte) (journal.Prune, error) {
	b, err := unseal(value, 8)
	if err != nil {
		return journal.Prune{}, err
	}
	return journal.Prune{Below: binary.BigEndian.Uint64(b), Note: b[8:]}, nil
}

// Every value but the head begins with a checksum of the rest. etcd guards its
// log in this way but not its database.
const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin makes room for a value of n bytes and its checksum.
func begin(n int) []byte { return make([]byte, sumSize, sumSize+n) }

func seal(b []byte) string {
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[sumSize:], castagnoli))
	return string(b)
}

// unseal checks a value and returns what is in it, at least so many bytes.
func unseal(value []byte, least int) ([]byte, error) {
	if len(value) < sumSize+least {
		return nil, fmt.Errorf("it has %d bytes, and needs %d at least", len(value), sumSize+least)
	}
	if binary.BigEndian.Uint32(value) != crc32.Checksum(value[sumSize:], castagnoli) {
		return nil, fmt.Errorf("its checksum is wrong")
	}
	return value[sumSize:], nil
}
