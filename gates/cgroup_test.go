//go:build gates

package gates

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
)

// memoryCgroup is a control group with a limit on memory.
type memoryCgroup struct {
	folder     string
	eventsFile string // the file that counts kills
	peakFile   string // and the peak of the memory
}

// newMemoryCgroup makes one, of version 1 or 2, where this user may.
func newMemoryCgroup(t *testing.T, limit int64) *memoryCgroup {
	t.Helper()
	var why []string
	for _, version := range []struct{ mount, limit, killed, peak string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control", "memory.max_usage_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.events", "memory.peak"},
	} {
		folder := filepath.Join(version.mount, fmt.Sprintf("micronode-gates-%d-%d", os.Getpid(), serial.Add(1)))
		err := os.Mkdir(folder, 0o755)
		if err == nil {
			t.Cleanup(func() { removeCgroup(t, folder) })
			// The kernel makes the files; a folder without them is no group.
			var file *os.File
			if file, err = os.OpenFile(filepath.Join(folder, version.limit), os.O_WRONLY, 0); err == nil {
				_, err = fmt.Fprint(file, limit)
				file.Close()
			}
		}
		if err == nil {
			return &memoryCgroup{folder, filepath.Join(folder, version.killed), filepath.Join(folder, version.peak)}
		}
		why = append(why, err.Error())
	}
	skipGate(t, "no control group can be made here (%s): what a limit on memory does was not tried", strings.Join(why, "; "))
	return nil
}

// removeCgroup removes a group when its processes have ended.
func removeCgroup(t *testing.T, folder string) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := os.Remove(folder)
		if err == nil || time.Now().After(deadline) {
			if err != nil {
				t.Errorf("the control group stays: %v", err)
			}
			return
		}
	}
}

// wrapper is the command that runs a program in the group.
func (m *memoryCgroup) wrapper() []string {
	return []string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(m.folder, "cgroup.procs")}
}

// oomKills is how many processes of the group were killed for their memory.
func (m *memoryCgroup) oomKills(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile(m.eventsFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "oom_kill "); found {
			n, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return n
}

// peakMiB is the peak memory of the group, in MiB, if the kernel reports it.
func (m *memoryCgroup) peakMiB() string {
	text, err := os.ReadFile(m.peakFile)
	if err != nil {
		return "?"
	}
	bytes, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return fmt.Sprint(bytes >> 20)
}

// megabyte is the n-th of them, all different.
func megabyte(n int64) []byte {
	body := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(body)
	return body
}

// Twice the available memory is put into a node at its defaults. It is never
// killed for it; what does not fit is rejected, and what was stored is right.
func TestMemoryLimit(t *testing.T) {
	const limit, offered = 200_000_000, 400
	group := newMemoryCgroup(t, limit)
	p := start(t, group.wrapper())
	token := p.token("object:put", "object:rm")
	var mu sync.Mutex
	stored, refused := map[int64]b3.Address{}, map[string]int{}
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for n := next.Add(1); n <= offered; n = next.Add(1) {
				body := megabyte(n)
				status, code, text, err := doRequest(t.Context(), http.DefaultClient, http.MethodPost, p.http+"/put", token, body)
				mu.Lock()
				switch {
				case err != nil:
					t.Errorf("put %d: %v", n, err)
				case status < 300:
					stored[n] = b3.Of(body)
				case status == http.StatusInsufficientStorage && code == "StoreFull" || status == http.StatusServiceUnavailable && code == "Backpressure":
					refused[code]++
				default:
					t.Errorf("put %d: %d %s", n, status, text)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	p.awaitNotWriteReady("store/room", 5*time.Second)
	if counted := p.metric("store_refusals_total", ""); refused["StoreFull"] == 0 || int(counted) != refused["StoreFull"] {
		t.Errorf("%v refusals are counted, and there were %v", counted, refused)
	}
	for n, address := range stored {
		answer, body, err := fetch(p.http + "/o/" + address.String())
		if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(body, megabyte(n)) {
			t.Errorf("object %d: %v, %v, %d bytes", n, answer, err, len(body))
		}
	}
	if len(stored) == 0 {
		t.Error("nothing was stored")
	}
	for _, address := range stored { // to free memory
		if err := p.local().Delete(t.Context(), address); err != nil {
			t.Error(err)
		}
	}
	back := p.awaitWhole(10 * time.Second)
	if n := group.oomKills(t); n != 0 {
		t.Errorf("%d processes were killed for their memory", n)
	}
	report(t, "a limit of 200 MB on memory, 400 MiB of puts", "never killed; the rest refused with 507, and readiness says so; back within 10s of room",
		fmt.Sprintf("at most %s MiB used; %d kept and right, %v refused; back after %s", group.peakMiB(), len(stored), refused, rounded(back)))
	p.stop(syscall.SIGTERM)
}
