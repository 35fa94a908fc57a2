package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func([]string) int{"victim": crashChild})
}

// crashBudget makes the victim evict.
const crashBudget = 500_000

// crashBody is the content of object i of a few.
func crashBody(i int) []byte {
	sizes := []int{100, 20_000, ioBufferSize + 1000}
	return numbered(i, sizes[i%len(sizes)])
}

// crashChild puts, pins, unpins and deletes, at random, and prints before each
// what it is about to do and after it that it is done. Its arguments are the
// folder, and the step at which it kills itself: zero to be killed from outside.
func crashChild(args []string) int {
	folder := args[0]
	last, _ := strconv.Atoi(args[1])
	d := newDisk(DiskSpec{Folder: folder, Budget: crashBudget, Sync: true})
	steps := 0
	d.layout.failpoint = func(string) error {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal comes
		}
		return nil
	}
	if err := d.load(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	random, rounds := rand.New(rand.NewPCG(uint64(os.Getpid()), 0)), 1<<30
	if last > 0 { // the same each time, and not much
		random, rounds = rand.New(rand.NewPCG(7, 7)), 18
	}
	for range rounds {
		if err := randomOperation(d, random); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	fmt.Println("over")
	return 0
}

// randomOperation does one operation.
func randomOperation(d *Disk, random *rand.Rand) error {
	ctx := context.Background()
	data := crashBody(random.IntN(30))
	a := b3.Of(data)
	var what string
	var do func() error
	switch choice := random.IntN(10); {
	case choice < 5:
		class := Class(choice % 2)
		what, do = "put "+class.String(), func() error {
			_, _, err := d.Put(ctx, bytes.NewReader(data), PutOptions{Size: Unknown, Class: class})
			return err
		}
	case choice < 6:
		what, do = "to pinned", func() error { return d.Pin(ctx, a) }
	case choice < 8:
		what, do = "to cached", func() error { return d.Unpin(ctx, a) }
	default:
		what, do = "delete it", func() error { return d.Delete(ctx, a) }
	}
	fmt.Println("begin", what, a)
	err := do()
	switch kind := fault.KindOf(err); {
	case err == nil:
		fmt.Println("done", what, a)
	case kind == fault.NotFound || kind == fault.StoreFull:
		fmt.Println("refused", what, a)
	default:
		return err
	}
	return nil
}

// history is what a victim has printed of each object: what it was about to do,
// and what it had done last.
type history struct {
	done  map[b3.Address]string
	begun map[b3.Address]string
	acts  int
	over  bool
}

// run starts a victim, kills it when it has done enough, unless it does so by
// itself, and reads what it has printed.
func (h *history) run(t *testing.T, folder string, step, enough int) {
	t.Helper()
	child := testkit.Child("victim", folder, strconv.Itoa(step))
	testkit.ReadChild(t, child, func(line string) {
		if h.read(t, line) {
			if enough--; enough == 0 {
				time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, func() { _ = child.Process.Kill() })
			}
		}
	})
}

// read reads a line, and reports whether it completes an operation.
func (h *history) read(t *testing.T, line string) (done bool) {
	t.Helper()
	if strings.HasPrefix(line, "error") {
		t.Fatal(line)
	}
	if line == "over" {
		h.over = true
		return false
	}
	words := strings.Fields(line)
	if len(words) != 4 {
		return false // cut off in the middle
	}
	a, err := b3.Parse(words[3])
	if err != nil {
		return false
	}
	what := words[1] + " " + words[2]
	switch words[0] {
	case "begin":
		h.begun[a] = what
	case "done":
		h.acts++
		h.done[a] = what
		delete(h.begun, a)
		return true
	case "refused":
		delete(h.begun, a)
	}
	return false
}

// check opens what was left and compares it with what was printed.
func (h *history) check(t *testing.T, folder string) {
	t.Helper()
	leftover, err := os.ReadDir(filepath.Join(folder, tempName))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	d := testDisk(t, DiskSpec{Folder: folder, Budget: crashBudget, Sync: true})
	defer d.Close()
	if now, err := os.ReadDir(filepath.Join(folder, tempName)); err != nil || len(now) != 0 {
		t.Errorf("%d temporary files are left of %d: %v", len(now), len(leftover), err)
	}
	if n := d.Counts().IntegrityFails; n != 0 {
		t.Errorf("%d files are damaged", n)
	}
	there := map[b3.Address]Class{}
	for info, err := range Walk(context.Background(), d) {
		if err != nil {
			t.Fatal(err)
		}
		there[info.Address] = info.Class
		if err := d.Verify(context.Background(), info.Address, nil); err != nil {
			t.Errorf("what is there must be right: %v", err)
		}
	}
	for a := range h.begun { // any outcome is right, but it must stay so
		delete(h.begun, a)
		switch class, here := there[a]; {
		case !here:
			h.done[a] = "delete it"
		default:
			h.done[a] = "to " + class.String()
		}
	}
	for a, did := range h.done {
		class, here := there[a]
		switch did {
		case "put pinned", "to pinned":
			if !here || class != Pinned {
				t.Errorf("%s was acknowledged for %s: it is there: %t, as %s", did, a, here, class)
			}
		case "delete it":
			if here {
				t.Errorf("%s was deleted, and is there", a)
			}
		case "to cached": // and may have been evicted
			if here && class != Cached {
				t.Errorf("%s was unpinned, and is %s", a, class)
			}
		}
	}
	auditDisk(t, d)
}

func newHistory() *history {
	return &history{done: map[b3.Address]string{}, begun: map[b3.Address]string{}}
}

// Whatever a process was doing when it was killed: what it had acknowledged is
// there, what is there is complete, and nothing else is.
func TestKilledAtAnyMoment(t *testing.T) {
	folder := t.TempDir()
	h := newHistory()
	for range 25 {
		h.run(t, folder, 0, 1+rand.IntN(30))
		h.check(t, folder)
		if t.Failed() {
			return
		}
	}
	if h.acts < 100 {
		t.Errorf("only %d acts in all; the test has tested nothing", h.acts)
	}
}

// The same at every single step that changes the disk.
func TestKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("one process at a time, in many steps: make race")
	}
	for step := 1; ; step++ {
		folder := t.TempDir()
		h := newHistory()
		h.run(t, folder, step, -1)
		h.check(t, folder)
		if t.Failed() {
			t.Fatalf("killed before step %d", step)
		}
		if h.over {
			t.Logf("%d steps", step)
			return
		}
	}
}
