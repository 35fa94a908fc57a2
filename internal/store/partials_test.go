package store

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// resuming is a store that keeps what has arrived.
type resuming interface {
	Store
	Kept(a b3.Address) int64
}

// resumingStores are empty stores with a budget.
func resumingStores(t *testing.T, budget int64) map[string]resuming {
	t.Helper()
	onDisk, err := OpenDisk(DiskSpec{Folder: t.TempDir(), Budget: budget})
	testkit.Must(t, err)
	inRAM := NewRAM(RAMSpec{Budget: budget})
	t.Cleanup(func() {
		testkit.Must(t, onDisk.Close())
		testkit.Must(t, inRAM.Close())
	})
	return map[string]resuming{"disk": onDisk, "RAM": inRAM}
}

var errLost error = fault.New("test", fault.UpstreamFailed, "the sender is gone")

// putFront puts the front of an object, and fails then.
func putFront(t *testing.T, s Store, data []byte, n int, why error) {
	t.Helper()
	_, _, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(why)), PutOptions{
		Want: b3.Of(data), Size: int64(len(data)), Class: Cached, Resume: func(_ io.ReaderAt, n int64, _ io.Writer) error {
			t.Errorf("%d bytes are kept before anything was put", n)
			return nil
		}})
	testkit.WantKind(t, err, fault.KindOf(why), "a put whose source fails")
}

// goOn puts the rest of an object behind as much of what is kept as is right. It
// returns how much was kept.
func goOn(t *testing.T, s Store, data []byte, right int64) (kept int64) {
	t.Helper()
	rest := bytes.NewReader(data)
	info, created, err := s.Put(t.Context(), rest, PutOptions{Want: b3.Of(data), Size: int64(len(data)), Class: Cached,
		Resume: func(from io.ReaderAt, n int64, good io.Writer) error {
			kept = n
			n = min(n, right)
			_, err := io.Copy(good, io.NewSectionReader(from, 0, n))
			_, _ = rest.Seek(n, io.SeekStart)
			return err
		}})
	testkit.Must(t, err)
	if !created || info.Size != int64(len(data)) {
		t.Errorf("stored %+v, new: %t", info, created)
	}
	handle, err := s.Open(t.Context(), info.Address)
	testkit.Must(t, err)
	defer handle.Close()
	var got bytes.Buffer
	if _, err := handle.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d bytes are stored, %v", got.Len(), err)
	}
	return kept
}

// A put that fails leaves what has arrived, and the next one goes on from there,
// as far as it is right. Then nothing is left over.
func TestAPutGoesOnFromWhatIsKept(t *testing.T) {
	const front = 3<<20 + 12345
	for _, right := range []int64{front, 2 << 20, 100_000, 0} {
		for name, s := range resumingStores(t, 32<<20) {
			data := numbered(1, 5<<20+777)
			putFront(t, s, data, front, errLost)
			if kept, held := s.Kept(b3.Of(data)), s.Usage().Held; kept != front || held < front || held > front+1<<20 {
				t.Errorf("%s: %d bytes are kept, which count as %d, want %d", name, kept, held, front)
			}
			if kept := goOn(t, s, data, right); kept != front {
				t.Errorf("%s: %d bytes were kept, want %d", name, kept, front)
			}
			testkit.Must(t, s.Delete(t.Context(), b3.Of(data)))
			if usage := s.Usage(); s.Kept(b3.Of(data)) != 0 || usage.Held != 0 {
				t.Errorf("%s: %d bytes are kept of a complete object, and %d are held by an empty store", name, s.Kept(b3.Of(data)), usage.Held)
			}
		}
	}
}

// What is wrong, small, or in the way of others is not kept.
func TestWhatIsNotKept(t *testing.T) {
	for name, s := range resumingStores(t, 16<<20) {
		data := numbered(1, 4<<20)
		putFront(t, s, data, 3<<20, fault.New("test", fault.IntegrityFail, "these bytes are wrong"))
		putFront(t, s, data, minPartial-1, errLost)
		if kept, usage := s.Kept(b3.Of(data)), s.Usage(); kept != 0 || usage.Held != 0 {
			t.Errorf("%s: %d bytes are kept, %d held", name, kept, usage.Held)
		}
		putFront(t, s, data, 3<<20, errLost)
		whole := numbered(2, 15<<20)
		_, _, err := s.Put(t.Context(), bytes.NewReader(whole), PutOptions{Size: int64(len(whole))})
		if testkit.Must(t, err); s.Kept(b3.Of(data)) != 0 {
			t.Errorf("%s: an object had no room beside what is kept of another", name)
		}
	}
}

// What is kept is bounded in number and bytes: the oldest is dropped.
func TestWhatIsKeptIsBounded(t *testing.T) {
	for name, s := range resumingStores(t, 200<<20) {
		for i := range maxPartials + 4 {
			putFront(t, s, numbered(i, 2<<20), minPartial, errLost)
		}
		if held := s.Usage().Held; held < maxPartials*minPartial || held > maxPartials*(minPartial+64<<10) || s.Kept(b3.Of(numbered(maxPartials+3, 2<<20))) == 0 {
			t.Errorf("%s: %d bytes are held for %d of %d", name, held, maxPartials, maxPartials+4)
		}
	}
	for name, s := range resumingStores(t, 16<<20) {
		for i := range 4 {
			putFront(t, s, numbered(i, 3<<20), 2<<20, errLost)
		}
		if held := s.Usage().Held; held > 16<<20/partialDivisor {
			t.Errorf("%s: %d bytes are held, of a budget of 16 MiB", name, held)
		}
	}
}

// A process that is killed leaves what it has written, and the next one goes on
// from there: until it is too old.
func TestAKilledPutGoesOn(t *testing.T) {
	folder, left := t.TempDir(), filepath.Join(t.TempDir(), "left")
	data := numbered(1, 8<<20)
	first, err := OpenDisk(DiskSpec{Folder: folder})
	testkit.Must(t, err)
	killed := func() { testkit.Must(t, os.CopyFS(left, os.DirFS(folder))) }
	_, _, err = first.Put(t.Context(), io.MultiReader(bytes.NewReader(data[:5<<20]), readFunc(func([]byte) (int, error) {
		killed()
		return 0, errLost
	})), PutOptions{Want: b3.Of(data), Size: int64(len(data)), Resume: func(io.ReaderAt, int64, io.Writer) error { return nil }})
	testkit.WantKind(t, err, fault.UpstreamFailed, "a put whose source fails")
	testkit.Must(t, first.Close())

	second, err := OpenDisk(DiskSpec{Folder: left})
	testkit.Must(t, err)
	if kept := goOn(t, second, data, 1<<40); kept < 5<<20-ioBufferSize {
		t.Errorf("%d bytes are kept of %d that had arrived", kept, 5<<20)
	}
	testkit.Must(t, second.Close())

	old := time.Now().Add(-partialAge - time.Hour)
	testkit.Must(t, os.Chtimes(first.layout.partialPath(b3.Of(data)), old, old))
	third, err := OpenDisk(DiskSpec{Folder: folder})
	testkit.Must(t, err)
	if kept, usage := third.Kept(b3.Of(data)), third.Usage(); kept != 0 || usage.Held != 0 {
		t.Errorf("%d bytes are kept after %s, %d held", kept, partialAge, usage.Held)
	}
	if names, err := os.ReadDir(filepath.Join(folder, partialName)); err != nil || len(names) != 0 {
		t.Errorf("%v are left, %v", names, err)
	}
	testkit.Must(t, third.Close())
}

// What arrives ahead of the body is kept too, and so is the tree of the object:
// when the put fails, and when the process is killed. Then nothing is left over.
func TestWhatArrivesAheadIsKept(t *testing.T) {
	const mib = 1 << 20
	data := numbered(1, 8*mib)
	address, _, tree, err := b3.NewOutboard(bytes.NewReader(data))
	testkit.Must(t, err)
	folder, killed := t.TempDir(), filepath.Join(t.TempDir(), "killed")
	first, err := OpenDisk(DiskSpec{Folder: folder})
	testkit.Must(t, err)
	var place io.WriterAt
	_, _, err = first.Put(t.Context(), io.MultiReader(bytes.NewReader(data[:2*mib]), readFunc(func([]byte) (int, error) {
		if _, err := place.WriteAt(data[4*mib:5*mib], 4*mib); err != nil {
			t.Error(err)
		}
		if _, err := place.WriteAt([]byte("x"), 8*mib); err == nil {
			t.Error("a byte behind the object was taken")
		}
		testkit.Must(t, os.CopyFS(killed, os.DirFS(folder)))
		return 0, errLost
	})), PutOptions{Want: address, Size: 8 * mib, Tree: tree, Ahead: func(w io.WriterAt) { place = w },
		Resume: func(io.ReaderAt, int64, io.Writer) error { return nil }})
	testkit.WantKind(t, err, fault.UpstreamFailed, "a put whose source fails")
	if _, err := place.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a byte was taken after the end")
	}
	testkit.Must(t, first.Close())

	for name, left := range map[string]string{"failed": folder, "killed": killed} {
		s, err := OpenDisk(DiskSpec{Folder: left})
		testkit.Must(t, err)
		if kept := s.Kept(address); kept != 5*mib {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
		body, err := s.KeptTree(address)
		testkit.Must(t, err)
		if got, err := b3.ReadOutboard(address, 8*mib, body); err != nil || !bytes.Equal(got, tree) {
			t.Errorf("%s: the tree is %d bytes, %v", name, len(got), err)
		}
		testkit.Must(t, body.Close())
		rest := bytes.NewReader(data[2*mib-ioBufferSize:])
		info, _, err := s.Put(t.Context(), rest, PutOptions{Want: address, Size: 8 * mib, Tree: tree,
			Resume: func(kept io.ReaderAt, n int64, good io.Writer) error {
				ahead := make([]byte, mib)
				if _, err := kept.ReadAt(ahead, 4*mib); err != nil || !bytes.Equal(ahead, data[4*mib:5*mib]) {
					t.Errorf("%s: what arrived ahead is not kept, %v", name, err)
				}
				_, err := io.Copy(good, io.NewSectionReader(kept, 0, 2*mib-ioBufferSize))
				return err
			}})
		testkit.Must(t, err)
		testkit.Must(t, s.Verify(t.Context(), info.Address, nil))
		if names, err := os.ReadDir(filepath.Join(left, partialName)); err != nil || len(names) != 0 {
			t.Errorf("%s: %v are left, %v", name, names, err)
		}
		testkit.Must(t, s.Close())
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// Two puts of one object at a time: one goes on, the other begins, and neither
// harms the other.
func TestTwoPutsOfWhatIsKept(t *testing.T) {
	for name, s := range resumingStores(t, 64<<20) {
		data := numbered(1, 4<<20)
		putFront(t, s, data, 2<<20, errLost)
		_, created, err := s.Put(t.Context(), bytes.NewReader(data[2<<20:]), PutOptions{Want: b3.Of(data), Size: int64(len(data)),
			Resume: func(kept io.ReaderAt, n int64, good io.Writer) error {
				_, _, err := s.Put(context.WithoutCancel(t.Context()), bytes.NewReader(data), PutOptions{Want: b3.Of(data), Size: int64(len(data)),
					Resume: func(io.ReaderAt, int64, io.Writer) error {
						t.Errorf("%s: what is kept was taken twice", name)
						return nil
					}})
				testkit.Must(t, err)
				_, err = io.Copy(good, io.NewSectionReader(kept, 0, n))
				return err
			}})
		if err != nil || created {
			t.Errorf("%s: the second put of an object: new %t, %v", name, created, err)
		}
		testkit.Must(t, s.Delete(t.Context(), b3.Of(data)))
		if held := s.Usage().Held; held != 0 || s.Kept(b3.Of(data)) != 0 {
			t.Errorf("%s: %d bytes are held by an empty store", name, held)
		}
	}
}
