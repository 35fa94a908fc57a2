package bundle

import (
	"bytes"
	"encoding/json"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

const (
	// MaxSize is how large a bundle may be.
	MaxSize = 64 << 20

	format = "micronode registry bundle v1"
)

// Entry is a record and the proof that it is in the log.
type Entry struct {
	Record    ledger.Record
	Inclusion []tree.Hash // in the tree of the checkpoint
}

// Contents is what a bundle is made of.
type Contents struct {
	Registry   b3.Address
	Key        string // the verifier key of the log
	Checkpoint []byte // the signed note; it covers the version

	Version     Entry
	Consistency []tree.Hash // from the size Version+1 to that of the checkpoint

	// Signers are the versions that changed the signer set, 0 first, up to the
	// one that the version's header names as the set in force.
	Signers []Entry
}

// Make writes a bundle. It does not check what it is given: [Verify] does.
func Make(p Contents) ([]byte, error) {
	d := Document{
		Format:      format,
		Registry:    p.Registry,
		Key:         p.Key,
		Checkpoint:  string(p.Checkpoint),
		Version:     p.Version.Record.Version,
		Record:      newRecordJSON(p.Version.Record),
		Inclusion:   p.Version.Inclusion,
		Consistency: p.Consistency,
	}
	for _, e := range p.Signers {
		d.Signers = append(d.Signers, signerSetEntry{e.Record.Version, newRecordJSON(e.Record), e.Inclusion})
	}
	data, err := d.encode()
	if err != nil {
		return nil, fault.Wrap("bundle.make", err)
	}
	if len(data) > MaxSize {
		return nil, fault.New("bundle.make", fault.BodyTooLarge, "the bundle would have %d bytes, at most %d are possible", len(data), MaxSize)
	}
	return data, nil
}

// Document is a bundle as it is written: what the routes describe. The order of the fields is that of the
// file.
type Document struct {
	Format      string           `json:"format"`
	Registry    b3.Address       `json:"registry"`
	Key         string           `json:"key"`
	Checkpoint  string           `json:"checkpoint"`
	Version     uint64           `json:"version"`
	Record      recordJSON       `json:"record"`
	Inclusion   []tree.Hash      `json:"inclusion"`
	Consistency []tree.Hash      `json:"consistency"`
	Signers     []signerSetEntry `json:"signers"`
}

// signerSetEntry is a version that changed the signer set.
type signerSetEntry struct {
	Version   uint64      `json:"version"`
	Record    recordJSON  `json:"record"`
	Inclusion []tree.Hash `json:"inclusion"`
}

type recordJSON struct {
	Header        []byte `json:"header"`
	Payload       []byte `json:"payload"`
	Preconditions []byte `json:"preconditions"`
}

func newRecordJSON(r ledger.Record) recordJSON {
	return recordJSON{r.Header, r.Payload, r.Preconditions}
}

func (r recordJSON) toRecord(version uint64) ledger.Record {
	return ledger.Record{Version: version, Header: r.Header, Payload: r.Payload, Preconditions: r.Preconditions}
}

// encode writes the one encoding of a bundle: no white space, no null.
func (d Document) encode() ([]byte, error) {
	d.Inclusion, d.Consistency = nonNil(d.Inclusion), nonNil(d.Consistency)
	d.Signers = append([]signerSetEntry{}, d.Signers...)
	for i := range d.Signers {
		d.Signers[i].Inclusion = nonNil(d.Signers[i].Inclusion)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func nonNil(hashes []tree.Hash) []tree.Hash {
	if hashes == nil {
		return []tree.Hash{}
	}
	return hashes
}

// decode reads a bundle. It rejects whatever would be written differently: that
// finds unknown, missing and duplicate fields, other encodings of base64 and
// numbers, text that is not UTF-8, and trailing data.
func decode(data []byte) (Document, error) {
	var d Document
	if len(data) > MaxSize {
		return d, refuse(fault.BodyTooLarge, "the bundle has %d bytes, at most %d are possible", len(data), MaxSize)
	}
	r := json.NewDecoder(bytes.NewReader(data))
	r.DisallowUnknownFields()
	if err := r.Decode(&d); err != nil {
		return d, malformed(err)
	}
	if d.Format != format {
		return d, refuse(fault.Malformed, "the format is %.60q, and this program reads %q", d.Format, format)
	}
	again, err := d.encode()
	if err != nil {
		return d, malformed(err)
	}
	var spelling bytes.Buffer
	if err := json.Compact(&spelling, data); err != nil {
		return d, malformed(err)
	}
	if !bytes.Equal(spelling.Bytes(), again) {
		return d, refuse(fault.Malformed, "the bundle is not in canonical form: a field is missing, repeated or out of order, or a value has another encoding")
	}
	return d, nil
}

func malformed(err error) error {
	e := refuse(fault.Malformed, "this is not a bundle, or only a part of one")
	e.Err = err
	return e
}

// refuse makes an error with the next step that all refusals of a bundle share.
func refuse(kind fault.Kind, format string, args ...any) *fault.Error {
	return fault.New("bundle.verify", kind, format, args...).
		Advise("Do not rely on this bundle. Get it again, from the registry or from another copy of it.")
}
