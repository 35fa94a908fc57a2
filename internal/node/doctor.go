package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/amnesia"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/ingress"
)

// Check is one line of what the doctor says of the machine.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warn or fail
	Detail string `json:"detail"`
	Next   string `json:"next,omitempty"`
}

// How a check came out. A warning is something that a node can live with.
const (
	CheckOK   = "ok"
	CheckWarn = "warn"
	CheckFail = "fail"
)

// Doctor looks at the machine as a node with this configuration would find it,
// and with this folder for --persist, if any. It changes nothing; ports are
// opened and closed at once.
func Doctor(ctx context.Context, c Config, persist string) []Check {
	return []Check{
		checkLandlock(c),
		checkLockedMemory(),
		checkDescriptors(c),
		checkBacklog(),
		checkClock(),
		checkPort(ctx, "port http", c.HTTP.Addr, "--http"),
		checkPort(ctx, "port admin", c.Admin.Addr, "--admin"),
		checkPort(ctx, "port overlay", c.Overlay.Addr, "--overlay"),
		checkSocket(ctx, capability.DefaultSocket(os.Geteuid(), "")),
		checkDisk(persist),
		checkIdentityKey(c),
	}
}

func checkLandlock(c Config) Check {
	offer := amnesia.Probe()
	check := Check{Name: "landlock", Status: CheckOK, Detail: offer.Landlock.Detail, Next: offer.Landlock.Next}
	if !offer.Landlock.OK {
		check.Status = CheckWarn
		if amnesia.Mode(c.Amnesia.Enforce) == amnesia.On {
			check.Status = CheckFail
		}
	}
	return check
}

func checkLockedMemory() Check {
	offer := amnesia.Probe()
	check := Check{Name: "locked memory", Status: CheckOK, Detail: offer.LockedMemory.Detail, Next: offer.LockedMemory.Next}
	if !offer.LockedMemory.OK {
		check.Status = CheckWarn
	}
	return check
}

// checkDescriptors wants two for each connection: its own, and what it reads
// from.
func checkDescriptors(c Config) Check {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return Check{Name: "descriptors", Status: CheckWarn, Detail: "the limit cannot be read: " + err.Error()}
	}
	want := uint64(2 * c.Limits.MaxConns)
	check := Check{Name: "descriptors", Status: CheckOK, Detail: fmt.Sprintf("%d may be open, limits.max_conns = %d needs %d", limit.Max, c.Limits.MaxConns, want)}
	if limit.Max < want { // the Go runtime raises the soft limit to the hard one
		check.Status = CheckWarn
		check.Next = fmt.Sprintf("Raise the limit (ulimit -Hn %d, or LimitNOFILE= in the unit), or lower limits.max_conns.", want)
	}
	return check
}

func checkBacklog() Check {
	const want = 4096
	backlog := ingress.Backlog()
	check := Check{Name: "backlog", Status: CheckOK, Detail: fmt.Sprintf("%d connections may wait to be accepted", backlog)}
	if backlog < want {
		check.Status = CheckWarn
		check.Next = fmt.Sprintf("Type: sysctl -w net.core.somaxconn=%d", want)
	}
	return check
}

// checkClock asks the kernel whether the clock is kept in time. Tokens and
// signed records carry times, so a clock that is off makes good ones look bad.
func checkClock() Check {
	now := time.Now().UTC().Format(time.RFC3339)
	var kernel unix.Timex
	state, err := unix.Adjtimex(&kernel)
	if err == nil && state != unix.TIME_ERROR {
		return Check{Name: "clock", Status: CheckOK, Detail: now + ", kept in time"}
	}
	return Check{Name: "clock", Status: CheckWarn, Detail: now + ", and nothing keeps it in time, as far as the kernel knows",
		Next: "Compare it with a clock that you trust. A time service (chrony, systemd-timesyncd) keeps it right."}
}

// checkPort tries to listen where the node would.
func checkPort(ctx context.Context, name, addr, flag string) Check {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return Check{Name: name, Status: CheckWarn, Detail: addr + " is taken: " + err.Error(),
			Next: "If that is not a node of yours, choose another address with " + flag + " (port 0 picks a free one)."}
	}
	_ = listener.Close()
	return Check{Name: name, Status: CheckOK, Detail: addr + " is free"}
}

// checkSocket tells whether a node of this user runs, or somebody else is on
// its socket.
func checkSocket(ctx context.Context, name string) Check {
	conn, err := capability.DialLocal(ctx, name)
	switch fault.KindOf(err) {
	case fault.NotReady:
		return Check{Name: "socket", Status: CheckOK, Detail: "@" + name + " is free: no node of yours is running"}
	case fault.Forbidden:
		return Check{Name: "socket", Status: CheckFail, Detail: fault.DetailOf(err), Next: fault.NextOf(err)}
	}
	if err != nil {
		return Check{Name: "socket", Status: CheckWarn, Detail: err.Error(), Next: fault.NextOf(err)}
	}
	_ = conn.Close()
	return Check{Name: "socket", Status: CheckOK, Detail: "@" + name + ": a node of yours is running"}
}

func checkIdentityKey(c Config) Check {
	if strings.HasPrefix(c.Node.Identity, "fd:") {
		return Check{Name: "identity", Status: CheckOK, Detail: c.Node.Identity + ", which can be read only once: the node will"}
	}
	identity, err := LoadIdentity(c.Node.Identity)
	if err != nil {
		return Check{Name: "identity", Status: CheckFail, Detail: err.Error(), Next: fault.NextOf(err)}
	}
	if identity.Ephemeral() {
		return Check{Name: "identity", Status: CheckOK, Detail: "ephemeral: a new peer ID at each start",
			Next: "For one that stays, type: micronode identity new --out FILE, then run with --identity file:FILE."}
	}
	return Check{Name: "identity", Status: CheckOK, Detail: identity.PeerID()}
}

// diskEnough is how much room a folder should have before a node begins.
const diskEnough = 256 << 20

// checkDisk looks at the folder, or at where it would be made.
func checkDisk(folder string) Check {
	check := Check{Name: "disk", Status: CheckOK}
	if folder == "" {
		check.Detail = "not used: the node keeps everything in RAM, unless it is run with --persist DIR"
		return check
	}
	there := folder
	info, err := os.Stat(there)
	if errors.Is(err, fs.ErrNotExist) {
		there = filepath.Dir(filepath.Clean(folder)) // the node makes the folder itself
		info, err = os.Stat(there)
	}
	room, failed := roomIn(there)
	switch {
	case err != nil:
		check.Status, check.Detail, check.Next = CheckFail, "there can be no folder "+folder+": "+err.Error(), "Choose a folder in one that is there."
	case !info.IsDir():
		check.Status, check.Detail, check.Next = CheckFail, there+" is no folder", "Choose another one."
	case unix.Access(there, unix.W_OK|unix.X_OK) != nil:
		check.Status, check.Detail, check.Next = CheckFail, there+" cannot be written by this user", "Choose another folder, or let this user write there."
	case failed != nil:
		check.Status, check.Detail, check.Next = CheckWarn, "how much room "+there+" has cannot be told: "+failed.Error(), "Look for yourself."
	case room < diskLeast:
		check.Status, check.Detail, check.Next = CheckFail, "the disk of "+there+" is full", "Make room on it, or choose a folder on another disk."
	case room < diskEnough:
		check.Status, check.Detail, check.Next = CheckWarn, fmt.Sprintf("%s has room for %s", there, rounded(room)), "Make more room on it, or choose a folder on another disk."
	default:
		check.Detail = fmt.Sprintf("%s has room for %s", there, rounded(room))
	}
	return check
}

// rounded is a size as people say it.
func rounded(bytes uint64) config.Size {
	unit := uint64(1 << 20)
	if bytes >= 1<<30 {
		unit = 1 << 30
	}
	return config.Size(bytes / unit * unit)
}
