package oap

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// prose is n bytes that compress by less than the ratio cap.
func prose(n int) []byte {
	words := strings.Fields("every queue is bounded and named every wait has a deadline every refusal is typed and counted")
	random := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[random.IntN(len(words))])
		b.WriteByte(byte(' ' + random.IntN(20)))
	}
	return b.Bytes()[:n]
}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func zstdOf(t testing.TB, payload []byte, options ...zstd.EOption) []byte {
	t.Helper()
	encoder, err := zstd.NewWriter(nil, options...)
	if err != nil {
		t.Fatal(err)
	}
	return encoder.EncodeAll(payload, nil)
}

// zstdWithoutSize is a zstd frame that does not declare its size.
func zstdWithoutSize(t testing.TB, payload []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	encoder, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxWindow))
	if err != nil {
		t.Fatal(err)
	}
	for half := range 2 {
		if _, err := encoder.Write(payload[half*len(payload)/2 : (half+1)*len(payload)/2]); err != nil {
			t.Fatal(err)
		}
		if err := encoder.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := encoder.Close(); err != nil {
		t.Fatal(err)
	}
	var header zstd.Header
	if err := header.Decode(b.Bytes()); err != nil || header.HasFCS {
		t.Fatalf("the frame was meant not to declare its size: %+v, %v", header, err)
	}
	return b.Bytes()
}

func TestCompressedOnlyWhenItPays(t *testing.T) {
	for name, c := range map[string]struct {
		payload []byte
		comp    bool
	}{
		"prose":                           {prose(4 << 10), true},
		"a chunk of prose":                {prose(Chunk), true},
		"as much as there can be":         {prose(MaxPayload), true},
		"the smallest worthwhile":         {prose(minCompressSize), true},
		"less than is worthwhile":         {prose(minCompressSize - 1), false},
		"noise":                           {noise(4 << 10), false},
		"what the peer would call a bomb": {make([]byte, 64<<10), false},
		"nothing":                         {nil, false},
	} {
		wire, err := compressed.Append(nil, Frame{Flags: Event | Comp, Corr: 3, Payload: c.payload})
		if err != nil {
			t.Fatal(err)
		}
		if comp := wire[atFlags+1]&byte(Comp) != 0; comp != c.comp || comp != (len(wire) < HeaderSize+len(c.payload)) {
			t.Errorf("%s: compressed %t, %d bytes became %d", name, comp, len(c.payload), len(wire)-HeaderSize)
		}
		f, err := NewReader(bytes.NewReader(wire), compressed).Next()
		if err != nil || f.Flags != Event || f.Corr != 3 || !bytes.Equal(f.Payload, c.payload) {
			t.Errorf("%s: back: flags %d, %d bytes, %v", name, f.Flags, len(f.Payload), err)
		}
		if plainly, _ := plain.Append(nil, Frame{Flags: Comp, Payload: c.payload}); len(plainly) != HeaderSize+len(c.payload) || plainly[atFlags+1] != 0 {
			t.Errorf("%s: compressed although nobody agreed", name)
		}
	}
}

func TestCompressedBeforeTheHandshake(t *testing.T) {
	wire := framed(t, Event|Comp, 9, zstdOf(t, prose(2000)))
	wire = append(wire, framed(t, Event, 10, []byte("next"))...)
	r := NewReader(bytes.NewReader(wire), plain)
	f, err := r.Next()
	wantReason(t, "before", err, UnexpectedComp)
	if f.Corr != 9 || f.Payload != nil {
		t.Errorf("beside the error: %+v", f)
	}
	// The boundary is known, so the stream continues.
	if f, err := r.Next(); err != nil || string(f.Payload) != "next" {
		t.Errorf("after it: %+v, %v", f, err)
	}

	r = NewReader(bytes.NewReader(append(framed(t, Req, 1, nil), wire...)), plain)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	r.SetCodec(compressed)
	if f, err := r.Next(); err != nil || !bytes.Equal(f.Payload, prose(2000)) {
		t.Errorf("after the handshake: %d bytes, %v", len(f.Payload), err)
	}
}

func TestInflateCaps(t *testing.T) {
	checksum := zstdOf(t, prose(5000), zstd.WithEncoderCRC(true))
	wrong := bytes.Clone(checksum)
	wrong[len(wrong)-1]++
	lying := func(size uint64) []byte { // declares less, or more, than it holds
		b := zstdOf(t, prose(5000), zstd.WithSingleSegment(true))
		if b[4]>>6 != 1 {
			t.Fatalf("unexpected header %x", b[:8])
		}
		binary.LittleEndian.PutUint16(b[5:], uint16(size-256))
		return b
	}
	dictionary := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 0x09, 0x02}, 1, 0, 0, 'x')
	window := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 15 << 3}, 9, 0, 0, 'x') // 32 MiB
	for name, c := range map[string]struct {
		packed []byte
		want   []byte
		reason Reason
	}{
		"declared":             {zstdOf(t, prose(5000)), prose(5000), 0},
		"with a checksum":      {checksum, prose(5000), 0},
		"not declared":         {zstdWithoutSize(t, prose(5000)), prose(5000), 0},
		"empty":                {zstdOf(t, nil, zstd.WithZeroFrames(true)), nil, 0},
		"at the ratio":         {atRatio(t, maxRatio), make([]byte, maxRatio*len(atRatio(t, maxRatio))), 0},
		"just over the ratio":  {overRatio(t), nil, Bomb},
		"a bomb that says so":  {zstdOf(t, make([]byte, 1<<20)), nil, Bomb},
		"a bomb that does not": {zstdWithoutSize(t, make([]byte, 1<<20)), nil, Bomb},
		"a bomb of repeats":    {zstdWithoutSize(t, bytes.Repeat(noise(100), 1000)), nil, Bomb},
		"more than the cap":    {zstdOf(t, prose(MaxPayload+1)), nil, Bomb},
		"more, not declared":   {zstdWithoutSize(t, prose(MaxPayload+1)), nil, Bomb},
		"declares less":        {lying(4000), nil, Bomb},
		"declares more":        {lying(6000), nil, Damaged},
		"two frames":           {append(zstdOf(t, prose(5000)), zstdOf(t, prose(5000))...), nil, Bomb},
		"a window beyond all":  {window, nil, Bomb},
		"a dictionary":         {dictionary, nil, Damaged},
		"a wrong checksum":     {wrong, nil, Damaged},
		"nothing":              {nil, nil, Damaged},
		"no zstd":              {prose(100), nil, Damaged},
		"a skippable frame":    {[]byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'}, nil, Damaged},
		"cut":                  {zstdOf(t, prose(5000))[:900], nil, Damaged},
	} {
		got, err := decompress(c.packed)
		if c.reason != 0 {
			wantReason(t, name, err, c.reason)
			continue
		}
		if err != nil || !bytes.Equal(got.Bytes(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// atRatio is a zstd frame of zeroes that decompresses to exactly ratio times
// its size. An RLE block makes many out of four bytes; a raw one pads.
func atRatio(t testing.TB, ratio int) []byte {
	t.Helper()
	const pad = 100
	header := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50} // no size, a window of 1 MiB
	block := func(last, kind, size int) []byte {
		n := last | kind<<1 | size<<3
		return []byte{byte(n), byte(n >> 8), byte(n >> 16)}
	}
	all := len(header) + 3 + pad + 3 + 1
	out := append(header, block(0, 0, pad)...)
	out = append(out, make([]byte, pad)...)
	return append(append(out, block(1, 1, all*ratio-pad)...), 0)
}

// overRatio decompresses to one byte more than is allowed.
func overRatio(t testing.TB) []byte {
	b := atRatio(t, maxRatio)
	b[len(b)-4] += 1 << 3
	return b
}

// A refused payload must not cost more than an accepted one.
func TestABombCostsLittle(t *testing.T) {
	for i, bomb := range [][]byte{zstdOf(t, make([]byte, 16<<20)), zstdWithoutSize(t, make([]byte, 16<<20))} {
		before := allocated()
		for range 10 {
			if _, err := decompress(bomb); ReasonOf(err) != Bomb {
				t.Fatal(err)
			}
		}
		if took := allocated() - before; took > 10<<20 {
			t.Errorf("bomb %d of %d bytes, ten times: %d bytes allocated", i, len(bomb), took)
		}
	}
}

func TestTakeWhatWasInflated(t *testing.T) {
	want := prose(3000)
	wire := append(framed(t, Comp, 1, zstdOf(t, want)), framed(t, Comp, 2, zstdOf(t, noise(3000)))...)
	r := NewReader(bytes.NewReader(wire), compressed)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	taken := r.Take()
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(taken.Bytes(), want) {
		t.Error("it changed after it was taken")
	}
	taken.Release()
}
