package amnesia

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/testkit"
)

func addressOf(memory []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(memory)) }

// wantEntries fails if a child left something behind that was not there before.
func wantEntries(t *testing.T, folder string, but ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if got, want := strings.Join(names, " "), strings.Join(but, " "); got != want {
		t.Errorf("the child left %q, want %q", got, want)
	}
}

func TestAmnesiaWritesNothing(t *testing.T) {
	folder, _ := runChild(t, "amnesia")
	wantEntries(t, folder, "log", "old", "sub", "victim") // what it had made before
	if text, _ := os.ReadFile(filepath.Join(folder, "log")); string(text) != "y" {
		t.Errorf("what was open before got %q", text)
	}
}

func TestEveryThreadIsConfined(t *testing.T) {
	folder, _ := runChild(t, "threads")
	wantEntries(t, folder)
}

func TestPersistenceWritesItsFoldersOnly(t *testing.T) {
	folder, _ := runChild(t, "persist")
	wantEntries(t, folder, "data", "more", "outside")
	wantEntries(t, filepath.Join(folder, "outside"), "file")
}

func TestSocketFoldersTakeSocketsOnly(t *testing.T) {
	folder, _ := runChild(t, "sockets")
	wantEntries(t, folder)
}

func TestOffLeavesTheProcessAlone(t *testing.T) {
	folder, _ := runChild(t, "off")
	wantEntries(t, folder, "new")
}

func TestChildrenAreConfinedToo(t *testing.T) {
	folder, _ := runChild(t, "inherit")
	wantEntries(t, folder)
}

func TestACrashDumpsNoCore(t *testing.T) {
	_, ended := runChild(t, "crash")
	if status := signalOf(ended); !status.Signaled() || status.Signal() != unix.SIGABRT || status.CoreDump() {
		t.Errorf("the process ended with %v; core dumped: %t", ended, status.CoreDump())
	}
}

// fakeConfiner is a confiner over a kernel with scripted results.
func fakeConfiner(abi int, abiErr, restrictErr, coresErr, lockErr error) (*confiner, *int) {
	rules := new(int)
	return &confiner{
		abi:              func() (int, error) { return abi, abiErr },
		restrict:         func(given ...landlock.Rule) error { *rules = len(given); return restrictErr },
		disableCoreDumps: func() error { return coresErr },
		probeLock:        func() error { return lockErr },
	}, rules
}

func TestConfineSaysWhatItGot(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		mode          Mode
		abi           int
		abiErr        error
		restrict      error
		cores         error
		want          fault.Kind
		landlock, off bool
		reason, next  string // parts of them
	}{
		"on":                         {On, 7, nil, nil, nil, none, true, true, "", ""},
		"auto":                       {Auto, 3, nil, nil, nil, none, true, true, "", ""},
		"off":                        {Off, 7, nil, nil, nil, none, false, false, "is off", "auto or on"},
		"off, no Landlock":           {Off, 0, unix.ENOSYS, nil, nil, none, false, false, "is off", "auto or on"},
		"on, no Landlock":            {On, 0, unix.ENOSYS, nil, nil, fault.NotReady, false, true, "no Landlock", "Linux 6.2"},
		"auto, no Landlock":          {Auto, 0, unix.ENOSYS, nil, nil, none, false, true, "no Landlock", "Linux 6.2"},
		"on, turned off at boot":     {On, 0, unix.EOPNOTSUPP, nil, nil, fault.NotReady, false, true, "turned off", "lsm="},
		"auto, turned off at boot":   {Auto, 0, unix.EOPNOTSUPP, nil, nil, none, false, true, "turned off", "lsm="},
		"auto, refused by a sandbox": {Auto, 0, unix.EPERM, nil, nil, none, false, true, "cannot be used", "seccomp"},
		"on, too old":                {On, 2, nil, nil, nil, fault.NotReady, false, true, "too old", "Linux 6.2"},
		"auto, too old":              {Auto, 1, nil, nil, nil, none, false, true, "too old", "Linux 6.2"},
		"on, the rules fail":         {On, 7, nil, broken, nil, fault.NotReady, false, false, "", ""},
		"auto, the rules fail":       {Auto, 7, nil, broken, nil, fault.NotReady, false, false, "", ""},
		"on, cores stay":             {On, 7, nil, nil, broken, fault.NotReady, true, false, "core dumps", "prctl"},
		"auto, cores stay":           {Auto, 7, nil, nil, broken, none, true, false, "core dumps", "prctl"},
		"auto, nothing works":        {Auto, 0, unix.ENOSYS, nil, broken, none, false, false, "no Landlock", "Linux 6.2"},
	} {
		confiner, rules := fakeConfiner(c.abi, c.abiErr, c.restrict, c.cores, nil)
		got, err := confiner.confine(Plan{Mode: c.mode})
		testkit.WantKind(t, err, c.want, name)
		if got.Landlock != c.landlock || got.CoreDumpsOff != c.off || got.ABI != c.abi || !got.LockedMemory {
			t.Errorf("%s: %+v", name, got)
		}
		if !strings.Contains(got.Reason, c.reason) || !strings.Contains(got.Next, c.next) || (got.Reason == "") != (got.Next == "") || (c.reason == "") != (got.Reason == "") {
			t.Errorf("%s: reason %q, next %q", name, got.Reason, got.Next)
		}
		if err != nil && fault.NextOf(err) == fault.NotReady.Next() {
			t.Errorf("%s: the error does not say what to do", name)
		}
		if asked := c.landlock || c.restrict != nil; asked != (*rules > 0) {
			t.Errorf("%s: %d rules", name, *rules)
		}
		_, err = confiner.confine(Plan{Mode: Off})
		testkit.WantKind(t, err, fault.Conflict, name+", again")
	}
}

func TestPlansThatCannotBeMeant(t *testing.T) {
	folder := t.TempDir()
	if err := errors.Join(writeFile(filepath.Join(folder, "file")), os.Symlink("/", filepath.Join(folder, "root"))); err != nil {
		t.Fatal(err)
	}
	confiner, rules := fakeConfiner(7, nil, nil, nil, nil)
	for name, c := range map[string]struct {
		plan Plan
		want fault.Kind
		next string
	}{
		"no mode":                  {Plan{}, fault.Malformed, "auto, on or off"},
		"another mode":             {Plan{Mode: "maybe"}, fault.Malformed, "auto, on or off"},
		"a missing folder":         {Plan{Mode: On, Writable: []string{folder, folder + "/none"}}, fault.NotFound, "mkdir -p " + folder + "/none"},
		"a missing socket folder":  {Plan{Mode: On, Sockets: []string{folder + "/none"}}, fault.NotFound, "mkdir -p"},
		"a file":                   {Plan{Mode: On, Writable: []string{folder + "/file"}}, fault.Malformed, "Name a folder"},
		"everything":               {Plan{Mode: Auto, Writable: []string{"/"}}, fault.Malformed, "of its own"},
		"everything by a link":     {Plan{Mode: Auto, Writable: []string{folder + "/root"}}, fault.Malformed, "of its own"},
		"everything by two points": {Plan{Mode: Auto, Writable: []string{"/tmp/.."}}, fault.Malformed, "of its own"},
	} {
		_, err := confiner.confine(c.plan)
		testkit.WantKind(t, err, c.want, name)
		if !strings.Contains(fault.NextOf(err), c.next) {
			t.Errorf("%s: next %q", name, fault.NextOf(err))
		}
	}
	if _, err := confiner.confine(Plan{Mode: On, Writable: []string{folder}, Sockets: []string{folder}}); err != nil || *rules < 3 {
		t.Errorf("a plan that was refused spent the one call: %v, %d rules", err, *rules)
	}
}

func TestProbe(t *testing.T) {
	if offer := Probe(); offer.Landlock.OK != (offer.ABI >= minABI) || offer.Landlock.Detail == "" || offer.LockedMemory.Detail == "" {
		t.Errorf("%+v", offer)
	}
	good, _ := fakeConfiner(7, nil, nil, nil, nil)
	if offer := good.probe(); !offer.Landlock.OK || offer.ABI != 7 || !strings.Contains(offer.Landlock.Detail, "7") || !offer.LockedMemory.OK {
		t.Errorf("%+v", offer)
	}
	bad, _ := fakeConfiner(-1, unix.ENOSYS, nil, nil, unix.ENOMEM)
	offer := bad.probe()
	if offer.Landlock.OK || offer.ABI != 0 || !strings.Contains(offer.Landlock.Next, "Linux 6.2") {
		t.Errorf("%+v", offer.Landlock)
	}
	if offer.LockedMemory.OK || !strings.Contains(offer.LockedMemory.Next, "LimitMEMLOCK") || !strings.Contains(offer.LockedMemory.Detail, "4 KiB") {
		t.Errorf("%+v", offer.LockedMemory)
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1023: "1023 bytes", 8192: "8 KiB", 3 << 20: "3 MiB", unix.RLIM_INFINITY: "any amount"} {
		if got := formatBytes(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// A process that is not confined fails the check, and the check leaves nothing
// behind.
func TestProveFindsAProcessThatCanWrite(t *testing.T) {
	folder := t.TempDir()
	proof := TryWrites(folder)
	err := proof.Err()
	testkit.WantKind(t, err, fault.NotReady, "not confined")
	if err == nil || !strings.Contains(err.Error(), "can still make a folder in "+folder) || !strings.Contains(fault.NextOf(err), "amnesia.enforce") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
	if strings.Count(proof.String(), "could ") != len(writeActions) || strings.Contains(proof.String(), "could not") {
		t.Errorf("the proof says:\n%s", proof)
	}
	wantEntries(t, folder)
}

// What is refused anyway proves nothing.
func TestProveIsNotFooledByOtherRefusals(t *testing.T) {
	proof := TryWrites("/sys", "/proc/self", "/no/such/folder")
	err := proof.Err()
	testkit.WantKind(t, err, fault.NotReady, "inconclusive")
	if err == nil || !strings.Contains(err.Error(), "nothing was proved") || !strings.Contains(proof.String(), "not possible anyway") {
		t.Errorf("%v\n%s", err, proof)
	}
}

func TestDefaultFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", "/no/such/home")
	places := DefaultFolders()
	here, _ := os.Getwd()
	if len(places) < 2 || places[0] != here || places[1] != os.TempDir() || strings.Contains(strings.Join(places, " "), "/no/such") {
		t.Errorf("%v", places)
	}
	t.Chdir(t.TempDir())
	t.Setenv("HOME", os.TempDir())
	if got := len(TryWrites().Attempts); got != len(DefaultFolders())*len(writeActions) {
		t.Errorf("%d attempts in %v", got, DefaultFolders())
	}
}
