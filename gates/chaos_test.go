//go:build gates

package gates

import (
	"bytes"
	"context"
	"fmt"
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

// chaosBinary is the micronode whose workers another process may kill, built
// once. Its name distinguishes it from the released one.
var chaosBinary = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(binary), "chaos", "micronode")
	out, err := exec.Command("go", "build", "-tags", "chaos", "-o", program, "micronode/cmd/micronode").CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: "go build -tags chaos: " + string(out), Err: err}
	}
	return program, nil
})

// The code that kills workers is in the program that is built for it, and in no
// other.
func TestNobodyKillsWorkersOfTheReleasedProgram(t *testing.T) {
	reportGate(t)
	program, err := chaosBinary()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{binary: false, program: true} {
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(code, []byte(").KillTenth")) || bytes.Contains(code, []byte(").serveChaos")); has != want {
			t.Errorf("%s can kill workers: %t", filepath.Base(filepath.Dir(path)), has)
		}
	}
}

// The whole node tries to write to disk, in every way and everywhere: the
// kernel refuses. Without the confinement, the same attempts succeed.
func TestTheKernelRefusesToWrite(t *testing.T) {
	program, err := chaosBinary()
	if err != nil {
		t.Fatal(err)
	}
	for enforce, want := range map[string]bool{"on": true, "off": false} {
		p := launch(t, program, nil, nil, append(allFacets, "MICRO_AMNESIA__ENFORCE="+enforce)...)
		if err := syscall.Kill(p.pid(), syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		awaitCondition(t, p, "what came of it", func() bool { return strings.Contains(p.stderr.String(), "attempts=") })
		_, result, _ := strings.Cut(p.stderr.String(), "attempts=")
		result, _, _ = strings.Cut(result, "\n")
		t.Logf("amnesia.enforce=%s: attempts=%s", enforce, result)
		if refused := strings.HasSuffix(result, "err=<nil>"); refused != want {
			t.Errorf("amnesia.enforce=%s: all was refused: %t", enforce, refused)
		}
		p.stop(syscall.SIGTERM)
	}
}

// readinessHistory is the results of /readyz while it was watched.
type readinessHistory struct {
	ready, degraded, down int // polls
	transitions           int // from ready to degraded and back
	reasons               map[string]bool
}

// watchReady polls /readyz until ctx ends.
func (p *process) watchReady(ctx context.Context) (ended func() readinessHistory) {
	done := make(chan readinessHistory, 1)
	go func() {
		seen, was := readinessHistory{reasons: map[string]bool{}}, http.StatusOK
		for ctx.Err() == nil {
			status, body := p.ready()
			switch {
			case status == http.StatusOK:
				seen.ready++
			case strings.Contains(body, `"ready":true,"write_ready":true,"degraded":true`):
				seen.degraded++
				_, reason, _ := strings.Cut(body, `"reasons":[{"dep":"`)
				reason, _, _ = strings.Cut(reason, `"`)
				seen.reasons[reason] = true
			default:
				seen.down++
			}
			if status != was {
				seen.transitions++
				was = status
			}
			time.Sleep(20 * time.Millisecond)
		}
		done <- seen
	}()
	return func() readinessHistory { return <-done }
}

// pools are those whose workers do one job after another.
var pools = []string{`"worker"`, `"edge worker"`, `"index worker"`, `"feed fan-out"`}

// sumOverPools is a metric over all pools.
func (p *process) sumOverPools(metric string) (sum float64) {
	for _, pool := range pools {
		sum += p.metric(metric, pool)
	}
	return sum
}

// killedWorkers returns how many workers were killed, and how many of them left
// work that another worker resumed: a task that began, and is neither a worker
// of the beginning nor the successor of one.
func (p *process) killedWorkers(begun float64) (killed, inHand float64) {
	return p.metric("service_restarts_total", ""), p.sumOverPools("tasks_spawned_total") - begun - p.sumOverPools("service_restarts_total")
}

// A tenth of the workers of the whole node is killed every 250 ms, by another
// process, under a steady load on everything. Clients do not notice: less than
// one answer in a thousand is a failure, none is wrong, the node reports that
// it is degraded while workers are missing, and recovers.
func TestWorkersAreKilled(t *testing.T) {
	const every, beat = 25 * time.Millisecond, 250 * time.Millisecond
	span, variants := 10*time.Second, [][]string{nil}
	if isLong() {
		variants = [][]string{nil, {"MICRO_THREADS=1"}}
	}
	program, err := chaosBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, variant := range variants {
		t.Run(strings.Join(append([]string{"whole"}, variant...), " "), func(t *testing.T) {
			w := newFullNode(t, program, nil, variant...)
			w.prepare(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			book := newWorkLog()
			begun := w.sumOverPools("tasks_spawned_total")
			group, watched := w.runUsers(ctx, book, every), w.watchReady(ctx)
			time.Sleep(2 * beat) // of no kills, before and after
			for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(beat) {
				if err := syscall.Kill(w.pid(), syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
			}
			last := time.Now()
			awaitCondition(t, w.process, "the node to be whole again", func() bool { status, _ := w.ready(); return status == http.StatusOK })
			back := time.Since(last)
			time.Sleep(2 * beat)
			cancel()
			group.Wait()
			seen := watched()
			good, bad := book.total()
			killed, again := w.killedWorkers(begun)
			t.Logf("%.0f workers were killed, %.0f of them with work in hand; %d calls, %d of them failures %v; %d of the neighbour's messages received of %d",
				killed, again, good+bad, bad, book.refusals, w.received.Load(), book.completed["gossip"])
			t.Logf("calls %v", book.completed)
			t.Logf("/readyz: whole %d times, degraded %d times, %d turns, for %v; whole again after %s", seen.ready, seen.degraded, seen.transitions, seen.reasons, back.Round(time.Millisecond))
			report(t, "a tenth of the workers killed every 250 ms", "≤ 0.1 % failures, /readyz degraded and back",
				fmt.Sprintf("%d of %d calls failed, %.0f killed, degraded %d times, back after %s", bad, good+bad, killed, seen.degraded, rounded(back)))
			w.check(book)
			if killed < 40 || again == 0 {
				t.Errorf("%.0f workers were killed, %.0f with work in hand: that says nothing", killed, again)
			}
			if bad*1000 > good+bad {
				t.Errorf("%d of %d calls failed: %v", bad, good+bad, book.refusals)
			}
			if seen.degraded == 0 || seen.ready == 0 || seen.transitions < 2 || seen.down > 0 {
				t.Errorf("/readyz did not follow: %+v", seen)
			}
			w.stop(syscall.SIGTERM)
		})
	}
}
