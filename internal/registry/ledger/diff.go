package ledger

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Kinds of changes to an item.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// Diff lists the changes of a proposal or a version, sorted by id.
type Diff []Change

// Change is what happens to one item.
type Change struct {
	ID     string          `json:"id"`
	Kind   string          `json:"kind"`
	Change string          `json:"change"` // added, changed or removed
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

func diffOf(ops []Op, prior []priorItem) Diff {
	puts := make(map[string]*Item, len(ops))
	for i := range ops {
		if !ops[i].Delete {
			puts[ops[i].ID] = &ops[i].Item
		}
	}
	diff := make(Diff, 0, len(prior))
	for _, f := range prior {
		diff = append(diff, changeOf(f.id, f.item, puts[f.id]))
	}
	return diff
}

func changeOf(id string, before, after *Item) Change {
	c := Change{ID: id}
	switch {
	case before == nil:
		c.Change, c.Kind, c.After = Added, after.Kind, after.JSON
	case after == nil:
		c.Change, c.Kind, c.Before = Removed, before.Kind, before.JSON
	default:
		c.Change, c.Kind, c.Before, c.After = Changed, after.Kind, before.JSON, after.JSON
	}
	return c
}

// String returns the diff for people: one line per change, and one more for
// every signer that is added or removed. Nothing is shortened, because people
// sign what they read here.
func (d Diff) String() string {
	var b strings.Builder
	for _, c := range d {
		b.WriteString(c.String())
	}
	return b.String()
}

// changeSigns are the first characters of the line of a change.
var changeSigns = map[string]string{Added: "+ ", Changed: "~ ", Removed: "- "}

// String returns the change for people, with the newline at its end.
func (c Change) String() string {
	before, after := fieldsOf(c.Before), fieldsOf(c.After)
	b := append([]byte(changeSigns[c.Change]), c.Kind...)
	if c.Kind == KindSigners {
		return string(appendSigners(b, before, after))
	}
	b = append(append(b, ' '), c.ID...)
	if c.Change == Removed {
		before, after = nil, before // a removed item is printed like an added one
	}
	for _, name := range namesOf(before, after) {
		b = appendChange(append(b, ' '), name, valueOf(before, name), valueOf(after, name))
	}
	return string(append(b, '\n'))
}

// fieldsOf reads an item that was validated before.
func fieldsOf(data []byte) object {
	value, _ := readJSON("registry.diff", data)
	fields, _ := value.(object)
	return fields
}

// namesOf lists the fields that differ, except id and kind.
func namesOf(before, after object) []string {
	all := append(append(object(nil), before...), after...)
	all.sortFields()
	var names []string
	for i, m := range all {
		if m.name == "id" || m.name == "kind" || i > 0 && all[i-1].name == m.name {
			continue
		}
		if string(valueOf(before, m.name)) != string(valueOf(after, m.name)) {
			names = append(names, m.name)
		}
	}
	return names
}

// valueOf returns a field as text, or nil if it is absent. An unambiguous
// single word is shown as it is, everything else as JSON.
func valueOf(fields object, name string) []byte {
	i := fields.find(name)
	if i < 0 {
		return nil
	}
	if word, ok := fields[i].value.(string); ok && word != "" && !strings.ContainsAny(word, " \"[{") && !strings.Contains(word, "->") {
		return []byte(word)
	}
	return appendValue(nil, fields[i].value)
}

func appendChange(b []byte, name string, before, after []byte) []byte {
	b = append(append(b, name...), ' ')
	switch {
	case before == nil:
		return append(b, after...)
	case after == nil:
		return append(append(b, before...), " -> nothing"...)
	}
	return append(append(append(b, before...), " -> "...), after...)
}

// appendSigners writes how many must sign, and which signers were added,
// removed, or have another key.
func appendSigners(b []byte, before, after object) []byte {
	was, is := newObjectDecoder("", "", before).signers(), newObjectDecoder("", "", after).signers()
	if before == nil {
		was = SignerSet{}
	}
	if was.M != is.M && before != nil {
		b = append(strconv.AppendInt(append(b, " m "...), int64(was.M), 10), " ->"...)
	} else {
		b = append(b, " m"...)
	}
	b = strconv.AppendInt(append(b, ' '), int64(is.M), 10)
	b = strconv.AppendInt(append(b, " of "...), int64(len(is.Keys)), 10)
	b = append(b, '\n')
	for _, k := range was.Keys {
		if _, stays := is.Find(k.ID); !stays {
			b = appendSigner(b, "  - ", k)
		}
	}
	for _, k := range is.Keys {
		old, stayed := was.Find(k.ID)
		switch {
		case !stayed:
			b = appendSigner(b, "  + ", k)
		case old.Public != k.Public:
			b = append(b, "  ~ "+k.ID+" "...)
			b = append(old.Public.appendTo(b), " -> "...)
			b = append(k.Public.appendTo(b), '\n')
		}
	}
	return b
}

func appendSigner(b []byte, sign string, k Signer) []byte {
	b = append(b, sign+k.ID+" "...)
	return append(k.Public.appendTo(b), '\n')
}
