package b3_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"

	"micronode/b3"
)

// vectors are the BLAKE3 project's test inputs (byte i is i mod 251) and some
// further lengths around our groups. The hashes were computed with the b3sum
// tool of Debian, which is not built on the library that we use.
var vectors = []struct {
	size int
	hex  string
}{
	{0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
	{1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
	{2, "7b7015bb92cf0b318037702a6cdd81dee41224f734684c2c122cd6359cb1ee63"},
	{64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
	{65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
	{1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
	{1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
	{1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
	{2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
	{2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
	{3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
	{8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
	{16383, "7529418ecb789a30254899f229522ccde05234d2019c5ec5072bc4685a57658d"},
	{16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
	{16385, "1dabe216be2578830263b049de1639f39f05a4da616b9b78c7a5e4e41662fd1f"},
	{31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
	{32768, "162183d1f9184474f5a5c9e6224e66720cdb6523f822e52d9b1efa30893f48f9"},
	{49153, "447d09cdb7cc2b870f041eda4d9b759195db784047b12666ec29e6905d38ac9c"},
	{102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
	{1048577, "2f053cd7472cf0cd2f9adaf45c1180255b91b9a865404a63671a0ee5f792ed33"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		if got := b3.Of(pattern(v.size)).String(); got != "b3:"+v.hex {
			t.Errorf("%d bytes: got %s, want b3:%s", v.size, got, v.hex)
		}
	}
}

func TestHasherEqualsWholeHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := pattern(rapid.OneOf(rapid.SampledFrom(sizes), rapid.IntRange(0, 200_000)).Draw(t, "size"))
		want := b3.Address(blake3.Sum256(data))
		if got := b3.Of(data); got != want {
			t.Fatalf("Of gave %v, want %v", got, want)
		}
		var h b3.Hasher
		if rapid.Bool().Draw(t, "used before") {
			h.Write(pattern(50_000))
			h.Reset()
		}
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			h.Write(rest[:n])
			rest = rest[n:]
			if seen := data[:len(data)-len(rest)]; h.N() != int64(len(seen)) || h.Sum() != b3.Of(seen) {
				t.Fatalf("after %d bytes: N %d, Sum %v", len(seen), h.N(), h.Sum())
			}
		}
		if got := h.Sum(); got != want {
			t.Fatalf("Sum gave %v, want %v", got, want)
		}
	})
}

func TestReaderAcceptsTheRightBytes(t *testing.T) {
	for _, size := range sizes {
		data := pattern(size)
		if err := iotest.TestReader(b3.NewReader(bytes.NewReader(data), b3.Of(data)), data); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestReaderNeverEndsCleanlyOnWrongBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := pattern(rapid.SampledFrom(sizes).Draw(t, "size"))
		want := b3.Of(data)
		wrong := damage(t, data)
		var src io.Reader = bytes.NewReader(wrong)
		if rapid.Bool().Draw(t, "end with the last bytes") {
			src = iotest.DataErrReader(src)
		}
		r := b3.NewReader(src, want)
		got, err := io.ReadAll(r)
		wantMismatch(t, err)
		var mismatch *b3.Mismatch
		if !errors.As(err, &mismatch) || mismatch.Want != want || mismatch.Got != b3.Of(wrong) || mismatch.Part != "" {
			t.Fatalf("%#v does not name both addresses", mismatch)
		}
		if text := err.Error(); !strings.Contains(text, want.String()) || !strings.Contains(text, "fetch them again") {
			t.Fatalf("%q does not say what was wanted and what to do", text)
		}
		if !bytes.Equal(got, wrong) {
			t.Fatal("the bytes were not handed on as they came")
		}
		if n, again := r.Read(make([]byte, 1)); n != 0 || again != err {
			t.Fatalf("a read after the verdict gave %d, %v", n, again)
		}
	})
}

// damage cuts, lengthens or changes data.
func damage(t *rapid.T, data []byte) []byte {
	wrong := bytes.Clone(data)
	if len(wrong) == 0 || rapid.Bool().Draw(t, "longer") {
		return append(wrong, rapid.Byte().Draw(t, "extra"))
	}
	i := rapid.IntRange(0, len(wrong)-1).Draw(t, "position")
	if rapid.Bool().Draw(t, "shorter") {
		return wrong[:i]
	}
	wrong[i] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
	return wrong
}

func TestReaderPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	src := io.MultiReader(bytes.NewReader(pattern(10)), iotest.ErrReader(broken))
	got, err := io.ReadAll(b3.NewReader(src, b3.Of(pattern(10))))
	if err != broken || len(got) != 10 {
		t.Fatalf("got %d bytes and %v", len(got), err)
	}
}

func TestCopy(t *testing.T) {
	data := pattern(100_000)
	var dst bytes.Buffer
	if n, err := b3.Copy(&dst, bytes.NewReader(data), b3.Of(data)); n != 100_000 || err != nil || !bytes.Equal(dst.Bytes(), data) {
		t.Fatalf("a right copy: %d, %v", n, err)
	}
	dst.Reset()
	n, err := b3.Copy(&dst, bytes.NewReader(data[:99_999]), b3.Of(data))
	wantMismatch(t, err)
	if n != 99_999 || dst.Len() != 99_999 {
		t.Fatalf("a wrong copy says that it wrote %d, and wrote %d", n, dst.Len())
	}
	if _, err := b3.Copy(failingWriter{}, bytes.NewReader(data), b3.Of(data)); err != io.ErrClosedPipe {
		t.Fatalf("the writer's error came back as %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestAllocations checks that the hot paths allocate what the benchmarks
// state.
func TestAllocations(t *testing.T) {
	data := pattern(b3.GroupSize)
	a := b3.Of(data)
	text := a.String()
	for _, test := range []struct {
		name string
		most float64
		run  func()
	}{
		{"Parse", 0, func() { b3.Parse(text) }},
		{"String", 1, func() { _ = a.String() }},
		{"Of 16 KiB", 0, func() { b3.Of(data) }},
		{"Of 15 KiB", 0, func() { b3.Of(data[:15_000]) }},
	} {
		if got := testing.AllocsPerRun(100, test.run); got > test.most {
			t.Errorf("%s allocates %v times, want at most %v", test.name, got, test.most)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b3.Parse(emptyText)
	}
}

func BenchmarkString(b *testing.B) {
	a := b3.Of(nil)
	b.ReportAllocs()
	for b.Loop() {
		_ = a.String()
	}
}

func BenchmarkOf16KiB(b *testing.B) {
	data := pattern(b3.GroupSize)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		b3.Of(data)
	}
}

func BenchmarkHasher1MiB(b *testing.B) {
	data := pattern(1 << 20)
	var h b3.Hasher
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		h.Reset()
		for i := 0; i < len(data); i += 32 << 10 {
			h.Write(data[i : i+32<<10])
		}
		h.Sum()
	}
}
