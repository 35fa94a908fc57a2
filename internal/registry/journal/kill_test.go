package journal_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/disk"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// The environment of a process that is there to be killed.
const (
	victimFolder = "JOURNAL_TEST_VICTIM_FOLDER"
	victimStep   = "JOURNAL_TEST_VICTIM_STEP" // the step at which it kills itself; zero to be killed from outside
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(victimFolder); folder != "" {
		step, _ := strconv.Atoi(os.Getenv(victimStep))
		victim(folder, step)
		return
	}
	goleak.VerifyTestMain(m)
}

// hookedFS is the real disk, with a hook before each operation.
type hookedFS struct {
	disk.FS
	hook func(step string)
}

type hookedFile struct {
	disk.File
	hook func(step string)
}

func (h hookedFS) Open(name string, mode disk.Mode) (disk.File, error) {
	if mode == disk.Create {
		h.hook("create")
	}
	f, err := h.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return hookedFile{f, h.hook}, nil
}

func (h hookedFS) Rename(from, to string) error { h.hook("rename"); return h.FS.Rename(from, to) }
func (h hookedFS) Remove(name string) error     { h.hook("remove"); return h.FS.Remove(name) }
func (h hookedFS) SyncFolder(name string) error { h.hook("sync folder"); return h.FS.SyncFolder(name) }

// WriteAt writes in two halves, so that a process can be killed between them.
func (f hookedFile) WriteAt(b []byte, off int64) (int, error) {
	f.hook("write")
	half := len(b) / 2
	if n, err := f.File.WriteAt(b[:half], off); err != nil {
		return n, err
	}
	f.hook("half a write")
	n, err := f.File.WriteAt(b[half:], off+int64(half))
	return half + n, err
}

func (f hookedFile) Sync() error {
	f.hook("sync")
	err := f.File.Sync()
	f.hook("synced")
	return err
}

func (f hookedFile) Truncate(size int64) error { f.hook("truncate"); return f.File.Truncate(size) }
func (f hookedFile) Allocate(size int64) error { f.hook("allocate"); return f.File.Allocate(size) }

// victimSpec makes segments so small that they end all the time.
func victimSpec(folder string) journal.FilesSpec {
	return journal.FilesSpec{Folder: folder, SegmentVersions: 7}
}

// victimRecord is what a victim writes as a version: the same each time.
func victimRecord(version uint64) ledger.Record {
	text := strings.Repeat(fmt.Sprintf("version %d ", version), 40)
	return ledger.Record{Version: version, Header: []byte(text), Payload: []byte(text + text), Preconditions: []byte("[]")}
}

// victim commits batches, with a checkpoint and a prune now and then, and
// prints what was acknowledged.
func victim(folder string, last int) {
	steps := 0
	spec := victimSpec(folder)
	spec.FS = hookedFS{disk.OS(), func(string) {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal comes
		}
	}}
	if err := commitAll(spec, last); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("over")
}

func commitAll(spec journal.FilesSpec, last int) error {
	ctx := context.Background()
	j, err := journal.OpenFiles(spec)
	if err != nil {
		return err
	}
	next := uint64(0)
	var head *ledger.Head
	if found, err := j.Head(ctx); err == nil {
		next, head = found.Version+1, &found
	}
	random, rounds := rand.New(rand.NewPCG(uint64(os.Getpid()), 0)), 1<<30
	if last > 0 { // the same each time, and not much
		random, rounds = rand.New(rand.NewPCG(3, 3)), 12
	}
	for range rounds {
		var batch []ledger.Record
		for i := range 1 + random.Uint64N(4) {
			batch = append(batch, victimRecord(next+i))
		}
		if err := j.Append(ctx, head, batch); err != nil {
			return err
		}
		next, head = next+uint64(len(batch)), headOf(batch)
		fmt.Println("appended", next)
		if random.IntN(4) == 0 {
			if err := j.SaveCheckpoint(ctx, journal.Checkpoint{Size: next, Note: []byte("note"), Snapshot: []byte(fmt.Sprint("snapshot ", next))}); err != nil {
				return err
			}
			fmt.Println("checkpoint", next)
			if _, err := j.Prune(ctx, journal.Prune{Below: next / 2, Note: []byte("note")}); err != nil {
				return err
			}
			fmt.Println("pruned", next/2)
		}
	}
	return nil
}

// victimReport is what a victim has printed.
type victimReport struct {
	appended, checkpoint, pruned uint64
	over                         bool
}

// run starts a victim, kills it after it has printed enough, unless it does so
// by itself, and returns what it has printed.
func (report *victimReport) run(t *testing.T, folder string, step, enough int) {
	t.Helper()
	self, err := os.Executable()
	testkit.Must(t, err)
	child := exec.Command(self)
	child.Env = append(os.Environ(), victimFolder+"="+folder, victimStep+"="+strconv.Itoa(step))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, child.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		report.parseLine(t, lines.Text())
		if enough--; enough == 0 {
			time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, func() { _ = child.Process.Kill() })
		}
	}
	_ = child.Wait() // it was killed
}

func (report *victimReport) parseLine(t *testing.T, line string) {
	t.Helper()
	word, number, _ := strings.Cut(line, " ")
	n, _ := strconv.ParseUint(number, 10, 64)
	switch word {
	case "appended":
		report.appended = n
	case "checkpoint":
		report.checkpoint = n
	case "pruned":
		report.pruned = n
	case "over":
		report.over = true
	default:
		t.Fatalf("the victim says %q", line)
	}
}

// check opens what a victim has left: all that it had acknowledged is there,
// and what is there is complete.
func (report *victimReport) check(t *testing.T, folder string) {
	t.Helper()
	ctx := context.Background()
	j, err := journal.OpenFiles(victimSpec(folder))
	testkit.Must(t, err)
	defer func() { _ = j.Close() }()
	if found := j.Opened().Damaged; len(found) > 0 {
		t.Fatalf("damage: %v", found)
	}
	end := uint64(0)
	if head, err := j.Head(ctx); err == nil {
		end = head.Version + 1
	}
	if end < report.appended || end > report.appended+4 {
		t.Fatalf("%d versions are there, %d were acknowledged", end, report.appended)
	}
	note, first, err := j.Pruned(ctx)
	if err != nil || note.Below < report.pruned || first > note.Below {
		t.Fatalf("Pruned: %v, first %d, %v; %d was acknowledged", note, first, err, report.pruned)
	}
	for v := first; v < end; v++ {
		if r, err := j.Read(ctx, v); err != nil || !sameRecord(r, victimRecord(v)) {
			t.Fatalf("Read(%d): %v", v, err)
		}
	}
	if report.checkpoint > 0 {
		if c, err := j.LoadCheckpoint(ctx, 1<<63); err != nil || c.Size < report.checkpoint || string(c.Snapshot) != fmt.Sprint("snapshot ", c.Size) {
			t.Fatalf("LoadCheckpoint: %d %q, %v; want %d", c.Size, c.Snapshot, err, report.checkpoint)
		}
	}
	report.appended = end
}

// TestKilledAtEveryStep kills a process before each step of its work in turn.
func TestKilledAtEveryStep(t *testing.T) {
	stride := 1
	if testing.Short() || raceEnabled {
		stride = 9
	}
	deaths := 0
	for step := 1; ; step += stride {
		folder := t.TempDir()
		var report victimReport
		report.run(t, folder, step, -1)
		if report.over {
			break
		}
		report.check(t, folder)
		deaths++
	}
	if deaths < 140/stride {
		t.Errorf("killed at %d steps only", deaths)
	}
	t.Logf("killed at %d steps", deaths)
}

// TestKilledAtRandom kills one process after the other, each of which continues
// with what the last has left.
func TestKilledAtRandom(t *testing.T) {
	rounds := 80
	if testing.Short() || raceEnabled {
		rounds = 10
	}
	folder := t.TempDir()
	var report victimReport
	for range rounds {
		report.run(t, folder, 0, 1+rand.IntN(30))
		report.check(t, folder)
	}
	t.Logf("%d deaths, %d versions", rounds, report.appended)
}
