package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/amnesia"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/disk"
	"micronode/internal/ingress"
)

// Check is one line of the doctor's report.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warn or fail
	Detail string `json:"detail"`
	Next   string `json:"next,omitempty"`
}

// The results of a check. A node can run with a warning.
const (
	CheckOK   = "ok"
	CheckWarn = "warn"
	CheckFail = "fail"
)

// Doctor checks the machine for a node with this configuration, and with this
// folder for --persist, if any. It changes nothing; ports are opened and closed
// at once.
func Doctor(ctx context.Context, c Config, persist string) []Check {
	socket := capability.DefaultSocket(os.Geteuid(), "")
	own := ownStatus(ctx, socket)
	listens := ownAddresses(own)
	return []Check{
		checkLandlock(c),
		checkLockedMemory(),
		checkMemory(c, findMemoryLimit()),
		checkDescriptors(c),
		checkBacklog(),
		checkClock(),
		checkPort(ctx, "port http", c.HTTP.Addr, "--http", listens),
		checkPort(ctx, "port admin", c.Admin.Addr, "--admin", listens),
		checkPort(ctx, "port overlay", c.Overlay.Addr, "--overlay", listens),
		checkSocket(ctx, socket),
		checkOrigins(own),
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

// lockCovers states the extent of locking, to prevent wrong conclusions.
const lockCovers = "; only the key of capabilities is: objects, messages and buffers can be swapped out"

func checkLockedMemory() Check {
	offer := amnesia.Probe()
	check := Check{Name: "locked memory", Status: CheckOK, Detail: offer.LockedMemory.Detail + lockCovers, Next: offer.LockedMemory.Next}
	if !offer.LockedMemory.OK {
		check.Status, check.Detail = CheckWarn, offer.LockedMemory.Detail+", the key of capabilities included"
	}
	return check
}

// checkDescriptors wants two for each connection: its own, and that of the file
// that it reads.
func checkDescriptors(c Config) Check {
	limit, err := descriptorLimit()
	if err != nil {
		return Check{Name: "descriptors", Status: CheckWarn, Detail: "the limit cannot be read: " + err.Error()}
	}
	want := uint64(2 * c.Limits.MaxConns)
	check := Check{Name: "descriptors", Status: CheckOK, Detail: fmt.Sprintf("the limit is %d; limits.max_conns = %d needs %d", limit, c.Limits.MaxConns, want)}
	if limit < want { // the Go runtime raises the soft limit to the hard one
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

// checkClock asks the kernel whether the clock is synchronised. Tokens and
// signed records carry times, so a wrong clock rejects valid ones.
func checkClock() Check {
	now := time.Now().UTC().Format(time.RFC3339)
	switch clockState() {
	case clockSynchronised:
		return Check{Name: "clock", Status: CheckOK, Detail: now + ", synchronised"}
	case clockUnknown:
		return Check{Name: "clock", Status: CheckOK, Detail: now + "; whether a time service sets it is not known on this system"}
	}
	return Check{Name: "clock", Status: CheckWarn, Detail: now + ", but the kernel reports no clock synchronisation",
		Next: "Compare it with a reliable clock, and run a time service (chrony, systemd-timesyncd)."}
}

// ownStatus is what the node of this user says of itself; nil, if none runs.
func ownStatus(ctx context.Context, socket string) *client.Status {
	node, err := client.New(client.Options{Socket: socket})
	if err != nil {
		return nil
	}
	defer node.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := node.Status(ctx)
	if err != nil {
		return nil
	}
	return &status
}

// ownAddresses is where that node listens.
func ownAddresses(own *client.Status) []string {
	if own == nil {
		return nil
	}
	return []string{own.Listen.HTTP, own.Listen.Admin, own.Listen.Overlay}
}

// checkOrigins names the pages that wanted to read from the user's own node and
// may not: nothing but the console of their browser says it.
func checkOrigins(own *client.Status) Check {
	check := Check{Name: "pages", Status: CheckOK, Detail: "no node of this user is running"}
	if own == nil {
		return check
	}
	if check.Detail = "no page of another origin was refused lately"; len(own.RefusedOrigins) == 0 {
		return check
	}
	var origins, quoted []string
	for _, one := range own.RefusedOrigins {
		origins, quoted = append(origins, one.Origin), append(quoted, strconv.Quote(one.Origin))
	}
	check.Status, check.Detail = CheckWarn, "in the last hour, pages of these origins were not allowed to read from your node: "+strings.Join(origins, ", ")
	check.Next = "To allow them, add them to the configuration: [http] cors = [" + strings.Join(quoted, ", ") + "]. A reload applies it."
	return check
}

// checkPort tries to listen where the node would. What the user's own node has
// is as it should be.
func checkPort(ctx context.Context, name, addr, flag string, own []string) Check {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil && slices.Contains(own, addr) {
		return Check{Name: name, Status: CheckOK, Detail: addr + ": your own node listens there"}
	}
	if err != nil {
		return Check{Name: name, Status: CheckWarn, Detail: addr + " is taken: " + err.Error(),
			Next: "If the listener is not your own node, choose another address with " + flag + " (port 0 picks a free one)."}
	}
	_ = listener.Close()
	return Check{Name: name, Status: CheckOK, Detail: addr + " is free"}
}

// checkSocket reports whether a node of this user runs, or another user has its
// socket.
func checkSocket(ctx context.Context, name string) Check {
	conn, err := capability.DialLocal(ctx, name)
	switch fault.KindOf(err) {
	case fault.NotReady:
		return Check{Name: "socket", Status: CheckOK, Detail: "@" + name + " is free: no node of this user is running"}
	case fault.Forbidden:
		return Check{Name: "socket", Status: CheckFail, Detail: fault.DetailOf(err), Next: fault.NextOf(err)}
	}
	if err != nil {
		return Check{Name: "socket", Status: CheckWarn, Detail: err.Error(), Next: fault.NextOf(err)}
	}
	_ = conn.Close()
	return Check{Name: "socket", Status: CheckOK, Detail: "@" + name + ": a node of this user is running"}
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
			Next: "For a lasting peer ID, type: micronode identity new --out FILE, then run with --identity file:FILE."}
	}
	return Check{Name: "identity", Status: CheckOK, Detail: identity.PeerID()}
}

// checkMemory reports the limit, and whether the memory budgets fit into it.
func checkMemory(c Config, limit memoryLimit) Check {
	var all uint64
	for _, one := range memoryBudgets(&c, c.Facets) {
		if one.counts {
			all += one.bytes
		}
	}
	check := Check{Name: "memory", Status: CheckOK, Detail: fmt.Sprintf("the limit is %s; objects in memory may take %s, and all budgets together %s", limit, c.Store.RAMBytes, rounded(all))}
	if all > uint64(float64(limit.bytes)*memoryHigh) {
		check.Status, check.Next = CheckWarn, "Lower store.ram_bytes or the caches (`micronode config show --origin` shows them), or give the node more memory: it refuses objects before memory is used up."
	}
	return check
}

// diskRecommendedFree is how much free space a folder should have before a node
// starts.
const diskRecommendedFree = 256 << 20

// checkDisk checks the folder, or its parent if it does not exist.
func checkDisk(folder string) Check {
	check := Check{Name: "disk", Status: CheckOK}
	if folder == "" {
		check.Detail = "not used: without --persist DIR the node keeps everything in RAM"
		return check
	}
	there := folder
	info, err := os.Stat(there)
	if errors.Is(err, fs.ErrNotExist) {
		there = filepath.Dir(filepath.Clean(folder)) // the node makes the folder itself
		info, err = os.Stat(there)
	}
	room, failed := disk.FreeBytes(there)
	switch {
	case err != nil:
		check.Status, check.Detail, check.Next = CheckFail, "cannot create the folder "+folder+": "+err.Error(), "Choose a folder whose parent exists."
	case !info.IsDir():
		check.Status, check.Detail, check.Next = CheckFail, there+" is not a folder", "Choose another one."
	case disk.MayWrite(there) != nil:
		check.Status, check.Detail, check.Next = CheckFail, there+" cannot be written by this user", "Choose another folder, or give this user write permission."
	case failed != nil:
		check.Status, check.Detail, check.Next = CheckWarn, "the free space of "+there+" is unknown: "+failed.Error(), "Check it with df."
	case room < diskMinFree:
		check.Status, check.Detail, check.Next = CheckFail, "the disk of "+there+" is full", "Free space on it, or choose a folder on another disk."
	case room < diskRecommendedFree:
		check.Status, check.Detail, check.Next = CheckWarn, fmt.Sprintf("%s has %s of free space", there, rounded(room)), "Free more space on it, or choose a folder on another disk."
	default:
		check.Detail = fmt.Sprintf("%s has %s of free space", there, rounded(room))
	}
	return check
}

// rounded is a size in a readable form.
func rounded(bytes uint64) config.Size {
	unit := uint64(1 << 20)
	if bytes >= 1<<30 {
		unit = 1 << 30
	}
	return config.Size(bytes / unit * unit)
}
