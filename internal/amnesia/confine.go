package amnesia

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"micronode/fault"
)

// Mode is the value of amnesia.enforce.
type Mode string

// The modes.
const (
	Auto Mode = "auto" // confine where the kernel can, and report it where it cannot
	On   Mode = "on"   // confine, or do not start
	Off  Mode = "off"  // leave the process as it is, core dumps included
)

// Plan is what to confine the process to.
type Plan struct {
	Mode     Mode
	Writable []string // folders that may be written, with all that is in them; none in amnesia
	Sockets  []string // folders in which sockets may be made and removed, and nothing be written
}

// Confinement is what the process was confined to.
type Confinement struct {
	Landlock     bool // the kernel refuses writes outside the plan
	ABI          int  // Landlock's version in this kernel; 0 if it has none
	CoreDumpsOff bool
	LockedMemory bool // a page of memory can be locked; each arena reports its own state

	Reason string // what falls short, and why; empty if nothing does
	Next   string // what to do about it
}

// The rights of the write class, and which of them folders, devices and sockets
// get.
const (
	minABI = 3 // the first with all of these

	writeRights landlock.AccessFSSet = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRefer |
		ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSym |
		ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeChar | ll.AccessFSMakeBlock

	deviceRights landlock.AccessFSSet = ll.AccessFSWriteFile | ll.AccessFSTruncate
	folderRights                      = writeRights &^ (ll.AccessFSMakeFifo | ll.AccessFSMakeChar | ll.AccessFSMakeBlock)
	socketRights landlock.AccessFSSet = ll.AccessFSMakeSock | ll.AccessFSRemoveFile
)

// devices may always be written: what goes there is not kept.
var devices = []string{"/dev/null", "/dev/tty"}

// confiner does the work of Confine. The functions are its calls to the kernel;
// tests replace them, because a process that has confined itself cannot
// continue testing.
type confiner struct {
	abi              func() (int, error)
	restrict         func(rules ...landlock.Rule) error
	disableCoreDumps func() error
	probeLock        func() error

	done atomic.Bool
}

var thisProcess = confiner{
	abi:              ll.LandlockGetABIVersion,
	restrict:         landlock.MustConfig(writeRights).RestrictPaths,
	disableCoreDumps: disableCoreDumps,
	probeLock:        probeLock,
}

// Confine drops the right to write outside the plan, for this process and all
// that it starts, for good. It can be called once; in the mode Off it changes
// nothing. An error means that the process must not continue as if it were
// confined.
func Confine(plan Plan) (Confinement, error) { return thisProcess.confine(plan) }

func (c *confiner) confine(plan Plan) (Confinement, error) {
	const op = "amnesia.confine"
	rules, err := plan.rules(op)
	if err != nil {
		return Confinement{}, err
	}
	if !c.done.CompareAndSwap(false, true) {
		return Confinement{}, fault.New(op, fault.Conflict, "the process is confined already; it can be done once")
	}
	got := Confinement{LockedMemory: c.probeLock() == nil}
	var cause error
	got.ABI, cause = c.abi()
	if plan.Mode == Off {
		got.Reason, got.Next = "amnesia.enforce is off: the kernel does not prevent writes to disk", "Set amnesia.enforce to auto or on."
		return got, nil
	}
	if got.Reason, got.Next = landlockProblem(got.ABI, cause); got.Reason == "" {
		if err := c.restrict(rules...); err != nil {
			return got, refusal(op, err, "the kernel has Landlock, but refused the rules",
				"Set amnesia.enforce to off to run without, and report this with the error.")
		}
		got.Landlock = true
	}
	if err := c.disableCoreDumps(); err != nil {
		cause, got.Reason = err, cmp.Or(got.Reason, "core dumps cannot be turned off")
		got.Next = cmp.Or(got.Next, "Allow setrlimit and prctl in the sandbox around this process.")
	} else {
		got.CoreDumpsOff = true
	}
	if got.Reason != "" && plan.Mode == On {
		return got, refusal(op, cause, got.Reason, got.Next)
	}
	return got, nil
}

func refusal(op string, cause error, detail, next string) error {
	return fault.New(op, fault.NotReady, "%s", detail).Advise(next).Because(cause)
}

// rules checks a plan and translates it to Landlock rules.
func (p Plan) rules(op string) ([]landlock.Rule, error) {
	if p.Mode != Auto && p.Mode != On && p.Mode != Off {
		return nil, fault.New(op, fault.Malformed, "amnesia.enforce is %q", string(p.Mode)).Advise("Use auto, on or off.")
	}
	for _, folder := range append(append([]string{}, p.Writable...), p.Sockets...) {
		if err := checkFolder(op, folder); err != nil {
			return nil, err
		}
	}
	var rules []landlock.Rule
	for _, device := range devices {
		// On a broken system /dev/null may be an ordinary file.
		if info, err := os.Stat(device); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			rules = append(rules, landlock.PathAccess(deviceRights, device))
		}
	}
	if len(p.Writable) > 0 {
		rules = append(rules, landlock.PathAccess(folderRights, p.Writable...))
	}
	if len(p.Sockets) > 0 {
		rules = append(rules, landlock.PathAccess(socketRights, p.Sockets...))
	}
	return rules, nil
}

// checkFolder refuses folders that must be mistakes. A rule is about the folder
// that exists now, so it must exist.
func checkFolder(op, folder string) error {
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return fault.New(op, fault.NotFound, "the folder %s is not there", folder).Advise("Make it first: mkdir -p " + folder).Because(err)
	case !info.IsDir():
		return fault.New(op, fault.Malformed, "%s is not a folder", folder).Advise("Name a folder.")
	}
	if whole, err := filepath.EvalSymlinks(folder); err == nil && filepath.Clean(whole) == "/" {
		return fault.New(op, fault.Malformed, "%s is the whole file system", folder).
			Advise("Name a folder of its own for what the node keeps.")
	}
	return nil
}

// systemName is this system, as its makers write it.
var systemName = cmp.Or(map[string]string{"darwin": "macOS", "windows": "Windows"}[runtime.GOOS], runtime.GOOS)

// landlockProblem says why this kernel cannot confine us, and what to do; both
// are empty if it can.
func landlockProblem(abi int, err error) (reason, next string) {
	const container = "In a container, allow the landlock_* system calls in its seccomp profile. "
	switch {
	case runtime.GOOS != "linux":
		return "on " + systemName + " the node writes nothing either, but nothing keeps a fault of it from writing: only Linux can take that right away",
			"Set amnesia.enforce to auto or off, or run the node on Linux 6.2 or newer."
	case errors.Is(err, syscall.ENOSYS):
		return "the kernel has no Landlock, or a sandbox hides it",
			container + "Otherwise use Linux 6.2 or newer, built with CONFIG_SECURITY_LANDLOCK."
	case errors.Is(err, syscall.EOPNOTSUPP):
		return "the kernel has Landlock, but it is turned off",
			"Add landlock to lsm= on the kernel's command line and restart the machine."
	case err != nil:
		return "Landlock cannot be used: " + err.Error(), container
	case abi < minABI:
		return "the kernel's Landlock is too old to refuse that a file is truncated", "Use Linux 6.2 or newer."
	}
	return "", ""
}
