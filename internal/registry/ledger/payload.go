package ledger

import (
	"micronode/b3"
)

// Payload is the operations of a version.
type Payload struct {
	Ops []Op
}

// DecodePayload reads a payload, which must be in its canonical form.
func DecodePayload(data []byte) (Payload, error) {
	const op = "registry.payload"
	if len(data) > MaxPayload {
		return Payload{}, tooLarge(op, len(data))
	}
	value, err := readCanonical(op, data)
	if err != nil {
		return Payload{}, err
	}
	f := newObjectDecoder(op, "", value)
	f.schemaVersion()
	p := Payload{Ops: f.ops()}
	if err := f.finish(); err != nil {
		return Payload{}, err
	}
	return p, nil
}

func encodePayload(ops []Op) []byte {
	size := 64
	for _, op := range ops {
		size += len(op.Item.JSON) + len(op.ID) + 32
	}
	b := append(make([]byte, 0, size), `{"ops":[`...)
	for i, op := range ops {
		if i > 0 {
			b = append(b, ',')
		}
		if op.Delete {
			b = appendText(append(b, `{"id":`...), op.ID)
			b = append(b, `,"op":"delete"}`...)
		} else {
			b = append(append(b, `{"item":`...), op.Item.JSON...)
			b = append(b, `,"op":"put"}`...)
		}
	}
	return append(b, `],"schema_version":"`+SchemaVersion+`"}`...)
}

// priorItem is what an item was before a version touched it.
type priorItem struct {
	id   string
	item *Item // nil if there was none
}

// Precondition is what an item must be for a change to be made.
type Precondition struct {
	ID   string
	Hash *b3.Address // nil if there must be none
}

func encodePreconditions(prior []priorItem) []byte {
	size := 2
	for _, f := range prior {
		size += len(f.id) + 96
	}
	b := append(make([]byte, 0, size), '[')
	for i, f := range prior {
		if i > 0 {
			b = append(b, ',')
		}
		if f.item == nil {
			b = append(b, `{"hash":null`...)
		} else {
			b = appendAddress(b, `{"hash":"`, f.item.Hash)
		}
		b = appendText(append(b, `,"id":`...), f.id)
		b = append(b, '}')
	}
	return append(b, ']')
}

// DecodePreconditions reads preconditions, which must be in their canonical
// form.
func DecodePreconditions(data []byte) ([]Precondition, error) {
	const op = "registry.preconditions"
	if len(data) > MaxPayload {
		return nil, tooLarge(op, len(data))
	}
	value, err := readCanonical(op, data)
	if err != nil {
		return nil, err
	}
	list, ok := value.([]any)
	if !ok || len(list) == 0 || len(list) > MaxOps {
		return nil, malformed(op, "must be a list of 1 to %d preconditions", MaxOps)
	}
	var all []Precondition
	for _, value := range list {
		f := newObjectDecoder(op, "", value)
		p := Precondition{ID: f.id("id", maxID)}
		if hash, given := f.optional("hash"); !given || hash != nil {
			address := f.address("hash")
			p.Hash = &address
		}
		if err := f.finish(); err != nil {
			return nil, err
		}
		if n := len(all); n > 0 && all[n-1].ID >= p.ID {
			return nil, malformed(op, "must be sorted by id, with no id twice")
		}
		all = append(all, p)
	}
	return all, nil
}
