//go:build gates

package gates

import (
	"bytes"
	"context"
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

// slaughterhouse is the micronode whose workers another process may kill, built
// once. Its name tells it from the one that people run.
var slaughterhouse = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(binary), "chaos", "micronode")
	out, err := exec.Command("go", "build", "-tags", "chaos", "-o", program, "micronode/cmd/micronode").CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: "go build -tags chaos: " + string(out), Err: err}
	}
	return program, nil
})

// What kills workers is in the program that is built for it, and in no other.
func TestNobodyKillsWorkersOfTheReleasedProgram(t *testing.T) {
	program, err := slaughterhouse()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{binary: false, program: true} {
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(code, []byte(").Decimate")) || bytes.Contains(code, []byte(").serveChaos")); has != want {
			t.Errorf("%s can kill workers: %t", filepath.Base(filepath.Dir(path)), has)
		}
	}
}

// The whole node is told to write to disk, in every way and everywhere: the
// kernel refuses. Without the confinement, the same attempts succeed.
func TestTheKernelRefusesToWrite(t *testing.T) {
	program, err := slaughterhouse()
	if err != nil {
		t.Fatal(err)
	}
	for enforce, want := range map[string]bool{"on": true, "off": false} {
		p := launch(t, program, nil, nil, append(everything, "MICRO_AMNESIA__ENFORCE="+enforce)...)
		if err := syscall.Kill(p.pid(), syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		awaitSo(t, p, "what came of it", func() bool { return strings.Contains(p.stderr.String(), "attempts=") })
		_, told, _ := strings.Cut(p.stderr.String(), "attempts=")
		told, _, _ = strings.Cut(told, "\n")
		t.Logf("amnesia.enforce=%s: attempts=%s", enforce, told)
		if refused := strings.HasSuffix(told, "err=<nil>"); refused != want {
			t.Errorf("amnesia.enforce=%s: all was refused: %t", enforce, refused)
		}
		p.stop(syscall.SIGTERM)
	}
}

// tide is what /readyz said while it was watched.
type tide struct {
	whole, degraded, down int // looks
	turns                 int // from whole to degraded and back
	reasons               map[string]bool
}

// watchReady asks /readyz again and again until ctx ends.
func (p *process) watchReady(ctx context.Context) (ended func() tide) {
	done := make(chan tide, 1)
	go func() {
		seen, was := tide{reasons: map[string]bool{}}, http.StatusOK
		for ctx.Err() == nil {
			status, body := p.ready()
			switch {
			case status == http.StatusOK:
				seen.whole++
			case strings.Contains(body, `"ready":true,"write_ready":true,"degraded":true`):
				seen.degraded++
				_, reason, _ := strings.Cut(body, `"reasons":[{"dep":"`)
				reason, _, _ = strings.Cut(reason, `"`)
				seen.reasons[reason] = true
			default:
				seen.down++
			}
			if status != was {
				seen.turns++
				was = status
			}
			time.Sleep(20 * time.Millisecond)
		}
		done <- seen
	}()
	return func() tide { return <-done }
}

// pools are those whose workers do one job after another.
var pools = []string{`"worker"`, `"edge worker"`, `"index worker"`, `"feed fan-out"`}

// sum is a metric over all pools.
func (p *process) sum(metric string) (sum float64) {
	for _, pool := range pools {
		sum += p.metric(metric, pool)
	}
	return sum
}

// losses is how many workers were killed, and how many of them left work behind
// that somebody else took up: a task that began, and is neither a worker of the
// beginning nor the successor of one.
func (p *process) losses(begun float64) (killed, inHand float64) {
	return p.metric("service_restarts_total", ""), p.sum("tasks_spawned_total") - begun - p.sum("service_restarts_total")
}

// A tenth of the workers of the whole node is killed every 250 ms, by another
// process, while everything is asked of it at a steady rate. Nobody notices:
// not one answer in a thousand is a failure, no wrong one is among them, the
// node says that it is degraded while it is below strength, and comes back.
func TestWorkersAreKilled(t *testing.T) {
	const every, beat = 25 * time.Millisecond, 250 * time.Millisecond
	span, forms := 10*time.Second, [][]string{nil}
	if long() {
		forms = [][]string{nil, {"MICRO_THREADS=1"}}
	}
	program, err := slaughterhouse()
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		t.Run(strings.Join(append([]string{"whole"}, form...), " "), func(t *testing.T) {
			w := newTown(t, program, nil, form...)
			w.settle(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			book := newLedger()
			begun := w.sum("tasks_spawned_total")
			group, watched := w.users(ctx, book, every), w.watchReady(ctx)
			time.Sleep(2 * beat) // of peace, before and after
			for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(beat) {
				if err := syscall.Kill(w.pid(), syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
			}
			last := time.Now()
			awaitSo(t, w.process, "the node to be whole again", func() bool { status, _ := w.ready(); return status == http.StatusOK })
			back := time.Since(last)
			time.Sleep(2 * beat)
			cancel()
			group.Wait()
			seen := watched()
			good, bad := book.total()
			killed, again := w.losses(begun)
			t.Logf("%.0f workers were killed, %.0f of them with work in hand; %d calls, %d of them failures %v; %d of the neighbour's letters heard of %d",
				killed, again, good+bad, bad, book.refusals, w.heard.Load(), book.did["gossip"])
			t.Logf("calls %v", book.did)
			t.Logf("/readyz: whole %d times, degraded %d times, %d turns, for %v; whole again after %s", seen.whole, seen.degraded, seen.turns, seen.reasons, back.Round(time.Millisecond))
			w.judge(book)
			if killed < 40 || again == 0 {
				t.Errorf("%.0f workers were killed, %.0f with work in hand: that says nothing", killed, again)
			}
			if bad*1000 > good+bad {
				t.Errorf("%d of %d calls failed: %v", bad, good+bad, book.refusals)
			}
			if seen.degraded == 0 || seen.whole == 0 || seen.turns < 2 || seen.down > 0 {
				t.Errorf("/readyz did not follow: %+v", seen)
			}
			w.stop(syscall.SIGTERM)
		})
	}
}
