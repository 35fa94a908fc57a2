package kad

import (
	"fmt"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

func TestTheNewestRecordOfANameIsFound(t *testing.T) {
	a, b := pair(t)
	c := open(t, 3, withBootstrap(a))
	testkit.WaitFor(t, "c knows both", func() bool { return c.Size() == 2 })
	old, newer := signed(1, "docs", 5, 1), signed(1, "docs", 7, 2)
	testkit.Must(t, a.Publish(budget(t), old))
	testkit.Must(t, a.Publish(budget(t), newer))
	if err := a.Publish(budget(t), newer); err != nil {
		t.Errorf("to renew a record: %v", err)
	}
	for _, n := range []*Network{a, b, c} {
		answer, err := n.Walk(budget(t), asksName(1, "docs"))
		if err != nil || answer.Name == nil || answer.Name.Seq != 7 || answer.Name.Manifest != objectNo(2) {
			t.Errorf("a walk: %+v, %v", answer.Name, err)
		}
	}
	answer, err := askClosest(t, b, asksName(1, "docs"))
	if err != nil || answer.Name == nil || answer.Name.Seq != 7 {
		t.Errorf("one peer: %+v, %v", answer.Name, err)
	}
	if s := b.Stats(); s.Names != 1 {
		t.Errorf("b keeps %d names", s.Names)
	}
}

func TestAnOldRecordIsRefused(t *testing.T) {
	a, b := pair(t)
	testkit.Must(t, a.Publish(budget(t), signed(1, "docs", 7, 1)))
	if err := a.Publish(budget(t), signed(1, "docs", 5, 2)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("an older one of ours: %v", err)
	}
	// An old record of ours is replayed to others.
	if err := b.Publish(budget(t), signed(1, "docs", 5, 2)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("an older one of another's, to who has seen the newer: %v", err)
	}
	c := open(t, 3, withBootstrap(a, b))
	testkit.WaitFor(t, "c knows both", func() bool { return c.Size() == 2 })
	if err := c.Publish(budget(t), signed(1, "docs", 5, 2)); err == nil {
		t.Error("two peers that have a newer record took an older one")
	}
	for _, n := range []*Network{a, b, c} {
		answer, err := n.Walk(budget(t), asksName(1, "docs"))
		if err != nil || answer.Name == nil || answer.Name.Seq != 7 {
			t.Errorf("a walk: %+v, %v", answer.Name, err)
		}
	}
}

func TestRecordsThatDoNotCountAreNotPublished(t *testing.T) {
	a, _ := pair(t)
	now := time.Now()
	forged := signed(2, "docs", 9, 1)
	forged.Key = publicNo(3)
	for kind, name := range map[fault.Kind]record.Name{
		fault.InvalidSig: forged,
		fault.Expired:    record.SignName(keyNo(1), record.Name{Name: "docs", Seq: 1, Issued: now.Add(-2 * time.Hour), Expires: now.Add(-time.Hour)}),
		fault.Malformed:  record.SignName(keyNo(1), record.Name{Name: "docs", Seq: 1, Issued: now.Add(2 * record.MaxAhead), Expires: now.Add(4 * time.Hour)}),
	} {
		if err := a.Publish(budget(t), name); fault.KindOf(err) != kind {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestNamesAreValidatedAgainstTheirKey(t *testing.T) {
	at := time.Now()
	n := newNameValidator(func() time.Time { return at }, time.Minute)
	mine := signed(1, "docs", 7, 1)
	key := record.RecordKey(peerNo(1), "docs")
	testkit.Must(t, n.Validate(key, mine.Encode()))
	for what, raw := range map[string][]byte{"another's": signed(2, "docs", 9, 1).Encode(), "another name's": signed(1, "doc", 9, 1).Encode(), "none": []byte("none")} {
		if err := n.Validate(key, raw); err == nil {
			t.Errorf("the record is %s", what)
		}
	}
	if err := n.Validate(key, signed(1, "docs", 6, 1).Encode()); fault.KindOf(err) != fault.Conflict {
		t.Errorf("an old one: %v", err)
	}
	// When the newest has expired, an older valid one stays rejected; one that
	// is newer still is accepted.
	late := func(seq uint64) []byte {
		return record.SignName(keyNo(1), record.Name{Name: "docs", Seq: seq, Manifest: objectNo(3), Issued: at, Expires: at.Add(5 * time.Hour)}).Encode()
	}
	older, newer := late(6), late(8)
	at = at.Add(2 * time.Hour)
	if err := n.Validate(key, older); fault.KindOf(err) != fault.Conflict {
		t.Errorf("an old one, after the time of the newest: %v", err)
	}
	if err := n.Validate(key, newer); err != nil {
		t.Errorf("a newer one: %v", err)
	}
}

func TestSelectTakesTheNewest(t *testing.T) {
	n := newNameValidator(time.Now, time.Minute)
	old, newer := signed(1, "docs", 5, 1).Encode(), signed(1, "docs", 7, 1).Encode()
	for _, c := range []struct {
		raws [][]byte
		want int
	}{{[][]byte{old, newer}, 1}, {[][]byte{newer, old}, 0}, {[][]byte{newer, newer}, 0}, {[][]byte{[]byte("none"), old}, 1}} {
		if got, err := n.Select("", c.raws); err != nil || got != c.want {
			t.Errorf("%d, %v", got, err)
		}
	}
	if _, err := n.Select("", [][]byte{[]byte("none")}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("%v", err)
	}
}

func TestNamesAreForgottenBeforeThereAreTooMany(t *testing.T) {
	n := newNameValidator(time.Now, time.Minute)
	for i := range maxNames + 10 {
		n.remember(fmt.Sprint("/micronode/", i), &record.Name{Seq: 1, Expires: time.Now().Add(time.Hour)})
	}
	if len(n.newest) != maxNames {
		t.Errorf("%d are remembered", len(n.newest))
	}
}
