package amnesia

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/testkit"
)

// roles is what child processes do. A role prints what it finds wrong.
var roles = map[string]func(folder string){
	"amnesia": playAmnesia,
	"threads": playThreads,
	"persist": playPersist,
	"sockets": playSockets,
	"crash":   playCrash,
	"off":     playOff,
	"inherit": playInherit,
	"wipe":    playWipe,
	"touch":   playTouch,
}

// mustConfine confines the child or ends it.
func mustConfine(plan Plan) Confinement {
	got, err := Confine(plan)
	if err != nil {
		childError("Confine: %v", err)
		os.Exit(failures)
	}
	if !got.Landlock || got.ABI < minABI || !got.CoreDumpsOff || got.Reason != "" || dumpable() {
		childError("Confine achieved %+v", got)
	}
	return got
}

// must stops a child whose preparations fail.
func must[T any](value T, err error) T {
	if err != nil {
		childError("preparing: %v", err)
		os.Exit(failures)
	}
	return value
}

// wantRefused reports that something was not refused by the kernel.
func wantRefused(what string, err error) {
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EXDEV) {
		childError("%s: %v, want a refusal", what, err)
	}
}

// wantAllowed reports that something was refused that should not be.
func wantAllowed(what string, err error) {
	if err != nil {
		childError("%s: %v, want it allowed", what, err)
	}
}

func writeFile(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }

// playAmnesia: nothing can be written, everything can be read.
func playAmnesia(folder string) {
	in := func(name string) string { return filepath.Join(folder, name) }
	must(0, writeFile(in("old")))
	must(0, writeFile(in("victim")))
	must(0, os.Mkdir(in("sub"), 0o700))
	before := must(os.OpenFile(in("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))
	mustConfine(Plan{Mode: On})

	for _, place := range []string{in("new"), in("sub/new"), "new", "/dev/shm/micronode-test", "/micronode-test"} {
		wantRefused("create "+place, writeFile(place))
	}
	for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC} {
		_, err := os.OpenFile(in("old"), flags, 0)
		wantRefused(fmt.Sprintf("open with %x", flags), err)
	}
	_, err := os.CreateTemp("", "micronode-test")
	wantRefused("a temporary file", err)
	_, err = unix.Open(folder, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	wantRefused("a file without a name", err)
	wantRefused("truncate", os.Truncate(in("old"), 0))
	wantRefused("remove", os.Remove(in("victim")))
	wantRefused("rename", os.Rename(in("victim"), in("renamed")))
	wantRefused("rename to another folder", os.Rename(in("victim"), in("sub/victim")))
	wantRefused("link", os.Link(in("victim"), in("linked")))
	wantRefused("symbolic link", os.Symlink("old", in("symbolic")))
	wantRefused("make a folder", os.Mkdir(in("folder"), 0o700))
	wantRefused("remove a folder", os.Remove(in("sub")))
	wantRefused("make a pipe", unix.Mkfifo(in("fifo"), 0o600))
	wantRefused("make a device", unix.Mknod(in("device"), unix.S_IFCHR|0o600, 0x103))
	_, err = net.Listen("unix", in("socket"))
	wantRefused("make a socket", err)

	text, err := os.ReadFile(in("old"))
	if string(text) != "x" || err != nil {
		childError("reading: %q, %v", text, err)
	}
	_, err = os.ReadDir(folder)
	wantAllowed("list a folder", err)
	_, err = before.WriteString("y")
	wantAllowed("write to what was open before", err)
	wantAllowed("write to /dev/null", os.WriteFile("/dev/null", []byte("x"), 0))
	if _, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); errors.Is(err, unix.EACCES) {
		childError("the terminal: %v", err)
	}
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": "@micronode-test-" + fmt.Sprint(os.Getpid())} {
		listener, err := net.Listen(network, address)
		wantAllowed("listen on "+network, err)
		if err == nil {
			conn, err := net.Dial(network, listener.Addr().String())
			wantAllowed("connect to "+network, err)
			if err == nil {
				_ = conn.Close()
			}
			_ = listener.Close()
		}
	}
	proof := TryWrites(folder, ".")
	wantAllowed("the proof", proof.Err())
	// Not every file system knows files without a name.
	if told := strings.Count(proof.String(), "the kernel refused\n"); told < len(proof.Attempts)-2 {
		childError("the proof says:\n%s", proof)
	}
	if _, err := Confine(Plan{Mode: On}); fault.KindOf(err) != fault.Conflict {
		childError("a second Confine: %v", err)
	}
}

// playThreads: threads that were there before are confined, and so are new
// ones.
func playThreads(folder string) {
	const each = 8
	var group sync.WaitGroup
	var mu sync.Mutex
	threads := map[int]error{}
	started, free := make(chan bool, each), make(chan bool)
	try := func(name string) {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		started <- true
		<-free
		err := writeFile(filepath.Join(folder, name))
		mu.Lock()
		defer mu.Unlock()
		threads[unix.Gettid()] = err
	}
	for i := range each {
		group.Go(func() { try(fmt.Sprint("before", i)) })
		<-started
	}
	mustConfine(Plan{Mode: On})
	for i := range each {
		group.Go(func() { try(fmt.Sprint("after", i)) })
		<-started
	}
	close(free)
	group.Wait()
	for thread, err := range threads {
		wantRefused(fmt.Sprintf("thread %d", thread), err)
	}
	if len(threads) != 2*each {
		childError("only %d threads tried", len(threads))
	}
}

// playPersist: the folders of the plan can be written in every way, moves
// between them included, and nothing else can.
func playPersist(folder string) {
	in := func(name string) string { return filepath.Join(folder, name) }
	for _, name := range []string{"data", "data/a", "data/b", "more", "outside"} {
		must(0, os.Mkdir(in(name), 0o700))
	}
	must(0, writeFile(in("outside/file")))
	mustConfine(Plan{Mode: On, Writable: []string{in("data"), in("more")}})

	wantAllowed("create", writeFile(in("data/a/file")))
	wantAllowed("write again", writeFile(in("data/a/file")))
	wantAllowed("truncate", os.Truncate(in("data/a/file"), 0))
	wantAllowed("rename across folders", os.Rename(in("data/a/file"), in("data/b/file")))
	wantAllowed("rename across the plan's folders", os.Rename(in("data/b/file"), in("more/file")))
	wantAllowed("link across folders", os.Link(in("more/file"), in("data/a/linked")))
	wantAllowed("symbolic link", os.Symlink("file", in("more/symbolic")))
	wantAllowed("make a folder", os.MkdirAll(in("more/x/y"), 0o700))
	wantAllowed("remove", os.RemoveAll(in("more")+"/x"))
	listener, err := net.Listen("unix", in("data/socket"))
	wantAllowed("make a socket", err)
	if err == nil {
		wantAllowed("remove a socket", listener.Close())
	}
	wantRefused("make a pipe", unix.Mkfifo(in("data/fifo"), 0o600))
	wantRefused("create outside", writeFile(in("outside/new")))
	wantRefused("write outside", writeFile(in("outside/file")))
	wantRefused("create beside", writeFile(in("beside")))
	wantRefused("move out", os.Rename(in("more/file"), in("outside/moved")))
	wantRefused("move in", os.Rename(in("outside/file"), in("data/moved")))
	wantRefused("link out", os.Link(in("more/file"), in("outside/linked")))
	must(0, os.Symlink(in("outside"), in("data/way-out")))
	wantRefused("through a symbolic link", writeFile(in("data/way-out/new")))
	wantRefused("up and out", writeFile(in("data/../new")))
}

// playSockets: where sockets are allowed, nothing else is.
func playSockets(folder string) {
	mustConfine(Plan{Mode: On, Sockets: []string{folder}})
	listener, err := net.Listen("unix", filepath.Join(folder, "socket"))
	wantAllowed("make a socket", err)
	if err == nil {
		wantAllowed("remove it", listener.Close())
	}
	wantRefused("create a file", writeFile(filepath.Join(folder, "file")))
	wantRefused("make a folder", os.Mkdir(filepath.Join(folder, "sub"), 0o700))
}

// playCrash: no core is dumped, even if the limit is raised again, which is
// how a core_pattern with a pipe sees it. Landlock, which would refuse the
// file, is left out.
func playCrash(string) {
	if err := disableCoreDumps(); err != nil {
		childError("coresOff: %v", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit != (unix.Rlimit{}) {
		childError("the limit is %v, %v", limit, err)
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}) // only root can
	_ = unix.Kill(os.Getpid(), unix.SIGABRT)
	select {}
}

// dumpable is whether the kernel would dump a core of this process.
func dumpable() bool {
	state, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return state != 0 || err != nil
}

// playOff: the mode Off leaves the process as it is.
func playOff(folder string) {
	got, err := Confine(Plan{Mode: Off})
	if err != nil || got.Landlock || got.CoreDumpsOff || got.ABI < minABI || got.Reason == "" || got.Next == "" {
		childError("off: %+v, %v", got, err)
	}
	wantAllowed("create", writeFile(filepath.Join(folder, "new")))
	if !dumpable() {
		childError("core dumps are off")
	}
}

// playInherit: what a confined process starts is confined too.
func playInherit(folder string) {
	mustConfine(Plan{Mode: Auto})
	if said, err := testkit.Child("touch", folder).Output(); string(said) != "refused\n" {
		childError("a child of a confined process: %q, %v", said, err)
	}
}

// playTouch says whether it can write. It is played by the child of a child.
func playTouch(folder string) {
	if errors.Is(writeFile(filepath.Join(folder, "touched")), unix.EACCES) {
		fmt.Println("refused")
	}
}

// playWipe: a secret that was in an arena is nowhere in the memory of the
// process after ZeroAll. The secret is never whole anywhere else: it is made
// in place, and looked for in place.
func playWipe(string) {
	vault := NewArenaSet()
	for _, name := range []string{"keys", "cache"} {
		arena := must(vault.NewArena(name, 1<<16))
		writeCanary(must(arena.Alloc(100))[7:])
		writeCanary(must(arena.Alloc(50_000))[33_333:])
	}
	if found := countCanaries(); found != 4 {
		childError("%d of the 4 secrets are found before they are wiped", found)
	}
	if report := vault.ZeroAll(); !report.Clean() || report.String() != "keys zeroed (48 KiB), cache zeroed (48 KiB)" {
		childError("report: %s", report)
	}
	if found := countCanaries(); found != 0 {
		childError("%d secrets are left in memory", found)
	}
	if report, err := vault.Close(); err != nil || !report.Clean() {
		childError("closing: %v, %v", report, err)
	}
}

const canarySize = 64

// canary is byte i of the secret.
func canary(i int) byte { return byte(i*i*7+i*13+101) ^ 0x5a }

func writeCanary(to []byte) {
	for i := range canarySize {
		to[i] = canary(i)
	}
}

// countCanaries reads all memory of the process, as a debugger would.
func countCanaries() (found int) {
	memory := must(os.Open("/proc/self/mem"))
	defer memory.Close()
	buffer := must(unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	defer unix.Munmap(buffer)
	own := fmt.Sprintf("%x-", uintptr(addressOf(buffer)))
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/maps")))) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || rights[0] != 'r' || strings.HasPrefix(line, own) {
			continue
		}
		// Windows overlap, so that a secret on the border is not missed.
		for at := from; at < to; at += int64(len(buffer)) - canarySize {
			window := buffer[:min(int64(len(buffer)), to-at)]
			n, _ := memory.ReadAt(window, at)
			for i := 0; i+canarySize <= n; i++ {
				next := bytes.IndexByte(window[i:n], canary(0))
				if next < 0 {
					break
				}
				if i += next; isCanary(window[i:n]) && (i+canarySize < len(buffer) || at+int64(len(buffer)) >= to) {
					found++
				}
			}
		}
		clear(buffer)
	}
	return found
}

func isCanary(text []byte) bool {
	if len(text) < canarySize {
		return false
	}
	for i := range canarySize {
		if text[i] != canary(i) {
			return false
		}
	}
	return true
}
