package pack

import (
	"context"
	"os"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestAPackSaysWhatItIs(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("basel.pmtiles"), pmtilesOf(1))
	s.mount()
	p, err := s.Open("basel")
	testkit.Must(t, err)
	defer p.Close()
	status := s.want("basel.pmtiles", Serving, "")
	if p.Name() != "basel" || p.File() != "basel.pmtiles" || p.Kind() != "pmtiles" || p.Version() != status.Version ||
		p.ETag() != status.ETag || p.Tiles() != status.Tiles || !p.Modified().Equal(status.Modified) {
		t.Errorf("the pack says other things than its status: %+v", status)
	}
}

func TestATileThatIsNotThere(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	put(t, s.path("b.mbtiles"), mbtilesOf(t, 1))
	s.mount()
	for _, name := range []string{"a", "b"} {
		p, err := s.Open(name)
		testkit.Must(t, err)
		for _, at := range [][3]uint32{{deepest + 1, 0, 0}, {1, 2, 0}, {1, 0, 2}, {31, 5, 5}, {32, 0, 0}, {255, 1, 1}, {0, 1 << 31, 0}} {
			_, err := p.Tile(t.Context(), uint8(at[0]), at[1], at[2])
			if fault.KindOf(err) != fault.NotFound || ownNext(err) == "" {
				t.Errorf("%s %v: %v", name, at, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Tile(ended, 0, 0, 0); fault.KindOf(err) != fault.Canceled {
			t.Errorf("%s: a tile for somebody who left: %v", name, err)
		}
		p.Close()
	}
}

func TestTheWholeFile(t *testing.T) {
	data := pmtilesOf(1)
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), data)
	s.mount()
	p, err := s.Open("a")
	testkit.Must(t, err)
	defer p.Close()
	file, size, modified, etag := p.Content()
	got := make([]byte, size)
	if _, err := file.ReadAt(got, 0); err != nil || string(got) != string(data) || etag != p.ETag() || !modified.Equal(p.Modified()) {
		t.Errorf("%d bytes, %v, %s", size, err, etag)
	}
	testkit.Must(t, p.Intact())

	// Two copies have two file offsets, and outlive the name of the file.
	put(t, s.path("a.pmtiles"), pmtilesOf(2))
	one, err := p.Reopen()
	testkit.Must(t, err)
	defer func() { testkit.Must(t, one.Close()) }()
	two, err := p.Reopen()
	testkit.Must(t, err)
	defer func() { testkit.Must(t, two.Close()) }()
	for _, copied := range []*os.File{one, two} {
		got := make([]byte, size)
		if n, err := copied.Read(got); n != len(data) || err != nil || string(got) != string(data) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}

	if n, err := p.ReadAt(got[:10], 5); n != 10 || err != nil || string(got[:10]) != string(data[5:15]) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := p.ReadAt(got, size-3); n != 3 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := p.ReadAt(got, -1); err == nil {
		t.Error("bytes from before the beginning")
	}
}

func TestTheWholeFileChangedInPlace(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	s.mount()
	p, err := s.Open("a")
	testkit.Must(t, err)
	defer p.Close()
	overwrite(t, s.path("a.pmtiles"), pmtilesOf(2))
	if n, err := p.ReadAt(make([]byte, 10), 0); n != 0 || fault.KindOf(err) != fault.NotReady {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestABufferIsUsedAgain(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	put(t, s.path("b.mbtiles"), mbtilesOf(t, 1))
	s.mount()
	for _, name := range []string{"a", "b"} {
		p, err := s.Open(name)
		testkit.Must(t, err)
		buf := make([]byte, 0, 4096)
		got, err := p.TileInto(t.Context(), buf, 1, 1, 0)
		testkit.Must(t, err)
		if string(got.Data) != string(tileText(1, 1, 1, 0)) {
			t.Errorf("got %q", got.Data)
		}
		if name == "a" && &got.Data[0] != &buf[:1][0] {
			t.Error("the buffer was not used")
		}
		small, err := p.TileInto(t.Context(), make([]byte, 3), 1, 1, 0)
		testkit.Must(t, err)
		if string(small.Data) != string(tileText(1, 1, 1, 0)) {
			t.Errorf("got %q", small.Data)
		}
		p.Close()
	}
}
