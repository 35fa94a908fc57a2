//go:build gates

package gates

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Reads from a disk that does not answer are answered at their deadline, by the
// fast path too; readiness says so, and what can be read is served. The disk is
// a file that is a pipe to nobody: opening it waits in the kernel.
func TestReadsOnAHangingDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	p := startWith(t, nil, []string{"--persist", folder})
	doomed, well := p.put("this object hangs"), p.put("this object is well")
	p.stop(syscall.SIGTERM)
	p = startWith(t, nil, []string{"--persist", folder}) // nothing of it is open any more
	path := ""
	_ = filepath.WalkDir(folder, func(at string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(at), strings.TrimPrefix(doomed.String(), "b3:")[2:10]) {
			path = at
		}
		return nil
	})
	if path == "" {
		t.Fatal("the file of the object was not found")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	const callers, deadline = 8, 5 * time.Second
	var group sync.WaitGroup
	var worst time.Duration
	var mu sync.Mutex
	for range callers {
		group.Go(func() {
			from := time.Now()
			web := clientFrom(t, "127.0.0.2", 1)
			code := send(t.Context(), web, http.MethodGet, p.http+"/o/"+doomed.String(), "", "")
			took := time.Since(from)
			mu.Lock()
			defer mu.Unlock()
			if worst = max(worst, took); code != "Timeout" {
				t.Errorf("%s after %s", code, took)
			}
		})
	}
	group.Wait()
	if worst > deadline+10*time.Second {
		t.Errorf("a read that hangs was answered after %s", worst)
	}
	told := false
	for range 40 {
		if told = p.readyz().hasReason("node/overdue requests"); told {
			break
		}
		time.Sleep(250 * time.Millisecond)
	}
	if !told {
		t.Errorf("readiness does not say that reads hang: %+v", p.readyz())
	}
	if answer, body, err := fetch(p.http + "/o/" + well.String()); err != nil || answer.StatusCode != http.StatusOK || string(body) != "this object is well" {
		t.Errorf("another object: %v, %v", answer, err)
	}
	release, err := os.OpenFile(path, os.O_WRONLY, 0) // everything that waits to open it goes on
	if err != nil {
		t.Fatal(err)
	}
	release.Close()
	if err := p.local().Delete(t.Context(), doomed); err != nil { // its file was replaced, so it is told as damaged until it is removed
		t.Error(err)
	}
	back := p.awaitWhole(30 * time.Second)
	report(t, "reads on a disk that hangs", "504 at the deadline; readiness says so; whole again when it answers",
		"at most "+rounded(worst).String()+"; back after "+rounded(back).String())
	p.stop(syscall.SIGTERM)
}
