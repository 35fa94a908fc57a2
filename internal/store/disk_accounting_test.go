package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

func testDisk(t testing.TB, spec DiskSpec) *Disk {
	t.Helper()
	if spec.Folder == "" {
		spec.Folder = t.TempDir()
	}
	d, err := OpenDisk(spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// filesIn lists the files of a store on disk, with their class.
func filesIn(t testkit.T, d *Disk) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	for _, top := range []string{"pinned", "cached", tempName} {
		err := filepath.WalkDir(filepath.Join(d.layout.root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				files[path] = info.Size()
			}
			return err
		})
		if err != nil {
			t.Errorf("%v", err)
		}
	}
	return files
}

// auditDisk counts everything one by one, in memory and on the disk, and
// compares it with the running totals. Nothing may be running, and the open
// handles must be given.
func auditDisk(t testkit.T, d *Disk, open ...Handle) {
	t.Helper()
	want := map[string]int64{}
	live := map[*object]bool{}
	var usage Usage
	var cached int64
	for i := range d.shards {
		s := &d.shards[i]
		if len(s.addressLocks) > 0 {
			t.Errorf("shard %d: %d errands have no end", i, len(s.addressLocks))
		}
		for _, o := range s.objects {
			live[o] = true
			want[d.path(o)] = fileLength(o.size)
			usage.Objects++
			usage.Bytes += o.size
			if o.class == Pinned {
				usage.Pinned += o.size
			} else {
				cached += o.cost()
				if s.ring[o.ringIndex] != o {
					t.Errorf("shard %d: a cached object is not at its place in the ring", i)
				}
			}
			if o.file != nil && o.file.refs == 0 && s.idleObject != o {
				t.Errorf("shard %d: a file is open that nobody reads and nobody will close", i)
			}
		}
	}
	gone := map[*object]bool{}
	for _, h := range open {
		if o := h.(*diskHandle).object; !live[o] && !gone[o] {
			gone[o] = true
			usage.Lingering += o.size
		}
	}
	maps.Copy(live, gone)
	for o := range live {
		usage.Held += o.cost()
	}
	got := d.Usage()
	usage.Budget = got.Budget
	if got != usage || d.cached.Load() != cached {
		t.Errorf("counted %+v, cached %d; the totals say %+v and %d", usage, cached, got, d.cached.Load())
	}
	if got := filesIn(t, d); !maps.Equal(got, want) {
		t.Errorf("on the disk there is\n%s\nand there should be\n%s", names(got), names(want))
	}
}

func names(files map[string]int64) string {
	var all []string
	for path, length := range files {
		all = append(all, fmt.Sprintf("  %s: %d", path, length))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Whatever is done, in whatever order, with the store closed and opened again
// in between, and with steps that fail: after each, what is on the disk, what
// is in the catalogue and what is counted are the same, and as in the model.
func TestTheDiskIsAsInTheModel(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	var run int
	rapid.Check(t, func(t *rapid.T) {
		run++
		spec := DiskSpec{Folder: filepath.Join(base, fmt.Sprint(run)), Budget: 1 << 20}
		if rapid.Bool().Draw(t, "unlimited") {
			spec.Budget = 0
		}
		var d *Disk
		reopen := func() {
			var err error
			if d, err = OpenDisk(spec); err != nil {
				t.Fatal(err)
			}
		}
		reopen()
		defer func() { _ = d.Close() }()
		model := map[b3.Address]Class{} // what is pinned must exist; what is cached may have been evicted
		var open []Handle
		drawn := func(t *rapid.T) []byte {
			size := rapid.SampledFrom([]int{0, 1, 4096, 4097, 16 << 10, 30_000, ioBufferSize - 1, ioBufferSize, ioBufferSize + 1, 3*ioBufferSize + 5, 400_000}).Draw(t, "size")
			return numbered(rapid.IntRange(0, 2).Draw(t, "number"), size)
		}
		tripped := errors.Join(syscall.ENOSPC)
		trip := func(t *rapid.T) {
			d.layout.failpoint = nil
			if left := rapid.IntRange(0, 12).Draw(t, "trips after"); left < 6 {
				d.layout.failpoint = func(step string) error {
					if left--; left < 0 && step != "open" {
						return tripped
					}
					return nil
				}
			}
		}
		expected := func(t *rapid.T, err error, kinds ...fault.Kind) {
			t.Helper()
			d.layout.failpoint = nil
			if err != nil && !slices.Contains(append(kinds, fault.StoreFull), fault.KindOf(err)) {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				auditDisk(t, d, open...)
				for info, err := range Walk(ctx, d) {
					if class, known := model[info.Address]; err != nil || !known || info.Class != class {
						t.Fatalf("listed is %+v, %v; in the model it is there: %t, as %s", info, err, known, class)
					}
				}
				for a, class := range model {
					if _, err := d.Stat(ctx, a); err != nil && class == Pinned {
						t.Fatal(err)
					} else if err != nil {
						delete(model, a) // evicted
					}
				}
			},
			"put": func(t *rapid.T) {
				data := drawn(t)
				opt := PutOptions{Size: int64(len(data)), Class: Class(rapid.IntRange(0, 1).Draw(t, "class"))}
				var src io.Reader = bytes.NewReader(data)
				if rapid.Bool().Draw(t, "unknown") {
					opt.Size = Unknown
				}
				if rapid.IntRange(0, 3).Draw(t, "wanted") == 0 {
					opt.Want = b3.Of(data)
				}
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					src = io.MultiReader(src, iotest.ErrReader(io.ErrUnexpectedEOF))
				}
				trip(t)
				info, _, err := d.Put(ctx, src, opt)
				expected(t, err, fault.BrokenPipe)
				if err == nil {
					model[info.Address] = info.Class
				} else if now, err := d.Stat(ctx, b3.Of(data)); err == nil {
					model[now.Address] = now.Class // it was there, and may have been pinned
				}
			},
			"open": func(t *rapid.T) {
				data := drawn(t)
				h, err := d.Open(ctx, b3.Of(data))
				if err != nil {
					expected(t, err, fault.NotFound)
					return
				}
				open = append(open, h)
			},
			"read": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				h := open[rapid.IntRange(0, len(open)-1).Draw(t, "handle")]
				var out bytes.Buffer
				if _, err := h.WriteTo(&out); err != nil || b3.Of(out.Bytes()) != h.Address() {
					t.Fatalf("%s: %d bytes of %s, %v", h.Address(), out.Len(), b3.Of(out.Bytes()), err)
				}
			},
			"close": func(t *rapid.T) {
				if len(open) > 0 {
					_ = open[0].Close()
					open = open[1:]
				}
			},
			"delete": func(t *rapid.T) {
				data := drawn(t)
				trip(t)
				err := d.Delete(ctx, b3.Of(data))
				expected(t, err, fault.NotFound)
				if _, gone := d.Stat(ctx, b3.Of(data)); gone != nil {
					delete(model, b3.Of(data))
				} else if err == nil {
					t.Fatal("deleted, and still there")
				}
			},
			"reclass": func(t *rapid.T) {
				data, class := drawn(t), Pinned
				trip(t)
				var err error
				if rapid.Bool().Draw(t, "pin") {
					err = d.Pin(ctx, b3.Of(data))
				} else {
					class, err = Cached, d.Unpin(ctx, b3.Of(data))
				}
				expected(t, err, fault.NotFound)
				now, absent := d.Stat(ctx, b3.Of(data))
				if absent == nil {
					model[now.Address] = now.Class
				}
				if err == nil && now.Class != class {
					t.Fatalf("%+v, and should be %s", now, class)
				}
			},
			"reopen": func(t *rapid.T) {
				for _, h := range open {
					_ = h.Close()
				}
				open = nil
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				reopen()
			},
		})
		for _, h := range open {
			_ = h.Close()
		}
		auditDisk(t, d)
		_ = os.RemoveAll(spec.Folder)
	})
}

// Many goroutines do everything to a few objects at once. In the end the disk
// is as the store says, and the same when it is opened again.
func TestTheDiskInACrowd(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder, Budget: 2 << 20})
	ctx := context.Background()
	sizes := []int{0, 3000, 20_000, ioBufferSize + 1, 200_000}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 150 {
				data := numbered(i*7%5, sizes[(i+worker)%len(sizes)])
				a := b3.Of(data)
				var err error
				switch (i + worker) % 7 {
				case 0, 1:
					opt := PutOptions{Size: int64(len(data)), Class: Class(i % 2)}
					if worker%2 == 0 {
						opt.Size = Unknown
					}
					_, _, err = d.Put(ctx, bytes.NewReader(data), opt)
				case 2, 3:
					var h Handle
					if h, err = d.Open(ctx, a); err == nil {
						var out bytes.Buffer
						if _, err := h.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), data) {
							t.Errorf("read: %v", err)
						}
						_ = h.Close()
					}
				case 4:
					err = d.Pin(ctx, a)
				case 5:
					err = d.Unpin(ctx, a)
				default:
					if i%2 == 0 {
						err = d.Delete(ctx, a)
					} else {
						err = d.Verify(ctx, a, nil)
					}
				}
				if kind := fault.KindOf(err); err != nil && kind != fault.NotFound && kind != fault.StoreFull {
					t.Errorf("%v", err)
				}
			}
		})
	}
	all.Wait()
	auditDisk(t, d)
	if n := d.Counts().IntegrityFails; n != 0 {
		t.Errorf("%d objects are called corrupt, none is", n)
	}
	before, _ := d.List(ctx, b3.Address{}, MaxPage)
	_ = d.Close()
	d = testDisk(t, DiskSpec{Folder: folder, Budget: 2 << 20})
	defer d.Close()
	if after, _ := d.List(ctx, b3.Address{}, MaxPage); !slices.Equal(before, after) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}
