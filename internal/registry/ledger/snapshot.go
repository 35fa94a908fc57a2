package ledger

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"

	"micronode/fault"
)

// A snapshot is lines of canonical JSON: first a description of the state and
// the number of lines of each sort, then the items, the former values of the
// items that the head touched, the keys that are no longer signers, and the
// proposals that must not be committed again. A state has exactly one snapshot,
// byte for byte.

const snapshotType = "micronode registry snapshot v1"

// Snapshot encodes the complete state, so that a registry can continue from it
// without any older record.
func (s *State) Snapshot() []byte {
	uses := s.used.unexpired(s.committedAt)
	b := s.appendFirstLine(nil, len(uses))
	s.items.Root().Walk(func(_ []byte, item *Item) bool {
		b = append(append(b, item.JSON...), '\n')
		return false
	})
	for _, f := range s.headPriorItems {
		b = f.appendTo(b)
	}
	for _, r := range s.retired {
		b = r.appendTo(b)
	}
	for _, u := range uses {
		b = u.appendTo(b)
	}
	return b
}

// appendFirstLine writes the first line.
func (s *State) appendFirstLine(b []byte, uses int) []byte {
	b = append(b, `{"committed_at":`...)
	b = appendTime(b, s.committedAt)
	b = append(b, `,"head":`...)
	b = appendHead(b, &s.head)
	b = strconv.AppendInt(append(b, `,"items":`...), int64(s.items.Len()), 10)
	b = appendAddress(b, `,"registry":"`, s.registry)
	b = strconv.AppendInt(append(b, `,"retired":`...), int64(len(s.retired)), 10)
	b = append(b, `,"signer_versions":[`...)
	for i, version := range s.signerVersions {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, version, 10)
	}
	b = strconv.AppendInt(append(b, `],"spent":`...), int64(uses), 10)
	b = strconv.AppendInt(append(b, `,"touched":`...), int64(len(s.headPriorItems)), 10)
	return append(b, `,"type":"`+snapshotType+`"}`+"\n"...)
}

func (p priorItem) appendTo(b []byte) []byte {
	b = appendText(append(b, `{"id":`...), p.id)
	b = append(b, `,"item":`...)
	if p.item == nil {
		return append(b, "null}\n"...)
	}
	return append(append(b, p.item.JSON...), "}\n"...)
}

func (r retiredKey) appendTo(b []byte) []byte {
	b = r.public.appendTo(append(b, `{"public":"`...))
	b = appendText(append(b, `","signer_id":`...), r.signerID)
	b = strconv.AppendUint(append(b, `,"version":`...), r.version, 10)
	return append(b, "}\n"...)
}

func (u usedProposal) appendTo(b []byte) []byte {
	b = appendTime(append(b, `{"expires_at":`...), time.UnixMilli(u.expires))
	b = append(b, `,"proposal_id":"`+ProposalID(u.id)+`","version":`...)
	b = strconv.AppendUint(b, u.version, 10)
	return append(b, "}\n"...)
}

// OpenSnapshot returns the state that a snapshot was made of. It rejects
// whatever Snapshot would not have written. The checkpoint, which has the
// snapshot's hash, proves that it is the right one.
func OpenSnapshot(data []byte) (*State, error) {
	l := snapshotReader{rest: data}
	s, counts := l.firstLine()
	items := s.items.Txn()
	for last := ""; counts.items > 0 && l.err == nil; counts.items-- {
		item := l.item()
		if item.ID <= last {
			l.fail("the items are not sorted by id")
		}
		last = item.ID
		items.Insert([]byte(item.ID), &item)
	}
	s.items = items.CommitOnly()
	for ; counts.touched > 0 && l.err == nil; counts.touched-- {
		s.headPriorItems = append(s.headPriorItems, l.priorItem())
	}
	for ; counts.retired > 0 && l.err == nil; counts.retired-- {
		s.retired = append(s.retired, l.retiredKey())
	}
	var uses []usedProposal
	for ; counts.spent > 0 && l.err == nil; counts.spent-- {
		uses = append(uses, l.usedProposal())
	}
	if len(l.rest) > 0 {
		l.fail("something follows the snapshot")
	}
	if l.err != nil {
		return nil, l.err
	}
	if err := s.restore(uses); err != nil {
		return nil, err
	}
	return s, nil
}

// restore builds the rest of a state from its parts, and checks that they are
// consistent.
func (s *State) restore(uses []usedProposal) error {
	item, ok := s.items.Get([]byte(SignersID))
	if !ok || item.Kind != KindSigners {
		return badSnapshot("there is no signer set")
	}
	s.signers = newActiveSigners(*item)
	for _, check := range []func() error{s.checkGenesis, s.checkSignerVersions, s.checkPriorItems, s.checkRetired} {
		if err := check(); err != nil {
			return err
		}
	}
	return s.checkUsed(uses)
}

func (s *State) checkGenesis() error {
	if s.head.Version > 0 {
		return nil
	}
	if s.head.Hash != s.registry || s.items.Len() != 1 || len(s.headPriorItems) != 1 || s.headPriorItems[0].id != SignersID || s.headPriorItems[0].item != nil {
		return badSnapshot("it is of version 0 and does not match version 0")
	}
	return nil
}

func (s *State) checkSignerVersions() error {
	for i, version := range s.signerVersions {
		if version > s.head.Version || (i == 0) != (version == 0) || i > 0 && version <= s.signerVersions[i-1] {
			return badSnapshot("the versions that changed the signer set are not in order")
		}
	}
	return nil
}

// checkPriorItems checks what the head touched against the items now.
func (s *State) checkPriorItems() error {
	signers := false
	for i, f := range s.headPriorItems {
		if i > 0 && f.id <= s.headPriorItems[i-1].id {
			return badSnapshot("what the head touched is not sorted by id")
		}
		item, _ := s.items.Get([]byte(f.id))
		if item == nil && f.item == nil || item != nil && checkOp(f.item, Put(*item)) != nil {
			return badSnapshot("the head cannot have changed %s like this", quote(f.id))
		}
		if f.id == SignersID {
			signers = true
			if (f.item == nil) != (s.head.Version == 0) {
				return badSnapshot("the signer set must exist from version 0 on")
			}
		}
	}
	if signers != (s.SignersVersion() == s.head.Version) {
		return badSnapshot("it is not clear whether the head changed the signer set")
	}
	return nil
}

func (s *State) checkRetired() error {
	leavers := 0
	for i, r := range s.retired {
		if i > 0 && compareRetiredKeys(s.retired[i-1], r) >= 0 {
			return badSnapshot("the keys that are no longer signers are not sorted")
		}
		if _, known := slices.BinarySearch(s.signerVersions[1:], r.version); !known || s.signers.set.HasKey(r.public) {
			return badSnapshot("the key of %s cannot have been removed in version %d", quote(r.signerID), r.version)
		}
		if r.version == s.head.Version {
			leavers++
		}
	}
	return s.checkRetiredByHead(leavers)
}

// checkRetiredByHead compares the keys that the head removed with the set
// before it.
func (s *State) checkRetiredByHead(count int) error {
	for _, f := range s.headPriorItems {
		if f.id != SignersID || f.item == nil {
			continue
		}
		was, _ := f.item.SignerSet()
		for _, k := range was.Keys {
			if s.signers.set.HasKey(k.Public) {
				continue
			}
			i, gone := slices.BinarySearchFunc(s.retired, retiredKey{public: k.Public}, compareRetiredKeys)
			if !gone || s.retired[i] != (retiredKey{k.Public, k.ID, s.head.Version}) {
				return badSnapshot("the head removed the key of %s, but the snapshot does not list it", quote(k.ID))
			}
			count--
		}
	}
	if count != 0 {
		return badSnapshot("the snapshot lists a key as removed by the head that did not exist before")
	}
	return nil
}

func (s *State) checkUsed(uses []usedProposal) error {
	var version uint64
	latest := int64(math.MinInt64)
	for _, u := range uses {
		if u.version <= version || u.version > s.head.Version || u.expires < s.committedAt.UnixMilli() {
			return badSnapshot("the proposals that were committed are not in order")
		}
		version, latest = u.version, max(latest, u.expires)
	}
	if version != s.head.Version {
		return badSnapshot("the proposal of the head is missing")
	}
	if len(uses) == 0 {
		return nil
	}
	slices.SortFunc(uses, compareUsed)
	for i := 1; i < len(uses); i++ {
		if uses[i].id == uses[i-1].id {
			return badSnapshot("a proposal was committed twice")
		}
	}
	s.used = usedProposals{{uses, latest}}
	return nil
}

func badSnapshot(format string, args ...any) error {
	return refuse("registry.snapshot", fault.IntegrityFail,
		"Use another checkpoint's snapshot, or open the log from its first version on.", format, args...)
}

// snapshotReader reads a snapshot line by line. It keeps the first error.
type snapshotReader struct {
	rest   []byte
	number int
	err    error
}

func (sr *snapshotReader) fail(format string, args ...any) {
	if sr.err == nil {
		sr.err = badSnapshot("line %d: "+format, append([]any{sr.number}, args...)...)
	}
}

// nextLine reads one line.
func (sr *snapshotReader) nextLine() any {
	line, rest, found := bytes.Cut(sr.rest, []byte{'\n'})
	sr.number++
	if !found {
		sr.fail("the snapshot ends too early")
		return nil
	}
	sr.rest = rest
	value, err := readCanonical("registry.snapshot", line)
	if err != nil {
		sr.fail("%s", fault.DetailOf(err))
	}
	return value
}

func (sr *snapshotReader) finish(f *objectDecoder) {
	if err := f.finish(); err != nil {
		sr.fail("%s", fault.DetailOf(err))
	}
}

// lineCounts says how many lines there are of each sort.
type lineCounts struct{ items, touched, retired, spent int64 }

func (sr *snapshotReader) firstLine() (*State, lineCounts) {
	f := newObjectDecoder("registry.snapshot", "", sr.nextLine())
	s := emptyState()
	s.registry, s.committedAt = f.address("registry"), f.time("committed_at")
	if head := f.head("head"); head != nil {
		s.head = *head
	} else {
		f.fail("head", "is missing")
	}
	for _, value := range f.list("signer_versions", 1, math.MaxInt32) {
		version, ok := value.(int64)
		if !ok || version < 0 {
			f.fail("signer_versions", "must hold versions")
		}
		s.signerVersions = append(s.signerVersions, uint64(version))
	}
	c := lineCounts{
		items:   f.integer("items", 1, maxInteger),
		touched: f.integer("touched", 1, MaxOps),
		retired: f.integer("retired", 0, maxInteger),
		spent:   f.integer("spent", 0, maxInteger),
	}
	if f.text("type") != snapshotType {
		f.fail("type", "must be %q", snapshotType)
	}
	sr.finish(f)
	return s, c
}

func (sr *snapshotReader) item() Item {
	item, err := itemOf("registry.snapshot", "", sr.nextLine())
	if err != nil {
		sr.fail("%s", fault.DetailOf(err))
	}
	return item
}

func (sr *snapshotReader) priorItem() priorItem {
	f := newObjectDecoder("registry.snapshot", "", sr.nextLine())
	was := priorItem{id: f.id("id", maxID)}
	if value := f.field("item"); value != nil {
		item, err := itemOf("registry.snapshot", "item", value)
		if err == nil && item.ID != was.id {
			f.fail("item", "has another id")
		}
		f.addError(err)
		was.item = &item
	}
	sr.finish(f)
	return was
}

func (sr *snapshotReader) retiredKey() retiredKey {
	f := newObjectDecoder("registry.snapshot", "", sr.nextLine())
	r := retiredKey{f.key("public"), f.id("signer_id", maxSignerID), f.version("version")}
	sr.finish(f)
	return r
}

func (sr *snapshotReader) usedProposal() usedProposal {
	f := newObjectDecoder("registry.snapshot", "", sr.nextLine())
	id, ok := parseProposalID(f.text("proposal_id"))
	if !ok {
		f.fail("proposal_id", "must be 26 characters of lower-case base32")
	}
	u := usedProposal{id, f.time("expires_at").UnixMilli(), f.version("version")}
	sr.finish(f)
	return u
}
