package ledger

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"

	"micronode/fault"
)

// A snapshot is lines of canonical JSON: first what the state is and how many
// lines of each sort follow, then the items, what the items were that the head
// touched, the keys that are no longer signers, and the proposals that must not
// be committed again. There is one snapshot for a state, to the byte.

const snapshotType = "micronode registry snapshot v1"

// Snapshot writes down everything that the state knows, so that work can go on
// from it without any older record.
func (s *State) Snapshot() []byte {
	uses := s.spent.unexpired(s.committedAt)
	b := s.appendFirst(nil, len(uses))
	s.items.Root().Walk(func(_ []byte, item *Item) bool {
		b = append(append(b, item.JSON...), '\n')
		return false
	})
	for _, f := range s.before {
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

// appendFirst writes the first line.
func (s *State) appendFirst(b []byte, uses int) []byte {
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
	b = strconv.AppendInt(append(b, `,"touched":`...), int64(len(s.before)), 10)
	return append(b, `,"type":"`+snapshotType+`"}`+"\n"...)
}

func (f former) appendTo(b []byte) []byte {
	b = appendText(append(b, `{"id":`...), f.id)
	b = append(b, `,"item":`...)
	if f.item == nil {
		return append(b, "null}\n"...)
	}
	return append(append(b, f.item.JSON...), "}\n"...)
}

func (r retirement) appendTo(b []byte) []byte {
	b = r.public.appendTo(append(b, `{"public":"`...))
	b = appendText(append(b, `","signer_id":`...), r.signerID)
	b = strconv.AppendUint(append(b, `,"version":`...), r.version, 10)
	return append(b, "}\n"...)
}

func (u use) appendTo(b []byte) []byte {
	b = appendTime(append(b, `{"expires_at":`...), time.UnixMilli(u.expires))
	b = append(b, `,"proposal_id":"`+ProposalID(u.id)+`","version":`...)
	b = strconv.AppendUint(b, u.version, 10)
	return append(b, "}\n"...)
}

// OpenSnapshot returns the state that a snapshot was made of. It refuses
// whatever Snapshot would not have written; that the snapshot is the right one
// is for the checkpoint to say, which has its hash.
func OpenSnapshot(data []byte) (*State, error) {
	l := lines{rest: data}
	s, counts := l.first()
	items := s.items.Txn()
	for last := ""; counts.items > 0 && l.wrong == nil; counts.items-- {
		item := l.item()
		if item.ID <= last {
			l.fail("the items are not sorted by id")
		}
		last = item.ID
		items.Insert([]byte(item.ID), &item)
	}
	s.items = items.CommitOnly()
	for ; counts.touched > 0 && l.wrong == nil; counts.touched-- {
		s.before = append(s.before, l.former())
	}
	for ; counts.retired > 0 && l.wrong == nil; counts.retired-- {
		s.retired = append(s.retired, l.retirement())
	}
	var uses []use
	for ; counts.spent > 0 && l.wrong == nil; counts.spent-- {
		uses = append(uses, l.use())
	}
	if len(l.rest) > 0 {
		l.fail("something follows the snapshot")
	}
	if l.wrong != nil {
		return nil, l.wrong
	}
	if err := s.restore(uses); err != nil {
		return nil, err
	}
	return s, nil
}

// restore makes the rest of a state from its parts, and checks that they can be
// parts of one state.
func (s *State) restore(uses []use) error {
	item, ok := s.items.Get([]byte(SignersID))
	if !ok || item.Kind != KindSigners {
		return badSnapshot("there is no signer set")
	}
	s.council = newCouncil(*item)
	for _, check := range []func() error{s.checkBeginning, s.checkSignerVersions, s.checkBefore, s.checkRetired} {
		if err := check(); err != nil {
			return err
		}
	}
	return s.checkSpent(uses)
}

func (s *State) checkBeginning() error {
	if s.head.Version > 0 {
		return nil
	}
	if s.head.Hash != s.registry || s.items.Len() != 1 || len(s.before) != 1 || s.before[0].id != SignersID || s.before[0].item != nil {
		return badSnapshot("it is of version 0 and does not say what version 0 says")
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

// checkBefore holds what the head touched against what is there now.
func (s *State) checkBefore() error {
	signers := false
	for i, f := range s.before {
		if i > 0 && f.id <= s.before[i-1].id {
			return badSnapshot("what the head touched is not sorted by id")
		}
		item, _ := s.items.Get([]byte(f.id))
		if item == nil && f.item == nil || item != nil && fits(f.item, Put(*item)) != nil {
			return badSnapshot("the head cannot have changed %s like this", quote(f.id))
		}
		if f.id == SignersID {
			signers = true
			if (f.item == nil) != (s.head.Version == 0) {
				return badSnapshot("the signer set is put in version 0, and there ever after")
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
		if i > 0 && compareRetirements(s.retired[i-1], r) >= 0 {
			return badSnapshot("the keys that are no longer signers are not sorted")
		}
		if _, known := slices.BinarySearch(s.signerVersions[1:], r.version); !known || s.council.set.Holds(r.public) {
			return badSnapshot("the key of %s cannot have gone in version %d", quote(r.signerID), r.version)
		}
		if r.version == s.head.Version {
			leavers++
		}
	}
	return s.checkLeavers(leavers)
}

// checkLeavers compares the keys that went with the head with the set before
// it.
func (s *State) checkLeavers(count int) error {
	for _, f := range s.before {
		if f.id != SignersID || f.item == nil {
			continue
		}
		was, _ := f.item.SignerSet()
		for _, k := range was.Keys {
			if s.council.set.Holds(k.Public) {
				continue
			}
			i, gone := slices.BinarySearchFunc(s.retired, retirement{public: k.Public}, compareRetirements)
			if !gone || s.retired[i] != (retirement{k.Public, k.ID, s.head.Version}) {
				return badSnapshot("the key of %s went with the head, and that is not said", quote(k.ID))
			}
			count--
		}
	}
	if count != 0 {
		return badSnapshot("a key is said to have gone with the head that was not there before")
	}
	return nil
}

func (s *State) checkSpent(uses []use) error {
	var version uint64
	latest := int64(math.MinInt64)
	for _, u := range uses {
		if u.version <= version || u.version > s.head.Version || u.expires < s.committedAt.UnixMilli() {
			return badSnapshot("the proposals that were committed are not in order")
		}
		version, latest = u.version, max(latest, u.expires)
	}
	if version != s.head.Version {
		return badSnapshot("the proposal of the head is not there")
	}
	if len(uses) == 0 {
		return nil
	}
	slices.SortFunc(uses, compareUses)
	for i := 1; i < len(uses); i++ {
		if uses[i].id == uses[i-1].id {
			return badSnapshot("a proposal was committed twice")
		}
	}
	s.spent = spent{{uses, latest}}
	return nil
}

func badSnapshot(format string, args ...any) error {
	return refuse("registry.snapshot", fault.IntegrityFail,
		"Use another checkpoint's snapshot, or open the log from its first version on.", format, args...)
}

// lines reads a snapshot line by line. The first thing that is wrong stays.
type lines struct {
	rest   []byte
	number int
	wrong  error
}

func (l *lines) fail(format string, args ...any) {
	if l.wrong == nil {
		l.wrong = badSnapshot("line %d: "+format, append([]any{l.number}, args...)...)
	}
}

// next reads one line.
func (l *lines) next() any {
	line, rest, found := bytes.Cut(l.rest, []byte{'\n'})
	l.number++
	if !found {
		l.fail("the snapshot ends too early")
		return nil
	}
	l.rest = rest
	value, err := readCanonical("registry.snapshot", line)
	if err != nil {
		l.fail("%s", fault.DetailOf(err))
	}
	return value
}

func (l *lines) end(f *form) {
	if err := f.end(); err != nil {
		l.fail("%s", fault.DetailOf(err))
	}
}

// counts says how many lines there are of each sort.
type counts struct{ items, touched, retired, spent int64 }

func (l *lines) first() (*State, counts) {
	f := openForm("registry.snapshot", "", l.next())
	s := empty()
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
	c := counts{
		items:   f.integer("items", 1, maxInteger),
		touched: f.integer("touched", 1, MaxOps),
		retired: f.integer("retired", 0, maxInteger),
		spent:   f.integer("spent", 0, maxInteger),
	}
	if f.text("type") != snapshotType {
		f.fail("type", "must be %q", snapshotType)
	}
	l.end(f)
	return s, c
}

func (l *lines) item() Item {
	item, err := itemOf("registry.snapshot", "", l.next())
	if err != nil {
		l.fail("%s", fault.DetailOf(err))
	}
	return item
}

func (l *lines) former() former {
	f := openForm("registry.snapshot", "", l.next())
	was := former{id: f.id("id", maxID)}
	if value := f.field("item"); value != nil {
		item, err := itemOf("registry.snapshot", "item", value)
		if err == nil && item.ID != was.id {
			f.fail("item", "has another id")
		}
		f.keep(err)
		was.item = &item
	}
	l.end(f)
	return was
}

func (l *lines) retirement() retirement {
	f := openForm("registry.snapshot", "", l.next())
	r := retirement{f.key("public"), f.id("signer_id", maxSignerID), f.version("version")}
	l.end(f)
	return r
}

func (l *lines) use() use {
	f := openForm("registry.snapshot", "", l.next())
	id, ok := parseProposalID(f.text("proposal_id"))
	if !ok {
		f.fail("proposal_id", "must be 26 characters of lower-case base32")
	}
	u := use{id, f.time("expires_at").UnixMilli(), f.version("version")}
	l.end(f)
	return u
}
