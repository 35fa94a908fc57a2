package bleve

import (
	api "github.com/blevesearch/bleve_index_api"

	"micronode/internal/search"
)

// The fields besides the searchable ones.
const (
	fieldID      = "_id"
	fieldOf      = "of"
	fieldAddress = "address"
)

// scorchDocument is a document in the form of the index format.
type scorchDocument struct {
	id     string
	fields []api.Field
}

// newScorchDocument converts a document. With storeValues, its text is stored,
// so that it can be read back.
func newScorchDocument(one search.Document, storeValues bool) *scorchDocument {
	p := &scorchDocument{id: one.ID}
	if one.Of != "" {
		p.add(fieldOf, one.Of, api.IndexField|storeOption(storeValues))
	}
	if _, itself := addressInID(one.ID); !itself {
		p.add(fieldAddress, string(one.Address[:]), api.StoreField)
	}
	if one.Field != search.Anywhere {
		p.add(string(one.Field), one.Value, api.IndexField|api.IncludeTermVectors|storeOption(storeValues))
	}
	return p
}

func storeOption(keep bool) api.FieldIndexingOptions {
	if keep {
		return api.StoreField
	}
	return 0
}

func (s *scorchDocument) add(name, value string, options api.FieldIndexingOptions) {
	s.fields = append(s.fields, &field{name: name, value: []byte(value), options: options})
}

// readField reads one stored field back.
func readField(into *search.Document, name string, value []byte) {
	switch name {
	case fieldOf:
		into.Of = string(value)
	case fieldAddress:
		copy(into.Address[:], value)
	case string(search.InName), string(search.InPath), string(search.InText):
		into.Field, into.Value = search.Field(name), string(value)
	}
}

// ID identifies the document.
func (s *scorchDocument) ID() string { return s.id }

// AddIDField adds the ID as a field.
func (s *scorchDocument) AddIDField() { s.add(fieldID, s.id, api.IndexField|api.StoreField) }

// VisitFields visits all fields.
func (s *scorchDocument) VisitFields(visit api.FieldVisitor) {
	for _, one := range s.fields {
		visit(one)
	}
}

// VisitComposite does nothing: there are no composite fields.
func (s *scorchDocument) VisitComposite(api.CompositeFieldVisitor) {}

// HasComposite is false for the same reason.
func (s *scorchDocument) HasComposite() bool { return false }

// NumPlainTextBytes is the total length of all values.
func (s *scorchDocument) NumPlainTextBytes() (n uint64) {
	for _, one := range s.fields {
		n += one.NumPlainTextBytes()
	}
	return n
}

// StoredFieldsBytes is for documents that were read, which this is not.
func (s *scorchDocument) StoredFieldsBytes() uint64 { return 0 }

// Size is about how much memory it takes.
func (s *scorchDocument) Size() int { return len(s.id) + int(s.NumPlainTextBytes()) }

// Indexed is for callers that count empty documents.
func (s *scorchDocument) Indexed() bool { return false }

// field is a field of a document.
type field struct {
	// set at construction
	name    string
	value   []byte
	options api.FieldIndexingOptions

	// set by Analyze
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

// Analyze splits the value: into words, if it is searchable, or else into a
// single term.
func (f *field) Analyze() {
	f.frequencies = api.TokenFrequencies{}
	if !f.options.IncludeTermVectors() {
		f.addToken(string(f.value), 0, len(f.value))
		return
	}
	search.EachWord(string(f.value), func(word string, start, end int) bool {
		f.addToken(word, start, end)
		return true
	})
}

// addToken counts one word and its position.
func (f *field) addToken(word string, start, end int) {
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
