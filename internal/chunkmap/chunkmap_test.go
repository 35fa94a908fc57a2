package chunkmap

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

func randomBytes(n int, seed byte) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // it never fails
	return data
}

func mapOf(t *testing.T, data []byte) []Chunk {
	t.Helper()
	chunks, err := Make(t.Context(), bytes.NewReader(data), int64(len(data)))
	testkit.Must(t, err)
	return chunks
}

// vectors is what another implementation can test itself with.
type vectors struct {
	About  []string    `json:"about"`
	Gear   []string    `json:"gear"` // the numbers of the 256 bytes, in hex
	Maps   []mapVector `json:"maps"`
	Errors []badVector `json:"bad"`
}

type mapVector struct {
	Name    string     `json:"name"`
	Size    int        `json:"size"` // of the object
	Address b3.Address `json:"address"`
	Map     string     `json:"map"`
}

type badVector struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"` // of the object
	Map   string `json:"map"`
	Error string `json:"error"`
}

const vectorsFile = "testdata/vectors.json"

// counted is the object of the vectors: the BLAKE3 of 0, 1, 2 … as 4 bytes,
// little endian, one after the other.
func counted(n int) (out []byte) {
	for i := uint32(0); len(out) < n; i++ {
		hash := b3.Of([]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)})
		out = append(out, hash[:]...)
	}
	return out[:n]
}

// vectorObjects are the objects of the vectors.
var vectorObjects = map[string]func() []byte{
	"256 KiB":                          func() []byte { return counted(256 << 10) },
	"256 KiB behind seven other bytes": func() []byte { return append([]byte("another"), counted(256<<10)...) },
	"256 KiB of zeros":                 func() []byte { return make([]byte, 256<<10) },
	"one byte more than the least":     func() []byte { return counted(minChunk + 1) },
	"one byte":                         func() []byte { return counted(1) },
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile(vectorsFile)
	if testkit.Update() {
		raw, err = goodVectors(t), nil
		testkit.Must(t, os.WriteFile(vectorsFile, raw, 0o666))
	}
	testkit.Must(t, err)
	var kept vectors
	testkit.Must(t, json.Unmarshal(raw, &kept))
	for i, number := range gear {
		if kept.Gear[i] != hex16(number) {
			t.Errorf("the number of byte %d is %s, and is here %016x", i, kept.Gear[i], number)
		}
	}
	if len(kept.Maps) != len(vectorObjects) || len(kept.Errors) < 5 {
		t.Errorf("%d maps, %d bad ones", len(kept.Maps), len(kept.Errors))
	}
	for _, one := range kept.Maps {
		object := vectorObjects[one.Name]()
		if got := hex.EncodeToString(Encode(mapOf(t, object))); len(object) != one.Size || b3.Of(object) != one.Address || got != one.Map {
			t.Errorf("%s: %d bytes, %s, map %s", one.Name, len(object), b3.Of(object), got)
		}
		coded, err := hex.DecodeString(one.Map)
		testkit.Must(t, err)
		chunks, err := Read(bytes.NewReader(coded), int64(one.Size))
		if testkit.Must(t, err); !slices.Equal(chunks, mapOf(t, object)) {
			t.Errorf("%s: %v was read", one.Name, chunks)
		}
	}
	for _, one := range kept.Errors {
		coded, err := hex.DecodeString(one.Map)
		testkit.Must(t, err)
		if _, err := Read(bytes.NewReader(coded), one.Size); fault.KindOf(err).String() != one.Error {
			t.Errorf("%s: %v, want %s", one.Name, err, one.Error)
		}
	}
}

func hex16(n uint64) string {
	return hex.EncodeToString([]byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func goodVectors(t *testing.T) []byte {
	v := vectors{About: []string{
		"Maps of chunks, as docs/oap1.md describes them. Gear is the number of each byte, in hex. Maps are hex.",
		"The objects are made of the BLAKE3-256 of 0, 1, 2 and so on as 4 bytes, little endian, one after the other, as many bytes as size says; but for zeros, and for the one that begins with the seven bytes of \"another\".",
		"A map with an error is refused. Size is that of the object, which the receiver knows from the tree.",
	}}
	for _, number := range gear {
		v.Gear = append(v.Gear, hex16(number))
	}
	for _, name := range []string{"256 KiB", "256 KiB behind seven other bytes", "256 KiB of zeros", "one byte more than the least", "one byte"} {
		object := vectorObjects[name]()
		v.Maps = append(v.Maps, mapVector{name, len(object), b3.Of(object), hex.EncodeToString(Encode(mapOf(t, object)))})
	}
	good := Encode(mapOf(t, counted(64<<10)))
	tooMany := make([]Chunk, maxChunks(64<<10)+1)
	for i := range tooMany {
		tooMany[i].Size = 1
	}
	many := Encode(tooMany)
	copy(many, good[:headerSize])
	for name, one := range map[string][]byte{
		"the size of another object":            append([]byte{1}, good[1:]...),
		"a chunk is missing":                    good[:len(good)-entrySize],
		"a cut inside a chunk":                  good[:len(good)-1],
		"one chunk more than the object has":    append(slices.Clone(good), good[headerSize:headerSize+entrySize]...),
		"more chunks than an object may have":   many,
		"a last chunk that goes behind the end": append(slices.Clone(good[:len(good)-2]), 0xff, 0xff),
	} {
		_, err := Read(bytes.NewReader(one), 64<<10)
		v.Errors = append(v.Errors, badVector{name, 64 << 10, hex.EncodeToString(one), fault.KindOf(err).String()})
	}
	slices.SortFunc(v.Errors, func(a, b badVector) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	raw, err := json.MarshalIndent(v, "", "  ")
	testkit.Must(t, err)
	return append(raw, '\n')
}

// covered is how many bytes of an object the spans say to be elsewhere; each of
// them must be right.
func covered(t *testing.T, object []byte, bases map[b3.Address][]byte, spans []Span) (n int64) {
	t.Helper()
	end := int64(0)
	for _, one := range spans {
		if one.At < end || !bytes.Equal(object[one.At:one.At+one.Length], bases[one.From][one.Off:one.Off+one.Length]) {
			t.Fatalf("%+v is wrong", one)
		}
		end = one.At + one.Length
		n += one.Length
	}
	return n
}

// What was inserted, removed or changed costs the chunks around it, wherever it is
// and whatever that moves.
func TestMatch(t *testing.T) {
	old := randomBytes(4<<20, 1)
	other := randomBytes(1<<20, 2)
	bases := map[b3.Address][]byte{b3.Of(old): old, b3.Of(other): other}
	list := []Base{{b3.Of(old), mapOf(t, old)}, {b3.Of(other), mapOf(t, other)}}
	most := int64(2 * maxChunk)
	for name, c := range map[string]struct {
		object  []byte
		missing int64 // at most
		spans   int   // at most; 0: any number
	}{
		"the same":             {old, 0, 1},
		"a byte in front":      {slices.Concat([]byte{1}, old), most, 1},
		"a byte in the middle": {slices.Concat(old[:2<<20], []byte{1}, old[2<<20:]), most, 2},
		"a byte less":          {slices.Concat(old[:2<<20], old[2<<20+1:]), most, 2},
		"another byte":         {slices.Concat(old[:2<<20], []byte{^old[2<<20]}, old[2<<20+1:]), most, 2},
		"halves swapped":       {slices.Concat(old[2<<20:], old[:2<<20]), 2 * most, 0},
		"parts of two":         {slices.Concat(old[:1<<20], other), 2 * most, 0},
		"nothing in common":    {randomBytes(1<<20, 3), 1 << 20, 0},
		"zeros":                {make([]byte, 1<<20), 1 << 20, 0},
	} {
		spans := Match(mapOf(t, c.object), list)
		missing := int64(len(c.object)) - covered(t, c.object, bases, spans)
		if missing > c.missing || c.spans > 0 && len(spans) > c.spans {
			t.Errorf("%s: %d bytes are missing, want %d at most; %d spans", name, missing, c.missing, len(spans))
		}
	}
}

// Where bytes repeat, what follows in both objects stays together.
func TestMatchOfWhatRepeats(t *testing.T) {
	old := append(randomBytes(1<<20, 1), make([]byte, 4<<20)...)
	now := append([]byte("in front"), old...)
	spans := Match(mapOf(t, now), []Base{{b3.Of(old), mapOf(t, old)}})
	if n := covered(t, now, map[b3.Address][]byte{b3.Of(old): old}, spans); n < int64(len(now))-3*maxChunk || len(spans) > 3 {
		t.Errorf("%d of %d bytes in %d spans", n, len(now), len(spans))
	}
}

// A map takes a ninth of a per cent of an object, and is never over the limit.
func TestTheSizeOfMaps(t *testing.T) {
	data := randomBytes(8<<20, 1)
	if n := len(Encode(mapOf(t, data))); n > len(data)*13/10000 {
		t.Errorf("the map of %d bytes has %d", len(data), n)
	}
	// Where few bytes repeat, and a chunk may end in them, one ends as soon as it
	// may: then there is no map.
	for seed := range byte(255) {
		unlucky := bytes.Repeat(randomBytes(700, seed), 1500)
		chunks, err := Make(t.Context(), bytes.NewReader(unlucky), int64(len(unlucky)))
		switch {
		case err != nil:
			testkit.WantKind(t, err, fault.QuotaExceeded)
			return
		case int64(len(Encode(chunks))) > Limit(int64(len(unlucky))):
			t.Fatalf("%d chunks", len(chunks))
		}
	}
	t.Error("no object was unlucky")
}

// The end of the context ends a map that is being made, and an object that ends
// too early is damaged.
func TestMakeFails(t *testing.T) {
	data := randomBytes(1<<20, 1)
	_, err := Make(t.Context(), bytes.NewReader(data), 2<<20)
	testkit.WantKind(t, err, fault.IntegrityFail)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Make(ctx, bytes.NewReader(data), 1<<20)
	testkit.WantKind(t, err, fault.Canceled)
}

// Whatever bytes are read as a map, memory follows what came, and nothing else
// than a map is taken.
func FuzzRead(f *testing.F) {
	f.Add(Encode([]Chunk{{1, 4096}, {2, 65536}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		size := int64(1 << 20)
		if len(raw) >= headerSize {
			size = int64(raw[0]) | int64(raw[1])<<8 | int64(raw[2])<<16
		}
		chunks, err := Read(bytes.NewReader(raw), size)
		if err == nil && !bytes.Equal(Encode(chunks), raw) {
			t.Fatalf("%x was read as %v", raw, chunks)
		}
	})
}
