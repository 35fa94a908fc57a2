package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// The environment of a process that is there to be killed.
const (
	victimFolder = "STORE_TEST_VICTIM_FOLDER"
	victimStep   = "STORE_TEST_VICTIM_STEP" // the step at which it kills itself; zero to be killed from outside
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(victimFolder); folder != "" {
		step, _ := strconv.Atoi(os.Getenv(victimStep))
		victim(folder, step)
		return
	}
	goleak.VerifyTestMain(m)
}

// victimBudget makes the victim evict.
const victimBudget = 500_000

// victimBody is what object i of a few is made of.
func victimBody(i int) []byte {
	sizes := []int{100, 20_000, pieceSize + 1000}
	return numbered(i, sizes[i%len(sizes)])
}

// victim puts, pins, unpins and deletes, at random, and says before each what it
// is about to do and after it that it is done.
func victim(folder string, last int) {
	d := newDisk(flow.NewInventory(), DiskSpec{Service: "store", Folder: folder, Budget: victimBudget, Sync: true})
	steps := 0
	d.tree.trip = func(string) error {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour) // the signal comes
		}
		return nil
	}
	if err := d.load(); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	random, rounds := rand.New(rand.NewPCG(uint64(os.Getpid()), 0)), 1<<30
	if last > 0 { // the same each time, and not much
		random, rounds = rand.New(rand.NewPCG(7, 7)), 18
	}
	for range rounds {
		if err := act(d, random); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	fmt.Println("over")
}

// act does one thing.
func act(d *Disk, random *rand.Rand) error {
	ctx := context.Background()
	data := victimBody(random.IntN(30))
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

// history is what a victim has said of each object: what it was about to do,
// and what it had done last.
type history struct {
	done  map[b3.Address]string
	begun map[b3.Address]string
	acts  int
	over  bool
}

// run starts a victim, kills it when it has done enough, unless it does so by
// itself, and reads what it has said.
func (h *history) run(t *testing.T, folder string, step, enough int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), victimFolder+"="+folder, victimStep+"="+strconv.Itoa(step))
	said, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	h.read(t, said, func() {
		if enough--; enough == 0 {
			time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, func() { _ = child.Process.Kill() })
		}
	})
	_ = child.Wait() // it was killed
}

// read reads to the end. It tells each time that something is done.
func (h *history) read(t *testing.T, said io.Reader, done func()) {
	t.Helper()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "error") {
			t.Fatal(lines.Text())
		}
		if lines.Text() == "over" {
			h.over = true
			return
		}
		words := strings.Fields(lines.Text())
		if len(words) != 4 {
			return // cut off in the middle
		}
		a, err := b3.Parse(words[3])
		if err != nil {
			return
		}
		what := words[1] + " " + words[2]
		switch words[0] {
		case "begin":
			h.begun[a] = what
		case "done":
			h.acts++
			h.done[a] = what
			delete(h.begun, a)
			done()
		case "refused":
			delete(h.begun, a)
		}
	}
}

// check opens what was left and compares it with what was said.
func (h *history) check(t *testing.T, folder string) {
	t.Helper()
	leftover, err := os.ReadDir(filepath.Join(folder, tempName))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	d := testDisk(t, DiskSpec{Folder: folder, Budget: victimBudget, Sync: true})
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
	for a := range h.begun { // whatever came of it is right, but it must stay so
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
// there, what is there is whole, and nothing else is.
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
