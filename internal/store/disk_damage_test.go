package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// fileOf is the path of an object's file.
func fileOf(t testing.TB, d *Disk, a b3.Address) string {
	t.Helper()
	o, path := d.find(a)
	if o == nil {
		t.Fatalf("%s is not stored here", a)
	}
	return path
}

// flip changes one bit of a file, a moment later.
func flip(t testing.TB, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var one [1]byte
	if _, err := f.ReadAt(one[:], off); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1 << rand.IntN(8)
	if _, err := f.WriteAt(one[:], off); err != nil {
		t.Fatal(err)
	}
	// The kernel's clock may not have ticked since the file was written.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, o Opener, a b3.Address) Handle {
	t.Helper()
	h, err := o.Open(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// random is content whose parts are all different.
func random(seed uint64, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data)
	return data
}

// matchWriter accepts only the right bytes, and so fails at the first wrong
// one.
type matchWriter struct {
	want  []byte
	wrong bool
}

func (m *matchWriter) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(m.want, p) {
		m.wrong = true
		return 0, errors.New("wrong bytes")
	}
	m.want = m.want[len(p):]
	return len(p), nil
}

// matchReaderFrom is one that reads by itself, as a connection does.
type matchReaderFrom struct {
	matchWriter
	files int // how often it got a file to copy from
}

func (m *matchReaderFrom) ReadFrom(src io.Reader) (int64, error) {
	if limited, ok := src.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*os.File); ok {
			m.files++
		}
	}
	return io.Copy(&m.matchWriter, struct{ io.Reader }{src})
}

// Wherever one bit of a file is changed, in the bytes or in the outboard, and
// whatever part is read, by whichever method: no wrong byte is returned. Damage
// is found when it is read, and the object is removed and counted, once.
func TestNoWrongByteIsGivenOut(t *testing.T) {
	for _, size := range []int{1, 5000, 16 << 10, ioBufferSize, ioBufferSize + 1, 300_000, 2<<20 + 5} {
		for try := range 8 {
			d := testDisk(t, DiskSpec{})
			data := random(uint64(try), size)
			a := mustPut(t, d, data, Pinned)
			path := fileOf(t, d, a)
			warm := mustOpen(t, d, a)
			if try%2 == 0 { // it was valid, and verified, before
				if _, err := warm.WriteTo(io.Discard); err != nil {
					t.Fatal(err)
				}
			}
			off := rand.Int64N(fileLength(int64(size)))
			flip(t, path, off)
			found := false
			for range 20 {
				from := rand.Int64N(int64(size) + 1)
				n := rand.Int64N(int64(size) - from + 1)
				found = tryRead(t, warm, data, from, n) || found
			}
			found = tryRead(t, warm, data, 0, int64(size)) || found
			if off < int64(size) && !found {
				t.Errorf("a bit at %d of %d was changed, and nobody noticed", off, size)
			}
			if n := d.Counts().IntegrityFails; found != (n == 1) {
				t.Errorf("found %t, and %d are counted", found, n)
			}
			_, err := d.Stat(context.Background(), a)
			if found != (fault.KindOf(err) == fault.NotFound) {
				t.Errorf("found %t, and then Stat says %v", found, err)
			}
			kept, err := os.ReadDir(filepath.Join(d.layout.root, quarantineName))
			if err != nil || found != (len(kept) == 1) {
				t.Errorf("found %t, and %d files are in quarantine, %v", found, len(kept), err)
			}
			_ = warm.Close()
			auditDisk(t, d)
			if found {
				mustPut(t, d, data, Pinned) // it can be put again
			}
			_ = d.Close()
		}
	}
}

// tryRead reads a part in all ways, and reports whether damage was found.
func tryRead(t *testing.T, h Handle, data []byte, from, n int64) (found bool) {
	t.Helper()
	plain, kernel := matchWriter{want: data[from : from+n]}, matchReaderFrom{matchWriter: matchWriter{want: data[from : from+n]}}
	got := make([]byte, n)
	_, errPlain := h.WriteRange(&plain, from, n)
	_, errKernel := h.WriteRange(&kernel, from, n)
	m, errRead := h.ReadAt(got, from)
	if plain.wrong || kernel.wrong || !bytes.Equal(got[:m], data[from:from+int64(m)]) {
		t.Fatalf("%d bytes at %d of %d: wrong bytes were given out", n, from, len(data))
	}
	for _, err := range []error{errPlain, errKernel, errRead} {
		switch {
		case err == nil || err == io.EOF:
		case fault.KindOf(err) == fault.IntegrityFail:
			found = true
		default:
			t.Fatalf("%d bytes at %d of %d: %v", n, from, len(data), err)
		}
	}
	if errPlain == nil && len(plain.want) > 0 || errKernel == nil && len(kernel.want) > 0 || errRead == nil && int64(m) < n {
		t.Fatalf("%d bytes at %d of %d: fewer came, and no error", n, from, len(data))
	}
	return found
}

// Of a range of up to 1 MiB nothing is sent if any of it is damaged, so that
// the client gets an error. Of a longer one, what comes before is sent.
func TestDamageIsFoundBeforeTheFirstByte(t *testing.T) {
	const size = 4 << 20
	data := random(1, size)
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	a := mustPut(t, d, data, Pinned)
	flip(t, fileOf(t, d, a), 2<<20+5)
	h := mustOpen(t, d, a)
	defer h.Close()
	for _, c := range []struct{ from, n, sent int64 }{
		{2<<20 - 100, 200, 0},
		{1<<20 + 100, 1 << 20, 0},
		{1 << 20, 1 << 20, 1 << 20}, // it ends just before
		{2<<20 + 16<<10, 100, 100},  // it begins in the next group
		{0, size, 2 << 20},
	} {
		var out bytes.Buffer
		n, err := h.WriteRange(&out, c.from, c.n)
		if n != c.sent || int64(out.Len()) != c.sent || !bytes.Equal(out.Bytes(), data[c.from:c.from+c.sent]) {
			t.Errorf("%d bytes at %d: %d were sent, want %d", c.n, c.from, n, c.sent)
		}
		if want := map[bool]fault.Kind{false: fault.IntegrityFail}[c.sent == c.n]; fault.KindOf(err) != want {
			t.Errorf("%d bytes at %d: %v", c.n, c.from, err)
		}
	}
}

// What was verified is not verified again, and is sent from the file to the
// connection by the kernel, as long as the file has not changed.
func TestWhatWasVerifiedIsRemembered(t *testing.T) {
	const size = 3 << 20
	data := random(2, size)
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	a := mustPut(t, d, data, Pinned)
	path := fileOf(t, d, a)
	h := mustOpen(t, d, a)
	w := matchReaderFrom{matchWriter: matchWriter{want: data}}
	if n, err := h.WriteTo(&w); err != nil || n != size || w.files != 3 {
		t.Fatalf("%d bytes, %v; %d windows were left to the kernel, want 3", n, err, w.files)
	}
	proof := h.(*diskHandle).file.verified.Load()
	other := mustOpen(t, d, a)
	_ = h.Close()
	if other.(*diskHandle).file.verified.Load() != proof {
		t.Error("a second handle does not know what the first one has verified")
	}
	_ = other.Close()
	third := mustOpen(t, d, a) // it is not open, but it was read last
	if third.(*diskHandle).file.verified.Load() != proof {
		t.Error("it was forgotten at once")
	}
	for unit := range int64(size / b3.GroupSize) {
		if !proof.isVerified(unit) {
			t.Fatalf("group %d is not known to be right", unit)
		}
	}
	_ = third.Close()
	small := mustOpen(t, d, mustPut(t, d, data[:1000], Pinned))
	var out matchReaderFrom
	out.want = data[:1000]
	if _, err := small.WriteTo(&out); err != nil || out.files != 0 {
		t.Errorf("%v; %d pieces of a small object were left to the kernel", err, out.files)
	}
	_ = small.Close()

	flip(t, path, 1<<20)
	again := mustOpen(t, d, a)
	defer again.Close()
	if _, err := again.WriteRange(io.Discard, 1<<20, 100); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("the file was changed in place: %v", err)
	}
	if err := os.Truncate(path, 1<<20); err == nil {
		t.Error("the file is still there; it should be in quarantine")
	}
}

// Bytes can rot without a change of the file. What was verified is verified
// again after a minute.
func TestWhatWasVerifiedIsNotTrustedForEver(t *testing.T) {
	for _, size := range []int{1000, 300_000} {
		d := testDisk(t, DiskSpec{})
		a := mustPut(t, d, random(2, size), Pinned)
		path := fileOf(t, d, a)
		synctest.Test(t, func(t *testing.T) {
			h := mustOpen(t, d, a)
			defer h.Close()
			if _, err := h.WriteTo(io.Discard); err != nil {
				t.Fatal(err)
			}
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, path, 500)
			if err := os.Chtimes(path, time.Time{}, before.ModTime()); err != nil {
				t.Fatal(err)
			}
			file := h.(*diskHandle).file
			now, err := file.currentStamp()
			if err != nil {
				t.Fatal(err)
			}
			rotten := file.verified.Load() // as if the kernel had not seen the change
			rotten.stamp = now
			time.Sleep(verifiedTTL + time.Second)
			if _, err := h.WriteRange(io.Discard, 500, 1); fault.KindOf(err) != fault.IntegrityFail {
				t.Errorf("%d bytes, a minute later: %v", size, err)
			}
		})
		_ = d.Close()
	}
}

// A large object takes no more memory for its verified groups than a small one.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	for _, size := range []int64{ioBufferSize + 1, 1 << 20, 1 << 30, 1<<30 + 1, 1 << 40} {
		p := verifiedGroups{size: size, unitSize: verifyUnitSize(size)}
		if bits := (size-1)/p.unitSize + 1; bits > maxVerifiedBits || p.unitSize%b3.GroupSize != 0 || p.unitSize > b3.GroupSize && bits < maxVerifiedBits/2 {
			t.Errorf("%d bytes: %d bits of %d bytes each", size, bits, p.unitSize)
		}
	}
}

// Many goroutines read one handle at once, over real connections, each its own
// part.
func TestManyReadersOfOneHandle(t *testing.T) {
	const size = 5<<20 + 777
	data := random(3, size)
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	a := mustPut(t, d, data, Pinned)
	h := mustOpen(t, d, a)
	defer h.Close()
	if err := d.Delete(context.Background(), a); err != nil { // and the file has no name any more
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var all sync.WaitGroup
	for i := range 8 {
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		from := int64(i * 300_001)
		n := size - from - int64(i)
		all.Go(func() {
			defer server.Close()
			if m, err := h.WriteRange(server, from, n); m != n || err != nil {
				t.Errorf("%d of %d bytes, %v", m, n, err)
			}
		})
		all.Go(func() {
			defer client.Close()
			got, err := io.ReadAll(client)
			if err != nil || !bytes.Equal(got, data[from:from+n]) {
				t.Errorf("reader %d: %d bytes, %v; not those that it asked for", i, len(got), err)
			}
		})
	}
	all.Wait()
}

// Without /proc an open file cannot be reopened, so bytes are copied.
func TestWithoutASendFile(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	data := random(4, 300_000)
	h := mustOpen(t, d, mustPut(t, d, data, Pinned))
	file := h.(*diskHandle).file
	if file.openSendFile(-1) != nil {
		t.Error("a cursor that stands before the beginning")
	}
	_ = h.Close()
	_ = d.Close() // it is not open, so the file is closed
	if file.openSendFile(0) != nil {
		t.Error("a cursor of a closed file")
	}
	if _, err := file.send(&matchReaderFrom{matchWriter: matchWriter{want: data}}, 0, 300_000); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
}

// The scrubber finds damage everywhere, also where no reader would look.
func TestTheScrubberOnDisk(t *testing.T) {
	for _, size := range []int64{0, 1, ioBufferSize, ioBufferSize + 1, 500_000} {
		for _, off := range []int64{0, size / 2, size - 1, fileLength(size) - 1, (size + fileLength(size)) / 2} {
			if off < 0 || off >= fileLength(size) {
				continue
			}
			d := testDisk(t, DiskSpec{})
			sound := mustPut(t, d, random(5, 70_000), Pinned)
			bad := mustPut(t, d, random(6, int(size)), Pinned)
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				served := make(chan error)
				go func() {
					served <- (&Scrubber{Store: d, Interval: time.Minute, BytesPerSecond: 1 << 20}).Serve(ctx)
				}()
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if n := d.Counts().IntegrityFails; n != 0 {
					t.Fatalf("%d objects are called corrupt, none is", n)
				}
				flip(t, fileOf(t, d, bad), off)
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if n := d.Counts().IntegrityFails; n != 1 {
					t.Errorf("a bit at %d of %d was changed: %d objects are counted as corrupt", off, size, n)
				}
				if _, err := d.Open(ctx, bad); fault.KindOf(err) != fault.NotFound {
					t.Errorf("open of a corrupt object: %v", err)
				}
				if _, err := d.Stat(ctx, sound); err != nil {
					t.Errorf("stat of a sound object: %v", err)
				}
				cancel()
				if err := <-served; err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
			auditDisk(t, d)
			_ = d.Close()
		}
	}
}

func TestVerifyOnDiskOfACallerWhoLeaves(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	a := mustPut(t, d, random(7, 500_000), Cached)
	ctx, cancel := context.WithCancel(context.Background())
	groups := 0
	err := d.Verify(ctx, a, func(context.Context, int64) error {
		if groups++; groups == 3 {
			cancel()
		}
		return nil
	})
	if fault.KindOf(err) != fault.Canceled || groups != 3 {
		t.Errorf("after %d pieces: %v", groups, err)
	}
	broken := errors.New("too fast")
	if err := d.Verify(context.Background(), a, func(context.Context, int64) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	err = d.Verify(context.Background(), a, func(ctx context.Context, _ int64) error {
		_ = d.Delete(ctx, a)
		return nil
	})
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("deleted meanwhile: %v", err)
	}
	auditDisk(t, d)
}

// A removed file is noticed by the first access, and the object is removed.
func TestALostFile(t *testing.T) {
	ctx := context.Background()
	for what, do := range map[string]func(*Disk, b3.Address) error{
		"open":   func(d *Disk, a b3.Address) error { _, err := d.Open(ctx, a); return err },
		"verify": func(d *Disk, a b3.Address) error { return d.Verify(ctx, a, nil) },
	} {
		d := testDisk(t, DiskSpec{})
		a := mustPut(t, d, random(8, 1000), Pinned)
		if err := os.Remove(fileOf(t, d, a)); err != nil {
			t.Fatal(err)
		}
		if err := do(d, a); fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s: %v", what, err)
		}
		if d.Counts().IntegrityFails != 1 || d.Usage() != (Usage{}) {
			t.Errorf("%s: %+v, %+v", what, d.Counts(), d.Usage())
		}
		_ = d.Close()
	}
}

// Read errors of the disk are as bad as wrong bytes. Other errors leave the
// object alone.
func TestReadsThatFail(t *testing.T) {
	for _, c := range []struct {
		err     error
		kind    fault.Kind
		corrupt bool
	}{
		{syscall.EIO, fault.IntegrityFail, true},
		{&b3.Mismatch{}, fault.IntegrityFail, true},
		{fmt.Errorf("read: %w", os.ErrClosed), fault.Internal, false},
		{io.ErrUnexpectedEOF, fault.Internal, false},
	} {
		d := testDisk(t, DiskSpec{})
		h := mustOpen(t, d, mustPut(t, d, random(9, 1000), Pinned))
		err := h.(*diskHandle).readFault("store.read", c.err)
		if fault.KindOf(err) != c.kind || (d.Counts().IntegrityFails == 1) != c.corrupt {
			t.Errorf("%v: %v, %+v", c.err, err, d.Counts())
		}
		_ = h.Close()
		_ = d.Close()
		if err := h.(*diskHandle).readFault("store.read", &b3.Mismatch{}); fault.KindOf(err) != fault.IntegrityFail {
			t.Errorf("after the store was closed: %v", err)
		}
	}
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	a := mustPut(t, d, random(9, 1000), Pinned)
	d.layout.failpoint = func(string) error { return syscall.EMFILE }
	for what, do := range map[string]func() error{
		"open":   func() error { _, err := d.Open(context.Background(), a); return err },
		"verify": func() error { return d.Verify(context.Background(), a, nil) },
	} {
		if err := do(); fault.KindOf(err) != fault.StorageBusy || !strings.Contains(fault.NextOf(err), "ulimit") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := d.Stat(context.Background(), a); err != nil {
		t.Error(err)
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder})
	condemned := func(n int) {
		for i := range n {
			a := mustPut(t, d, random(uint64(1000+i), 2000), Pinned)
			flip(t, fileOf(t, d, a), 77)
			if err := d.Verify(context.Background(), a, nil); fault.KindOf(err) != fault.IntegrityFail {
				t.Fatal(err)
			}
		}
	}
	count := func() int {
		kept, err := os.ReadDir(filepath.Join(folder, quarantineName))
		if err != nil {
			t.Fatal(err)
		}
		return len(kept)
	}
	condemned(maxQuarantineFiles - 2)
	_ = d.Close()
	d = testDisk(t, DiskSpec{Folder: folder})
	defer d.Close()
	condemned(10)
	if n := count(); n != maxQuarantineFiles {
		t.Errorf("%d files are in quarantine, want %d", n, maxQuarantineFiles)
	}
	auditDisk(t, d)
	q := quarantine{bytes: maxQuarantineBytes - 10}
	if q.reserve(11) || !q.reserve(10) {
		t.Error("the bytes in quarantine are not bounded")
	}
}
