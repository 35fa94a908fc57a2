package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/store/s3"
	"micronode/internal/store/storetest"
)

// TestS3 tests the store for S3 with a server that we did not write: the
// gateway of the Versity project, over a folder.
func TestS3(t *testing.T) {
	binary := buildServer(t)
	for name, test := range map[string]func(t *testing.T, s *serverProcess){
		"conformance":               s3Conformance,
		"a large object":            s3Large,
		"corrupt bytes":             s3Corrupt,
		"two stores on one bucket":  s3Two,
		"a race of writers":         s3Race,
		"wrong credentials":         s3Credentials,
		"a missing bucket":          s3Missing,
		"killed in the middle":      s3Killed,
		"paused":                    s3Paused,
		"nothing is left behind":    s3Tidy,
		"a restart keeps the books": s3Restart,
	} {
		t.Run(name, func(t *testing.T) { test(t, startServer(t, binary)) })
	}
}

// serverProcess is a child process that serves a folder.
type serverProcess struct {
	binary  string
	folder  string
	address string
	process *exec.Cmd
}

// buildServer compiles the server once, without the race detector.
func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "s3server")
	if out, err := exec.Command("go", "build", "-o", binary, "./s3server").CombinedOutput(); err != nil {
		t.Fatalf("go build ./s3server: %v\n%s", err, out)
	}
	return binary
}

func startServer(t *testing.T, binary string) *serverProcess {
	t.Helper()
	s := &serverProcess{binary: binary, folder: t.TempDir(), address: freePorts(t, 1)[0]}
	s.start(t)
	t.Cleanup(s.kill)
	return s
}

// start runs the server and waits until it prints where it listens.
func (s *serverProcess) start(t *testing.T) {
	t.Helper()
	s.process = exec.Command(s.binary, "-folder", s.folder, "-listen", s.address)
	out, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, _, err := net.SplitHostPort(lines.Text()); err == nil {
			s.address = lines.Text()
			return
		}
	}
	s.kill()
	t.Fatalf("the S3 server ended before it listened: %v", s.process.ProcessState)
}

// kill ends the process as a power cut would.
func (s *serverProcess) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// pause stops the process and waits until it has stopped: the last of its
// threads may run for a moment after the signal.
func (s *serverProcess) pause(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.process.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the server does not stop: %v, %v", status, err)
	}
}

func (s *serverProcess) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// storeSpec is a store in a bucket of its own.
func (s *serverProcess) storeSpec(bucket string) s3.Spec {
	return s3.Spec{
		Service: "store", URL: "s3+http://" + s.address + "/" + bucket + "/objects", AccessKey: "access", SecretKey: "secret",
		CreateBucket: true, MaxObject: 64 << 20, Timeout: 20 * time.Second,
	}
}

func (s *serverProcess) openStore(t testing.TB, bucket string) *s3.Store {
	t.Helper()
	opened, err := s3.Open(t.Context(), flow.NewInventory(), s.storeSpec(bucket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// files lists the files of a folder of the bucket, on the server's disk.
func (s *serverProcess) files(t *testing.T, bucket, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.folder, bucket, "objects", folder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// file is where the server keeps a key.
func (s *serverProcess) file(bucket, folder string, a b3.Address) string {
	return filepath.Join(s.folder, bucket, "objects", folder, strings.TrimPrefix(a.String(), b3.Prefix))
}

// flipByteInFile changes one byte of a file in place.
func flipByteInFile(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var one [1]byte
	if _, err := f.ReadAt(one[:], at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1
	if _, err := f.WriteAt(one[:], at); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *s3.Store, data []byte, opt store.PutOptions) b3.Address {
	t.Helper()
	info, created, err := s.Put(t.Context(), bytes.NewReader(data), opt)
	if err != nil || !created || info.Address != b3.Of(data) {
		t.Fatalf("put of %d bytes: %+v, created %t, %v", len(data), info, created, err)
	}
	return info.Address
}

func expectKind(t *testing.T, err error, what string, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if err != nil && fault.NextOf(err) == "" {
		t.Errorf("%s: %v names no next step", what, err)
	}
}

// s3Conformance runs the suite that every store has to pass, with a bucket for
// each check.
func s3Conformance(t *testing.T, s *serverProcess) {
	var buckets atomic.Int64
	storetest.Run(t, func(t testing.TB) store.Store {
		return s.openStore(t, fmt.Sprint("check-", buckets.Add(1)))
	})
}

// s3Large puts an object that is uploaded in parts, in each of the ways there
// are, and reads ranges of it.
func s3Large(t *testing.T, s *serverProcess) {
	objects := s.openStore(t, "large")
	data := sample(20 << 20)
	for name, opt := range map[string]store.PutOptions{
		"unknown": {Size: store.Unknown, Class: store.Cached},
		"sized":   {Size: int64(len(data)), Class: store.Cached},
		"wanted":  {Size: store.Unknown, Want: b3.Of(data)},
	} {
		a := put(t, objects, data, opt)
		if info, err := objects.Stat(t.Context(), a); err != nil || info != (store.Info{Address: a, Size: int64(len(data)), Class: opt.Class}) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		readLarge(t, objects, data)
		if err := objects.Verify(t.Context(), a, nil); err != nil {
			t.Errorf("%s: verify: %v", name, err)
		}
		if err := objects.Delete(t.Context(), a); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
	}
	wrong := store.PutOptions{Size: store.Unknown, Want: b3.Of([]byte("something else"))}
	_, _, err := objects.Put(t.Context(), bytes.NewReader(data), wrong)
	expectKind(t, err, "put of other bytes than wanted", fault.IntegrityFail)
	if _, err := objects.Stat(t.Context(), wrong.Want); fault.KindOf(err) != fault.NotFound {
		t.Errorf("after a put of other bytes than wanted: %v", err)
	}
	for _, folder := range []string{"data", "tree", "tmp", "pinned"} {
		if left := s.files(t, "large", folder); len(left) > 0 {
			t.Errorf("all is deleted, and in %s there is %v", folder, left)
		}
	}
}

func readLarge(t *testing.T, objects *s3.Store, data []byte) {
	t.Helper()
	h, err := objects.Open(t.Context(), b3.Of(data))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, whole := h.Bytes(); whole {
		t.Errorf("%d bytes are in memory in one piece", len(data))
	}
	size := int64(len(data))
	for _, r := range [][2]int64{{0, size}, {0, 1}, {1, 100}, {65535, 2}, {10 << 20, 1 << 20}, {size - 1, 1}, {size, 0}, {12345678, 7654321}} {
		var got bytes.Buffer
		n, err := h.WriteRange(&got, r[0], r[1])
		if err != nil || n != r[1] || !bytes.Equal(got.Bytes(), data[r[0]:r[0]+r[1]]) {
			t.Errorf("range %v: %d bytes, %v", r, n, err)
		}
	}
	tail := make([]byte, 100_000)
	if n, err := h.ReadAt(tail, size-50_000); n != 50_000 || err != io.EOF || !bytes.Equal(tail[:n], data[size-50_000:]) {
		t.Errorf("ReadAt near the end: %d, %v", n, err)
	}
}

// s3Corrupt changes bytes on the server's disk.
func s3Corrupt(t *testing.T, s *serverProcess) {
	t.Run("small", func(t *testing.T) {
		objects := s.openStore(t, "small")
		data := sample(10_000)
		a := put(t, objects, data, store.PutOptions{Size: 10_000})
		flipByteInFile(t, s.file("small", "data", a), 5000)
		_, err := objects.Open(t.Context(), a)
		expectKind(t, err, "open of a corrupt object", fault.IntegrityFail)
		expectQuarantined(t, s, objects, "small", a)
	})
	t.Run("large", func(t *testing.T) {
		objects := s.openStore(t, "large")
		data := sample(20 << 20)
		a := put(t, objects, data, store.PutOptions{Size: store.Unknown})
		h, err := objects.Open(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		flipByteInFile(t, s.file("large", "data", a), 15<<20)
		var got bytes.Buffer
		n, err := h.WriteTo(&got)
		expectKind(t, err, "read of a corrupt object", fault.IntegrityFail)
		if fault.KindOf(err).Status() != 502 {
			t.Errorf("its status is %d, want 502", fault.KindOf(err).Status())
		}
		if n > 15<<20 || !bytes.Equal(got.Bytes(), data[:n]) {
			t.Errorf("%d bytes came, of which byte %d is wrong", n, 15<<20)
		}
		expectQuarantined(t, s, objects, "large", a)
		got.Reset()
		if _, err := h.WriteRange(&got, 1<<20, 1000); err != nil || !bytes.Equal(got.Bytes(), data[1<<20:1<<20+1000]) {
			t.Errorf("a good range of an object in quarantine, through a handle that is open: %v", err)
		}
	})
	t.Run("truncated", func(t *testing.T) {
		objects := s.openStore(t, "truncated")
		data := sample(200_000)
		a := put(t, objects, data, store.PutOptions{Size: 200_000})
		if err := os.Truncate(s.file("truncated", "data", a), 150_000); err != nil {
			t.Fatal(err)
		}
		_, err := objects.Open(t.Context(), a)
		expectKind(t, err, "open of a truncated object", fault.IntegrityFail)
		expectQuarantined(t, s, objects, "truncated", a)
	})
	t.Run("verify", func(t *testing.T) {
		objects := s.openStore(t, "verify")
		a := put(t, objects, sample(300_000), store.PutOptions{Size: 300_000})
		flipByteInFile(t, s.file("verify", "data", a), 299_999)
		expectKind(t, objects.Verify(t.Context(), a, nil), "verify of a corrupt object", fault.IntegrityFail)
		expectQuarantined(t, s, objects, "verify", a)
	})
	t.Run("the tree", func(t *testing.T) {
		objects := s.openStore(t, "trees")
		data := sample(300_000)
		a := put(t, objects, data, store.PutOptions{Size: 300_000})
		flipByteInFile(t, s.file("trees", "tree", a), 100)
		h, err := objects.Open(t.Context(), a)
		if err != nil {
			t.Fatalf("open of a good object with a damaged tree: %v", err)
		}
		defer h.Close()
		var got bytes.Buffer
		if _, err := h.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("read of a good object with a damaged tree: %v", err)
		}
		if n := objects.Counts().IntegrityFails; n != 0 {
			t.Errorf("%d good objects were condemned", n)
		}
	})
}

// expectQuarantined checks that an object was removed and quarantined.
func expectQuarantined(t *testing.T, s *serverProcess, objects *s3.Store, bucket string, a b3.Address) {
	t.Helper()
	if n := objects.Counts().IntegrityFails; n != 1 {
		t.Errorf("%d objects are counted as corrupt, want 1", n)
	}
	if _, err := objects.Stat(t.Context(), a); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a corrupt object can still be seen: %v", err)
	}
	if u := objects.Usage(); u.Objects != 0 {
		t.Errorf("a corrupt object still counts: %+v", u)
	}
	if _, err := os.Stat(s.file(bucket, "quarantine", a)); err != nil {
		t.Errorf("a corrupt object is not in quarantine: %v", err)
	}
}

// s3Two has two nodes on one bucket.
func s3Two(t *testing.T, s *serverProcess) {
	here, there := s.openStore(t, "shared"), s.openStore(t, "shared")
	data := sample(300_000)
	a := put(t, here, data, store.PutOptions{Size: 300_000, Class: store.Cached})
	info, created, err := there.Put(t.Context(), bytes.NewReader(data), store.PutOptions{Size: store.Unknown})
	if err != nil || created || info.Class != store.Pinned {
		t.Errorf("the same object from the other node: %+v, created %t, %v", info, created, err)
	}
	if info, err := here.Stat(t.Context(), a); err != nil || info.Class != store.Pinned {
		t.Errorf("what the other node pinned: %+v, %v", info, err)
	}
	page, err := there.List(t.Context(), b3.Address{}, 10)
	if err != nil || len(page) != 1 || page[0].Address != a || page[0].Class != store.Pinned {
		t.Errorf("listed by the other node: %+v, %v", page, err)
	}
	h, err := there.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := here.Delete(t.Context(), a); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := there.Stat(t.Context(), a); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what one node deleted, the other still sees: %v", err)
	}
	var got bytes.Buffer
	if _, err := h.WriteRange(&got, 200_000, 1000); fault.KindOf(err) != fault.NotFound || got.Len() > 0 {
		t.Errorf("a range of what another node deleted: %d bytes, %v; want NotFound", got.Len(), err)
	}
	if err := there.Recount(t.Context()); err != nil || there.Usage().Objects != 0 {
		t.Errorf("counted anew: %+v, %v", there.Usage(), err)
	}
}

// s3Race has sixteen nodes put the same object at once.
func s3Race(t *testing.T, s *serverProcess) {
	for bucket, size := range map[string]int{"race-small": 1000, "race-middle": 300_000, "race-large": 9 << 20} {
		data := sample(size)
		nodes := make([]*s3.Store, 16)
		for i := range nodes {
			nodes[i] = s.openStore(t, bucket)
		}
		var created atomic.Int64
		var all sync.WaitGroup
		for i, node := range nodes {
			all.Go(func() {
				opt := store.PutOptions{Size: store.Unknown}
				if i%2 == 0 {
					opt.Want = b3.Of(data)
				}
				_, isNew, err := node.Put(t.Context(), bytes.NewReader(data), opt)
				if err != nil {
					t.Errorf("%d bytes, node %d: %v", size, i, err)
				}
				if isNew {
					created.Add(1)
				}
			})
		}
		all.Wait()
		if created.Load() != 1 {
			t.Errorf("%d bytes: %d of 16 nodes say that they created the object", size, created.Load())
		}
		if err := nodes[0].Verify(t.Context(), b3.Of(data), nil); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if left := s.files(t, bucket, "tmp"); len(left) > 0 {
			t.Errorf("%d bytes: left behind: %v", size, left)
		}
	}
}

// s3Credentials uses keys that the server rejects.
func s3Credentials(t *testing.T, s *serverProcess) {
	s.openStore(t, "mine")
	for setting, change := range map[string]func(*s3.Spec){
		"store.access_key": func(spec *s3.Spec) { spec.AccessKey = "nobody" },
		"store.secret_key": func(spec *s3.Spec) { spec.SecretKey = "guess" },
	} {
		spec := s.storeSpec("mine")
		change(&spec)
		_, err := s3.Open(t.Context(), flow.NewInventory(), spec)
		expectKind(t, err, "open with a wrong key", fault.Unauthorized)
		if !strings.Contains(fault.NextOf(err), setting) {
			t.Errorf("the next step %q does not name %s", fault.NextOf(err), setting)
		}
	}
}

// s3Missing opens a bucket that does not exist.
func s3Missing(t *testing.T, s *serverProcess) {
	spec := s.storeSpec("absent")
	spec.CreateBucket = false
	_, err := s3.Open(t.Context(), flow.NewInventory(), spec)
	expectKind(t, err, "open of a missing bucket", fault.NotReady)
	want := "aws --endpoint-url http://" + s.address + " s3 mb s3://absent"
	if !strings.Contains(fault.NextOf(err), want) {
		t.Errorf("the next step is %q, want %q in it", fault.NextOf(err), want)
	}
	put(t, s.openStore(t, "absent"), sample(100), store.PutOptions{Size: 100})
}

// withDeadline bounds an operation, and end checks that it kept the deadline,
// with a margin for a slow machine.
func withDeadline(t *testing.T, d time.Duration) (ctx context.Context, end func(what string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	limit := time.Now().Add(d + 3*time.Second)
	return ctx, func(what string) {
		t.Helper()
		cancel()
		if late := time.Since(limit); late > 0 {
			t.Errorf("%s: %v after the deadline and the margin", what, late)
		}
	}
}

// s3Killed kills the server during an upload, and during a download.
func s3Killed(t *testing.T, s *serverProcess) {
	objects := s.openStore(t, "killed")
	kept, lost := sample(12<<20), sample(30<<20)
	a := put(t, objects, kept, store.PutOptions{Size: store.Unknown})

	ctx, end := withDeadline(t, time.Minute)
	src := io.MultiReader(bytes.NewReader(lost[:20<<20]), &hookReader{do: s.kill}, bytes.NewReader(lost[20<<20:]))
	_, _, err := objects.Put(ctx, src, store.PutOptions{Size: store.Unknown})
	expectKind(t, err, "put to a server that was killed", fault.UpstreamFailed)
	end("put")
	s.start(t)
	if _, err := objects.Stat(t.Context(), b3.Of(lost)); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what was half put can be seen: %v", err)
	}
	if left := s.files(t, "killed", "data"); len(left) != 1 {
		t.Errorf("there is more than the one object that was put: %v", left)
	}

	ctx, end = withDeadline(t, time.Minute)
	h, err := objects.Open(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w := &hookWriter{at: 4 << 20, do: s.kill}
	n, err := h.WriteTo(w)
	expectKind(t, err, "read from a server that was killed", fault.UpstreamFailed)
	end("read")
	if !bytes.Equal(w.got.Bytes(), kept[:n]) {
		t.Errorf("%d bytes came, and some are wrong", n)
	}
	s.start(t)
	var got bytes.Buffer
	if h, err = objects.Open(t.Context(), a); err == nil {
		_, err = h.WriteTo(&got)
		_ = h.Close()
	}
	if err != nil || !bytes.Equal(got.Bytes(), kept) {
		t.Errorf("after the server came back: %v", err)
	}
}

// hookReader does something in the middle of a body.
type hookReader struct{ do func() }

func (r *hookReader) Read([]byte) (int, error) {
	r.do()
	return 0, io.EOF
}

// hookWriter does something when so many bytes have been written.
type hookWriter struct {
	got bytes.Buffer
	at  int
	do  func()
}

func (w *hookWriter) Write(p []byte) (int, error) {
	if w.do != nil && w.got.Len() >= w.at {
		w.do()
		w.do = nil
	}
	return w.got.Write(p)
}

// s3Paused stops the server without closing its connections: nothing answers
// any longer, and nothing fails either.
func s3Paused(t *testing.T, s *serverProcess) {
	objects := s.openStore(t, "paused")
	data, large := sample(10_000), sample(12<<20)
	a := put(t, objects, data, store.PutOptions{Size: 10_000})
	put(t, objects, large, store.PutOptions{Size: store.Unknown})
	h, err := objects.Open(t.Context(), b3.Of(large))
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Close()

	s.pause(t)
	for what, do := range map[string]func(ctx context.Context) error{
		"put": func(ctx context.Context) error {
			_, _, err := objects.Put(ctx, strings.NewReader("new"), store.PutOptions{Size: 3})
			return err
		},
		"put in parts": func(ctx context.Context) error {
			_, _, err := objects.Put(ctx, bytes.NewReader(sample(9<<20)), store.PutOptions{Size: store.Unknown})
			return err
		},
		"open": func(ctx context.Context) error { _, err := objects.Open(ctx, a); return err },
		"stat": func(ctx context.Context) error { _, err := objects.Stat(ctx, a); return err },
		"list": func(ctx context.Context) error { _, err := objects.List(ctx, b3.Address{}, 10); return err },
	} {
		ctx, end := withDeadline(t, 500*time.Millisecond)
		expectKind(t, do(ctx), what+" while the server is paused", fault.Timeout)
		end(what)
	}
	s.signal(t, syscall.SIGCONT)

	ctx, end := withDeadline(t, 10*time.Second)
	if h, err = objects.Open(ctx, b3.Of(large)); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w := &hookWriter{at: 1 << 20, do: func() { s.pause(t) }}
	n, err := h.WriteTo(w)
	expectKind(t, err, "read from a server that paused", fault.Timeout)
	end("read")
	if !bytes.Equal(w.got.Bytes(), large[:n]) {
		t.Errorf("%d bytes came, and some are wrong", n)
	}
	s.signal(t, syscall.SIGCONT)
	if _, err := objects.Stat(t.Context(), a); err != nil {
		t.Errorf("after the server went on: %v", err)
	}
	if _, err := objects.Stat(t.Context(), b3.Of([]byte("new"))); err != nil && fault.KindOf(err) != fault.NotFound {
		t.Errorf("after the server went on: %v", err)
	}
}

// s3Tidy aborts puts at every step and inspects the server's disk.
func s3Tidy(t *testing.T, s *serverProcess) {
	objects := s.openStore(t, "tidy")
	data := sample(20 << 20)
	broken := errors.New("the line is dead")
	for _, opt := range []store.PutOptions{{Size: store.Unknown}, {Size: store.Unknown, Want: b3.Of(data)}} {
		_, _, err := objects.Put(t.Context(), io.MultiReader(bytes.NewReader(data[:18<<20]), &failingReader{broken}), opt)
		if !errors.Is(err, broken) {
			t.Errorf("a put that broke off: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err = objects.Put(ctx, io.MultiReader(bytes.NewReader(data[:18<<20]), &hookReader{do: cancel}, bytes.NewReader(data[18<<20:])), opt)
		expectKind(t, err, "a put that was given up", fault.Canceled)
	}
	for _, folder := range []string{"data", "tree", "tmp", "pinned"} {
		if left := s.files(t, "tidy", folder); len(left) > 0 {
			t.Errorf("in %s there is %v", folder, left)
		}
	}
	uploads, _ := filepath.Glob(filepath.Join(s.folder, "tidy", ".sgwtmp", "multipart", "*", "*"))
	if len(uploads) > 0 {
		t.Errorf("uploads were not given up: %v", uploads)
	}
}

type failingReader struct{ err error }

func (r *failingReader) Read([]byte) (int, error) { return 0, r.err }

// s3Restart opens a bucket that is in use, after the server was restarted.
func s3Restart(t *testing.T, s *serverProcess) {
	first := s.openStore(t, "books")
	for i := range 20 {
		data := sample(100_000 + i)
		put(t, first, data, store.PutOptions{Size: int64(len(data)), Class: store.Class(i % 2)})
	}
	before := first.Usage()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s.kill()
	s.start(t)
	if after := s.openStore(t, "books").Usage(); after != before || after.Objects != 20 {
		t.Errorf("%+v before, %+v after", before, after)
	}
}
