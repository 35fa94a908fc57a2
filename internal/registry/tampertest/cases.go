package tampertest

import (
	"bytes"
	"time"

	"micronode/b3"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// logKind says which logs a change applies to.
type logKind int

const (
	wholeAndPruned logKind = iota
	prunedOnly             // of a long log that was pruned
	longWhole              // of a long log that was not
)

// tampering is one way to change a log.
type tampering struct {
	what   string
	kind   logKind
	change func(*testLog)

	reads      []int // versions that must not be served any more
	repairable bool  // it can be rebuilt from the records: it is detected, and the node keeps working
}

// tamperings lists all changes. Those that need the log's own key say so.
var tamperings = []tampering{
	// records
	{"a payload is forged that no state is left of", wholeAndPruned, forge(265), []int{265}, false},
	{"a payload is forged behind the checkpoint that covers what was pruned", wholeAndPruned, forge(275), []int{275}, false},
	{"a payload is forged that the last checkpoint ends with", wholeAndPruned, forge(newest - 1), []int{newest - 1}, false},
	{"a payload is forged behind the last checkpoint", wholeAndPruned, forge(newest + 5), []int{newest + 5}, false},
	{"the payload of the head is forged", wholeAndPruned, forge(versions - 1), []int{versions - 1}, false},
	{"the payload of the head is forged, and a checkpoint ends with it", wholeAndPruned, func(l *testLog) {
		l.records = l.records[:l.position(newest)]
		forge(newest - 1)(l)
	}, []int{newest - 1}, false},
	{"a payload is forged under a full tile", longWhole, forge(5), []int{5}, false},
	{"preconditions are forged", wholeAndPruned, func(l *testLog) {
		l.record(268).Preconditions = bytes.Replace(l.record(268).Preconditions, []byte(`"id":"n`), []byte(`"id":"m`), 1)
	}, []int{268}, false},
	{"a version says that it was committed at another time", wholeAndPruned, edit(265, `"committed_at":"2026`, `"committed_at":"2025`), []int{265}, false},
	{"the same, under a full tile that was kept", longWhole, edit(5, `"committed_at":"2026`, `"committed_at":"2025`), []int{5}, false},
	{"a signer is said to have signed at another time", wholeAndPruned, edit(275, `"signed_at":"2026`, `"signed_at":"2025`), []int{275}, false},
	{"an approval beyond the quorum is taken away", wholeAndPruned, dropApproval(manySigned), []int{manySigned}, false},
	{"two versions change places", wholeAndPruned, func(l *testLog) {
		a, b := *l.record(272), *l.record(273)
		a.Version, b.Version = b.Version, a.Version
		*l.record(272), *l.record(273) = b, a
	}, []int{272, 273}, false},
	{"two payloads change places", wholeAndPruned, func(l *testLog) {
		l.record(264).Payload, l.record(276).Payload = l.record(276).Payload, l.record(264).Payload
	}, []int{264, 276}, false},
	{"an old version stands in the place of a later one", wholeAndPruned, func(l *testLog) {
		old := *l.record(258)
		old.Version = l.record(280).Version
		*l.record(280) = old
	}, []int{280}, false},
	{"changes that were all approved are put in another order, and chained again", wholeAndPruned, reorder(271), []int{271, 272, 280}, false},
	{"the same, before any state that is left", wholeAndPruned, reorder(258), []int{258, 259, 265}, false},
	{"the same, under a full tile", longWhole, reorder(40), []int{40, 41, 100}, false},
	{"the same, behind the last checkpoint, where the head is forged as well", wholeAndPruned, func(l *testLog) {
		reorder(newest + 2)(l)
		forge(versions - 1)(l)
	}, []int{newest + 2, newest + 3}, false},
	{"a version is added that nobody has signed", wholeAndPruned, func(l *testLog) {
		r := l.record(newest + 5)
		h, err := r.DecodeHeader()
		panicOn(err)
		sig := h.Approvals[0].Sig
		r.Header = bytes.Replace(r.Header, b64(sig), b64(bytes.Repeat([]byte{1}, len(sig))), 1)
		l.rechain(newest + 6)
	}, []int{newest + 5, newest + 6, versions - 1}, false},

	// checkpoints
	{"the last snapshot is edited", wholeAndPruned, editSnapshot(func(l *testLog) int { return l.position(newest) }), nil, true},
	{"the snapshot that covers what was pruned is edited", wholeAndPruned, editSnapshot(func(l *testLog) int { return l.position(covering) }), nil, true},
	{"the snapshot of an old checkpoint is edited", wholeAndPruned, editSnapshot(func(l *testLog) int { return l.oldest }), nil, true},
	{"the signers in the last snapshot are edited", wholeAndPruned, func(l *testLog) {
		c := l.checkpoint(l.position(newest))
		c.Snapshot = bytes.ReplaceAll(c.Snapshot, []byte(`"m":2`), []byte(`"m":1`))
		l.replace(c)
	}, nil, true},
	{"an old checkpoint is put in the place of the last one", wholeAndPruned, func(l *testLog) {
		c := l.checkpoint(l.position(covering))
		c.Size = uint64(l.position(newest))
		l.replace(c)
	}, nil, true},
	{"the last checkpoint has the snapshot of an older one", wholeAndPruned, func(l *testLog) {
		c := l.checkpoint(l.position(newest))
		c.Snapshot = l.checkpoint(l.position(covering)).Snapshot
		l.replace(c)
	}, nil, true},
	{"the last checkpoint is signed by somebody else", wholeAndPruned, func(l *testLog) { l.signAgain(l.position(newest), l.root(l.position(newest)), thief) }, nil, true},
	{"an old checkpoint is signed by somebody else", wholeAndPruned, func(l *testLog) { l.signAgain(l.oldest, l.root(l.oldest), thief) }, nil, true},
	{"the checkpoints that cover what was pruned are gone", prunedOnly, func(l *testLog) {
		delete(l.checkpoints, covering)
		delete(l.checkpoints, newest)
	}, nil, false},
	{"the end that the last checkpoint covers is cut off", wholeAndPruned, func(l *testLog) { l.cutAt = l.position(newest - 3) }, nil, false},
	{"the end is cut off, with the checkpoint that the prune note names", prunedOnly, func(l *testLog) {
		l.setPruneNote(l.pruneNote(newest), logKey)
		delete(l.checkpoints, newest)
		l.cutAt = covering + 3
	}, nil, false},

	// the prune note
	{"the prune note is no note", prunedOnly, func(l *testLog) { l.prune.Note = []byte("pruned") }, nil, false},
	{"the prune note is signed by somebody else", prunedOnly, func(l *testLog) { l.setPruneNote(l.pruneNote(covering), thief) }, nil, false},
	{"the prune note is an older one", prunedOnly, withPruneNote(func(l *testLog, p *tree.PruneNote) { p.Below, p.Hash, p.Size = 128, l.records[127].Head().Hash, 200 }), nil, false},
	{"the prune note is of a registry with the same name", prunedOnly, withPruneNote(func(_ *testLog, p *tree.PruneNote) { p.Registry[31] ^= 1 }), nil, false},

	// tiles
	{"a tile is edited", longWhole, func(l *testLog) {
		tile := bytes.Clone(l.tiles[journal.TileID{}])
		tile[4000] ^= 1
		l.tiles[journal.TileID{}] = tile
	}, nil, true},
	{"a tile over what was pruned is edited", prunedOnly, func(l *testLog) {
		tile := bytes.Clone(l.tiles[journal.TileID{}])
		tile[4000] ^= 1
		l.tiles[journal.TileID{}] = tile
	}, nil, false},
	{"a tile over what was pruned is gone", prunedOnly, func(l *testLog) { delete(l.tiles, journal.TileID{}) }, nil, false},

	// with the key of the log: false statements that are signed
	{"signed: a version names another one as the one before it", wholeAndPruned, signedAgain(func(l *testLog) {
		flip(l.record(265), `"prev_hash":"b3:`)
	}), nil, false},
	{"signed: a version has too few approvals", wholeAndPruned, signedAgain(dropApproval(265)), nil, false},
	{"signed: a version was committed before the one before it", wholeAndPruned, signedAgain(edit(265, `"committed_at":"2026`, `"committed_at":"2025`)), nil, false},
	{"signed: a version is of another registry", wholeAndPruned, signedAgain(func(l *testLog) { flip(l.record(265), `"registry":"b3:`) }), nil, false},
	{"signed: a version was approved for another registry of the same signers", wholeAndPruned, signedAgain(func(l *testLog) {
		*l.record(265) = *l.twin().record(265)
		l.rechain(265)
	}), nil, false},
	{"signed: a root that is not that of the versions", wholeAndPruned, func(l *testLog) { l.signAgain(l.position(newest), l.root(l.position(newest)-1), logKey) }, nil, false},
	{"signed: a root that is not that of the versions, of the checkpoint that covers what was pruned", wholeAndPruned, func(l *testLog) {
		l.signAgain(l.position(covering), l.root(l.position(covering)-1), logKey)
	}, nil, false},
	{"signed: a snapshot of another head, and nothing behind it", prunedOnly, func(l *testLog) {
		l.records = l.records[:newest]
		delete(l.checkpoints, covering)
		l.setPruneNote(l.pruneNote(newest), logKey)
		was := l.record(newest - 1).Head().Hash
		other := was
		other[0] ^= 1
		l.signCheckpoint(newest, bytes.Replace(stateIn(l.checkpoint(newest).Snapshot), []byte(was.String()), []byte(other.String()), 1))
	}, nil, false},
	{"signed: a snapshot of a state that the versions do not come to", wholeAndPruned, func(l *testLog) {
		l.signCheckpoint(l.position(newest), editName(stateIn(l.checkpoint(l.position(newest)).Snapshot)))
	}, nil, false},
	{"signed: a snapshot with a change of the signers that never was", prunedOnly, func(l *testLog) {
		was := l.records[l.changedEarly]
		edit(l.changedEarly, `"signed_at":"2026`, `"signed_at":"2025`)(l)
		body := l.snapshot(newest, stateIn(l.checkpoint(newest).Snapshot))
		l.records[l.changedEarly] = was
		l.replace(journal.Checkpoint{Size: newest, Snapshot: body, Note: l.sign(newest, l.root(newest), b3.Of(body), logKey)})
		delete(l.checkpoints, covering)
		l.setPruneNote(l.pruneNote(newest), logKey)
	}, nil, false},
	{"signed: a prune note that names another version", prunedOnly, withPruneNote(func(l *testLog, p *tree.PruneNote) { p.Hash = l.records[3].Head().Hash }), nil, false},
	{"signed: a prune note for less than is gone", prunedOnly, func(l *testLog) {
		p := l.pruneNote(covering)
		p.Below, p.Hash = 130, l.records[129].Head().Hash
		l.setPruneNote(p, logKey)
		l.claimedPruned = 130
	}, nil, false},
}

// signedAgain makes a change, and then all that follows as a dishonest log
// would: the versions are chained again, and the checkpoints and the note
// signed again.
func signedAgain(change func(*testLog)) func(*testLog) {
	return func(l *testLog) {
		change(l)
		l.rechain(266)
		l.signAllAgain()
	}
}

// flip changes the first digit of a hash in a header.
func flip(r *ledger.Record, before string) {
	r.Header = bytes.Clone(r.Header)
	at := bytes.Index(r.Header, []byte(before)) + len(before)
	if r.Header[at] = r.Header[at] ^ 1; r.Header[at] > '9' && r.Header[at] < 'a' || r.Header[at] > 'f' {
		r.Header[at] = '0'
	}
}

// forge changes the payload of a version, and nothing else.
func forge(version int) func(*testLog) {
	return func(l *testLog) {
		r := l.record(version)
		r.Payload = bytes.Replace(r.Payload, []byte(`"manifest":"b3:00`), []byte(`"manifest":"b3:ff`), 1)
	}
}

// edit changes what a header says.
func edit(version int, from, to string) func(*testLog) {
	return func(l *testLog) {
		l.record(version).Header = bytes.Replace(l.record(version).Header, []byte(from), []byte(to), 1)
	}
}

// dropApproval removes the first approval of a version.
func dropApproval(version int) func(*testLog) {
	return func(l *testLog) {
		r := l.record(version)
		from := bytes.Index(r.Header, []byte(`"approvals":[`)) + len(`"approvals":[`)
		end := from + bytes.Index(r.Header[from:], []byte(`},`)) + len(`},`)
		r.Header = append(bytes.Clone(r.Header[:from]), r.Header[end:]...)
	}
}

// reorder commits a change and the next one in the other order, and all that
// follow again: every signature is right, and so is every hash of the chain.
func reorder(version int) func(*testLog) {
	return func(l *testLog) {
		a := l.position(version)
		state := l.states[a-1]
		for n := a; n < len(l.records); n++ {
			from := n
			switch n {
			case a:
				from = a + 1
			case a + 1:
				from = a
			}
			record, next, err := state.Commit(l.proposals[from], l.approvals[from], state.CommittedAt().Add(time.Second))
			panicOn(err)
			l.records[n], state = record, next
		}
	}
}

// editSnapshot changes a name in a snapshot.
func editSnapshot(size func(*testLog) int) func(*testLog) {
	return func(l *testLog) {
		c := l.checkpoint(size(l))
		c.Snapshot = editName(c.Snapshot)
		l.replace(c)
	}
}

func editName(b []byte) []byte {
	return bytes.Replace(b, []byte(`{"id":"n2","kind":"name","manifest":"b3:00`), []byte(`{"id":"n2","kind":"name","manifest":"b3:ff`), 1)
}

// withPruneNote writes another prune note.
func withPruneNote(change func(*testLog, *tree.PruneNote)) func(*testLog) {
	return func(l *testLog) {
		p := l.pruneNote(covering)
		change(l, &p)
		l.setPruneNote(p, logKey)
	}
}
