package bleve

import (
	api "github.com/blevesearch/bleve_index_api"

	"micronode/internal/index"
)

// The fields beside those that words are looked for in.
const (
	fieldID      = "_id"
	fieldOf      = "of"
	fieldAddress = "address"
)

// paper is a document as the index format takes it.
type paper struct {
	id     string
	fields []api.Field
}

// newPaper writes a document down. With keep, its words are kept as they are,
// so that it can be read back.
func newPaper(one index.Document, keep bool) *paper {
	p := &paper{id: one.ID}
	if one.Of != "" {
		p.add(fieldOf, one.Of, api.IndexField|stored(keep))
	}
	if _, itself := addressOf(one.ID); !itself {
		p.add(fieldAddress, string(one.Address[:]), api.StoreField)
	}
	if one.Field != index.Anywhere {
		p.add(string(one.Field), one.Value, api.IndexField|api.IncludeTermVectors|stored(keep))
	}
	return p
}

func stored(keep bool) api.FieldIndexingOptions {
	if keep {
		return api.StoreField
	}
	return 0
}

func (p *paper) add(name, value string, options api.FieldIndexingOptions) {
	p.fields = append(p.fields, &field{name: name, value: []byte(value), options: options})
}

// read takes one stored field of a document back.
func read(into *index.Document, name string, value []byte) {
	switch name {
	case fieldOf:
		into.Of = string(value)
	case fieldAddress:
		copy(into.Address[:], value)
	case string(index.InName), string(index.InPath), string(index.InText):
		into.Field, into.Value = index.Field(name), string(value)
	}
}

// ID is how the document is told from others.
func (p *paper) ID() string { return p.id }

// AddIDField makes the ID a field.
func (p *paper) AddIDField() { p.add(fieldID, p.id, api.IndexField|api.StoreField) }

// VisitFields shows all fields.
func (p *paper) VisitFields(visit api.FieldVisitor) {
	for _, one := range p.fields {
		visit(one)
	}
}

// VisitComposite shows nothing: there are no fields of fields.
func (p *paper) VisitComposite(api.CompositeFieldVisitor) {}

// HasComposite says so.
func (p *paper) HasComposite() bool { return false }

// NumPlainTextBytes is how long all values are.
func (p *paper) NumPlainTextBytes() (n uint64) {
	for _, one := range p.fields {
		n += one.NumPlainTextBytes()
	}
	return n
}

// StoredFieldsBytes is for documents that were read, which this is not.
func (p *paper) StoredFieldsBytes() uint64 { return 0 }

// Size is about how much memory it takes.
func (p *paper) Size() int { return len(p.id) + int(p.NumPlainTextBytes()) }

// Indexed is for those who count documents with nothing in them.
func (p *paper) Indexed() bool { return false }

// field is one of its fields.
type field struct {
	// set at construction
	name    string
	value   []byte
	options api.FieldIndexingOptions

	// made by Analyze
	length      int
	frequencies api.TokenFrequencies
}

func (f *field) Name() string                                   { return f.name }
func (f *field) Value() []byte                                  { return f.value }
func (f *field) ArrayPositions() []uint64                       { return nil }
func (f *field) EncodedFieldType() byte                         { return 't' }
func (f *field) Options() api.FieldIndexingOptions              { return f.options }
func (f *field) AnalyzedLength() int                            { return f.length }
func (f *field) AnalyzedTokenFrequencies() api.TokenFrequencies { return f.frequencies }
func (f *field) NumPlainTextBytes() uint64                      { return uint64(len(f.value)) }

// Analyze takes the value apart: into words, if it is to be searched for them,
// or into the one term that it is.
func (f *field) Analyze() {
	f.frequencies = api.TokenFrequencies{}
	if !f.options.IncludeTermVectors() {
		f.note(string(f.value), 0, len(f.value))
		return
	}
	index.EachWord(string(f.value), func(word string, start, end int) bool {
		f.note(word, start, end)
		return true
	})
}

// note counts one word and where it is.
func (f *field) note(word string, start, end int) {
	f.length++
	known := f.frequencies[word]
	if known == nil {
		known = &api.TokenFreq{Term: []byte(word)}
		f.frequencies[word] = known
	}
	known.SetFrequency(known.Frequency() + 1)
	if f.options.IncludeTermVectors() {
		known.Locations = append(known.Locations, &api.TokenLocation{Start: start, End: end, Position: f.length})
	}
}
