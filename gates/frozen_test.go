//go:build gates

package gates

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// freezableDisk is a file system on a device of its own that can be suspended.
type freezableDisk struct {
	t      *testing.T
	folder string
}

// newFreezableDisk mounts one, if this user may.
func newFreezableDisk(t *testing.T) *freezableDisk {
	t.Helper()
	if os.Getuid() != 0 {
		skipGate(t, "to mount and freeze a file system takes root: what a frozen disk does was not tried")
	}
	image, folder := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 128<<20); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, folder}} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			skipGate(t, "%v: %v %s: what a frozen disk does was not tried", line, err, out)
		}
	}
	f := &freezableDisk{t, folder}
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "-u", folder).Run()
		_ = exec.Command("umount", "-l", folder).Run()
	})
	return f
}

func (f *freezableDisk) fsfreeze(flag string) {
	f.t.Helper()
	if out, err := exec.Command("fsfreeze", flag, f.folder).CombinedOutput(); err != nil {
		f.t.Fatalf("fsfreeze %s: %v %s", flag, err, out)
	}
}

// With a disk that does not answer, every request is answered at its deadline;
// readiness reports that writes are not served, and why; what is in memory is
// served as before, and the queue of work rejects what exceeds its bound at
// once. When the disk is back, so is everything, by itself.
func TestFrozenDisk(t *testing.T) {
	disk := newFreezableDisk(t)
	p := startWith(t, nil, []string{"--persist", filepath.Join(disk.folder, "node")}, "MICRO_FACETS__GRAPH__ENABLED=true")
	small, doomed := p.put("small"), p.put("doomed")
	token := p.token("admin", "object:put", "object:rm", "name:set", "mbox:send", "graph:write")
	ask := func(method, path, body string, header ...string) (code string, took time.Duration) {
		r, _ := http.NewRequest(method, p.http+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		from := time.Now()
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err.Error(), time.Since(from)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode >= 400 {
			return problemCode(text), time.Since(from)
		}
		return answer.Status, time.Since(from)
	}
	disk.fsfreeze("-f")
	writes := func() (worst time.Duration, slowest string) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for _, one := range []struct {
			method, path, body string
			header             []string
			deadline           time.Duration
		}{
			{"PUT", "/names/frozen", fmt.Sprintf(`{"manifest":%q}`, small), []string{"Content-Type", "application/json"}, 2 * time.Second},
			{"DELETE", "/o/" + doomed.String(), "", nil, 2 * time.Second},
			{"POST", "/mbox/send", `{"box":"b","body":"aGk="}`, []string{"Content-Type", "application/json", "Idempotency-Key", "one"}, 2 * time.Second},
			{"PUT", "/graph/a/follows/b", "", nil, 2 * time.Second},
			{"POST", "/put", "small and frozen", nil, 2 * time.Second},
			{"POST", "/o", strings.Repeat("streamed", 64<<10), nil, 5 * time.Second},
		} {
			group.Go(func() {
				code, took := ask(one.method, one.path, one.body, one.header...)
				t.Logf("%s %s: %s after %s", one.method, one.path, code, took)
				mu.Lock()
				defer mu.Unlock()
				if late := took - one.deadline; late > worst {
					worst, slowest = late, one.method+" "+one.path
				}
			})
		}
		group.Wait()
		return worst, slowest
	}
	var notReadyAfter time.Duration
	retryMeasurement(t, func() error {
		var worst time.Duration
		var slowest string
		var attempt sync.WaitGroup
		defer attempt.Wait()
		attempt.Go(func() { worst, slowest = writes() })
		if notReadyAfter == 0 {
			notReadyAfter = p.awaitNotWriteReady("node/disk", 10*time.Second)
		}
		attempt.Wait()
		report(t, "frozen disk", "every write is answered within 100 ms of its deadline", fmt.Sprintf("at most %s after it", rounded(worst)))
		return checkBound(worst, maxOff, "%s after its deadline", slowest)
	})
	if stuck := p.metric("stuck_handlers", ""); stuck == 0 {
		t.Error("nothing is counted as stuck")
	}

	// Twice as many puts as the queue of work and its workers hold, from several
	// addresses.
	compareGets(t, "twice the queue `work`, on a frozen disk", clientFrom(t, "127.0.0.9", 1), p.http+"/o/"+small.String(), func() func() {
		return p.openFlood(600, func(i int) string {
			body := fmt.Sprintf("flood %d %d", i, time.Now().UnixNano())
			return fmt.Sprintf("POST /put HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
		})
	})
	if busy := p.metric("busy_rejections_total", `endpoint="work"`); busy == 0 {
		t.Error("the queue `work` was never full")
	}
	if now := p.readyz(); now.WriteReady || !now.hasReason("node/disk") {
		t.Errorf("/readyz while the disk is still frozen: %+v", now)
	}
	if dropped := p.metric("queue_dropped_total", `queue="work"`); dropped != 0 {
		t.Errorf("%v jobs were dropped", dropped)
	}

	disk.fsfreeze("-u")
	back := p.awaitWhole(20 * time.Second)
	report(t, "frozen disk: readiness", "not write-ready within 10s, whole again within 20s of the thaw",
		fmt.Sprintf("after %s, back after %s", rounded(notReadyAfter), rounded(back)))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		code, _ := ask("PUT", "/names/thawed", fmt.Sprintf(`{"manifest":%q}`, small), "Content-Type", "application/json")
		if code == "200 OK" && p.metric("stuck_handlers", "") == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the disk is back: %s, %v handlers are stuck", code, p.metric("stuck_handlers", ""))
		}
	}
	p.stop(syscall.SIGTERM)
}

// A hanging origin, and more than twice as many misses as the queue of the edge and
// its workers hold, from five addresses, at the defaults.
func TestTwiceTheFills(t *testing.T) {
	_, settings := newOrigin(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p := start(t, nil, settings...)
	host, _ := strings.CutPrefix(settings[len(settings)-1], "MICRO_EDGE__ALLOW=")
	small := p.put("small")
	round := 0
	compareGets(t, "twice the queue `work` of the edge, on a hanging origin", clientFrom(t, "127.0.0.9", 1), p.http+"/o/"+small.String(), func() func() {
		round++
		return p.openFlood(1100, func(i int) string {
			return fmt.Sprintf("GET /edge/assets/%s/%d-%d HTTP/1.1\r\nHost: localhost\r\n\r\n", host, round, i)
		})
	})
	// The share of the client, of the route or of the origin ends first; which one, and when, is not promised.
	refusals := p.metric("rejected_total", `reason="share"`) + p.metric("busy_rejections_total", "")
	for _, reason := range []string{"rate_limit", "busy", "breaker"} {
		refusals += p.metric("edge_rejects_total", `reason="`+reason+`"`)
	}
	if refusals == 0 {
		t.Error("nobody was told that it is too much")
	}
	if dropped := p.metric("queue_dropped_total", `queue="work"`); dropped != 0 {
		t.Errorf("%v jobs were dropped", dropped)
	}
	p.stop(syscall.SIGTERM)
}

// openFlood sends n requests at once, from five addresses, and returns when all
// are sent: the cost of connecting is not part of the measurement.
func (p *process) openFlood(n int, request func(i int) string) (end func()) {
	host := strings.TrimPrefix(p.http, "http://")
	var held []net.Conn
	for i := range n {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%5))}}
		conn, err := dialer.Dial("tcp", host)
		if err != nil {
			p.t.Fatal(err)
		}
		held = append(held, conn)
	}
	for i, conn := range held {
		_, _ = io.WriteString(conn, request(i))
	}
	time.Sleep(200 * time.Millisecond) // until the last of them is rejected or queued
	return func() {
		for _, conn := range held {
			conn.Close()
		}
	}
}
