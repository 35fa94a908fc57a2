package transfer

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

// newVersion is an object that has most of another one: a byte in front, and
// another MiB in the middle.
func newVersion(of object) (o object, changed int64) {
	other := newObject(1<<20 + 1).data
	o.data = slices.Concat([]byte("!"), of.data[:8<<20], other, of.data[9<<20:])
	hasher := b3.NewTreeHasher()
	_, _ = hasher.Write(o.data) // it never fails
	o.address, o.tree = hasher.Sum(), hasher.Outboard()
	return o, int64(len(other)) + 1
}

// similar lets a transfer copy what an older version has.
func similar(t *testing.T, spec *Spec, o, older object, read func(p []byte, off int64) error) {
	t.Helper()
	list := func(o object) []chunkmap.Chunk {
		chunks, err := chunkmap.Make(t.Context(), bytes.NewReader(o.data), int64(len(o.data)))
		testkit.Must(t, err)
		return chunks
	}
	spans := chunkmap.Match(list(o), []chunkmap.Base{{Address: older.address, Chunks: list(older)}})
	spec.Similar = func(context.Context) []chunkmap.Span { return spans }
	spec.ReadSimilar = func(_ context.Context, from b3.Address, p []byte, off int64) error {
		if from != older.address {
			t.Errorf("%s was read", from)
		}
		if read != nil {
			if err := read(p, off); err != nil {
				return err
			}
		}
		copy(p, older.data[off:])
		return nil
	}
}

// Of a new version only what differs is fetched, although every byte has moved.
func TestOnlyWhatDiffersIsFetched(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		older := newObject(20 << 20)
		o, changed := newVersion(older)
		s := &sender{object: o, id: "a", speed: 8 << 20}
		spec := f.spec(o, s.source())
		similar(t, &spec, o, older, nil)
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		got := readAll(t, transfer)
		last := transfer.Progress()
		testkit.Must(t, transfer.Close())
		f.tasks.Wait()
		if !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if sent := s.sent.Load(); sent > changed+256<<10 || sent < changed {
			t.Errorf("%d bytes were sent, and %d differ", sent, changed)
		}
		if want := int64(len(o.data)) - s.sent.Load(); last.Copied != want || last.Arrived != last.Size {
			t.Errorf("%d bytes were copied, want %d; %d of %d arrived", last.Copied, want, last.Arrived, last.Size)
		}
	})
}

func readAll(t *testing.T, from *Transfer) []byte {
	t.Helper()
	var all bytes.Buffer
	_, err := all.ReadFrom(from)
	testkit.Must(t, err)
	return all.Bytes()
}

// Hints that are wrong cost a moment, and no byte more than the object has. The
// object is right, and nobody is blamed.
func TestWrongHints(t *testing.T) {
	for name, lie := range map[string]func(spans []chunkmap.Span) []chunkmap.Span{
		"all at other offsets": func(spans []chunkmap.Span) []chunkmap.Span {
			for i := range spans {
				spans[i].Off++
				spans[i].Length--
			}
			return spans
		},
		"one of three": func([]chunkmap.Span) (list []chunkmap.Span) {
			for at := int64(0); at < 20<<20; at += 32 << 10 {
				list = append(list, chunkmap.Span{At: at, Length: 32 << 10, Off: at + at/(32<<10)%3/2})
			}
			return list
		},
	} {
		bubble(t, func(t *testing.T, f *fixture) {
			o := newObject(20 << 20)
			s := &sender{object: o, id: "a"}
			spec := f.spec(o, s.source())
			similar(t, &spec, o, o, nil)
			spans := lie(spec.Similar(t.Context()))
			for i := range spans {
				spans[i].From = o.address
			}
			reads := 0
			read := spec.ReadSimilar
			spec.Similar = func(context.Context) []chunkmap.Span { return spans }
			spec.ReadSimilar = func(ctx context.Context, from b3.Address, p []byte, off int64) error {
				reads++
				return read(ctx, from, p, off)
			}
			got, err := f.fetch(spec)
			if testkit.Must(t, err); !bytes.Equal(got, o.data) {
				t.Fatal("other bytes arrived")
			}
			sent := s.sent.Load()
			switch {
			case name == "one of three" && (sent > 8<<20 || sent < 6<<20):
				t.Errorf("%s: %d bytes were sent, want a third", name, sent)
			case name != "one of three" && (sent != 20<<20 || reads > (maxWrongGroups*b3.GroupSize/runSize+1)*len(spans)):
				t.Errorf("%s: %d bytes were sent, and %d times was read", name, sent, reads)
			}
			if len(f.failed) > 0 {
				t.Errorf("%s: %v failed", name, f.failed)
			}
		})
	}
}

// The older version may vanish half-way, or be damaged: then the rest is fetched.
func TestTheOlderVersionVanishes(t *testing.T) {
	for _, why := range []fault.Kind{fault.NotFound, fault.IntegrityFail} {
		bubble(t, func(t *testing.T, f *fixture) {
			older := newObject(20 << 20)
			o, _ := newVersion(older)
			s := &sender{object: o, id: "a"}
			spec := f.spec(o, s.source())
			gone := 0
			similar(t, &spec, o, older, func(_ []byte, off int64) error {
				if off > 4<<20 {
					gone++
					return fault.New("test", why, "it is gone")
				}
				return nil
			})
			got, err := f.fetch(spec)
			if testkit.Must(t, err); !bytes.Equal(got, o.data) {
				t.Fatal("other bytes arrived")
			}
			if sent := s.sent.Load(); sent > 17<<20 || sent < 15<<20 {
				t.Errorf("%d bytes were sent, want three quarters", sent)
			}
			if gone != 1 {
				t.Errorf("what is gone was read %d times", gone)
			}
		})
	}
}

// While two versions are compared nothing is fetched, and nobody is impatient. A
// reader gets the bytes that it waits for.
func TestNothingIsFetchedBeforeItIsKnownWhat(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		older := newObject(20 << 20)
		o, changed := newVersion(older)
		s := &sender{object: o, id: "a"}
		spec := f.spec(o, s.source())
		similar(t, &spec, o, older, nil)
		spans := spec.Similar(t.Context())
		spec.Head = o.data[:1<<20]
		spec.Similar = func(ctx context.Context) []chunkmap.Span {
			if flow.Sleep(ctx, 2*spec.Patience) != nil {
				t.Error("the comparison was ended")
			}
			return spans
		}
		began := time.Now()
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		read := make(chan []byte)
		go func() { read <- readAll(t, transfer) }()
		p := make([]byte, 100)
		n, err := transfer.ReadAt(t.Context(), p, 1000)
		if testkit.Must(t, err); !bytes.Equal(p[:n], o.data[1000:1000+n]) || time.Since(began) > time.Second {
			t.Errorf("%d bytes of the head after %s", n, time.Since(began))
		}
		n, err = transfer.ReadAt(t.Context(), p, 2<<20)
		if testkit.Must(t, err); !bytes.Equal(p[:n], o.data[2<<20:2<<20+n]) {
			t.Error("other bytes were read")
		}
		if got := <-read; !bytes.Equal(got, o.data) {
			t.Error("other bytes arrived")
		}
		testkit.Must(t, transfer.Close())
		f.tasks.Wait()
		if sent := s.sent.Load(); sent > changed+256<<10 {
			t.Errorf("%d bytes were sent, and %d differ", sent, changed)
		}
	})
}

// What is kept of a transfer that was killed is not copied again, and the rest is
// copied, not fetched.
func TestACopyIsResumed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		older := newObject(20 << 20)
		o, changed := newVersion(older)
		s := &sender{object: o, id: "a"}
		spec := f.spec(o, s.source())
		kept := int64(5<<20 + 3*b3.GroupSize + 100)
		similar(t, &spec, o, older, func(_ []byte, off int64) error {
			if off < 5<<20 {
				t.Errorf("the byte at %d was copied again", off)
			}
			return nil
		})
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		var got bytes.Buffer
		testkit.Must(t, transfer.Resume(bytes.NewReader(o.data), kept, &got))
		_, err = got.ReadFrom(transfer)
		testkit.Must(t, err)
		testkit.Must(t, transfer.Close())
		f.tasks.Wait()
		if !bytes.Equal(got.Bytes(), o.data) {
			t.Fatal("other bytes arrived")
		}
		if sent := s.sent.Load(); sent > changed+256<<10 {
			t.Errorf("%d bytes were sent, and %d differ", sent, changed)
		}
	})
}
