package registry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/disk"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
)

// A publisher that stalls does not keep anybody from committing. What it loses
// is counted, and afterwards it goes on.
func TestAStalledPublisher(t *testing.T) {
	stalled, last := make(chan struct{}), atomic.Uint64{}
	h := open(t, func(s *Spec) {
		s.Announce = func(news Committed) {
			<-stalled
			last.Store(news.Head.Version)
		}
	})
	h.initOne()
	live := h.listen("0")
	h.grow(1024 + 200)
	if head := h.change(name("more", "1")); head.Version != 1224 {
		t.Errorf("the head is %d", head.Version)
	}
	close(stalled)
	waitFor(t, func() bool { return last.Load() == 1224 })
	if lost := h.count("bus_lagged_total", "consumer=publisher"); lost < 100 || lost > 201 {
		t.Errorf("%v were lost", lost)
	}
	heard, lagged := uint64(0), uint64(0) // whoever follows hears of each, or that it was missed
	for heard+lagged < 1224 {
		e, ok := live.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.event == "lagged" {
			var lag struct{ Missed uint64 }
			must(t, json.Unmarshal([]byte(e.data), &lag))
			lagged += lag.Missed
			continue
		}
		heard++
		if version := e.updated(t); version != heard+lagged {
			t.Fatalf("told of %d after %d that were heard and %d that were missed", version, heard, lagged)
		}
	}
	if float64(lagged) < h.count("bus_lagged_total", "consumer=publisher") {
		t.Errorf("%d were told as missed", lagged)
	}
}

// A thousand followers that never read cost some memory each, and nobody's
// commit. One of them that comes back is told what it missed.
func TestAThousandFollowersThatDoNotRead(t *testing.T) {
	const followers = 1000
	h := open(t)
	h.initOne()
	before := heap()
	deaf := make([]net.Conn, followers)
	for i := range deaf {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		must(t, err)
		defer func() { _ = conn.Close() }() // whatever the server has done with it
		_ = conn.(*net.TCPConn).SetReadBuffer(1)
		_, err = fmt.Fprintf(conn, "GET /registry/stream HTTP/1.1\r\nHost: %s\r\nLast-Event-ID: 0\r\n\r\n", conn.RemoteAddr())
		must(t, err)
		deaf[i] = conn
	}
	waitFor(t, func() bool { return h.followers() == followers })
	h.grow(1024 + 200)
	if n := h.count("registry_updates_total", "result=committed"); n != 1223 {
		t.Errorf("%v commits", n)
	}
	if now := heap(); now > before+256<<20 {
		t.Errorf("%d followers took %d MiB", followers, (now-before)>>20)
	}
	lines, last := bufio.NewScanner(deaf[0]), told{}
	must(t, deaf[0].SetReadDeadline(time.Now().Add(5*time.Second))) // all that it has is here already
	for {
		e, ok := readEvent(lines)
		if !ok || e.event == "lagged" {
			break
		}
		last = e
	}
	if version := last.updated(t); version > 200 {
		t.Fatalf("it was sent %d versions that it did not read", version)
	}
	back := h.listen(last.id)
	if missed := back.lagged(t); missed < 1000 {
		t.Errorf("it missed %d", missed)
	}
	back.want(t, 1223, 1223)
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// While the storage is slow the node says that it takes no writes, and answers
// reads. Who comes when the queue is full is turned away at once. When the
// storage is back, everybody who waited is answered.
func TestSlowStorage(t *testing.T) {
	j := &fickle{Journal: inMemory()}
	h := open(t, on(j), with(func(c *Config) { c.Storage.Slow, c.Storage.Timeout = 10*time.Millisecond, time.Minute }))
	h.init()
	waitFor(t, func() bool { return h.readiness.Evaluate().Whole() })
	p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
	release := j.hold()
	var answers sync.WaitGroup
	var committed, conflicts, busy, others atomic.Int64
	commit := func() {
		answers.Go(func() {
			_, err := h.Registry.Commit(t.Context(), p.ProposalID)
			switch code := kindName(err); code {
			case "":
				committed.Add(1)
			case "Conflict":
				conflicts.Add(1)
			case "Busy":
				busy.Add(1)
			default:
				others.Add(1)
			}
		})
	}
	commit()
	waitFor(t, func() bool { v := h.readiness.Evaluate(); return !v.WriteReady && v.Ready })
	verdict := h.readiness.Evaluate()
	if !slices.ContainsFunc(verdict.Reasons, func(r observe.Reason) bool { return r.Dep == "registry/storage" && r.Next != "" }) {
		t.Errorf("the reasons are %+v", verdict.Reasons)
	}
	h.call("GET", "/registry/head", nil, nil, 200)
	h.call("GET", "/registry/0", nil, nil, 200)
	h.call("GET", "/registry/bundle/0", nil, nil, 200)
	for range 600 {
		commit()
	}
	waitFor(t, func() bool { return busy.Load() == 600-512 })
	h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Busy")
	if n := h.count("busy_rejections_total", "endpoint=commits"); n != 600-512+1 {
		t.Errorf("%v were counted as turned away", n)
	}
	release()
	answers.Wait()
	if committed.Load() != 1 || conflicts.Load() != 512 || others.Load() != 0 {
		t.Errorf("%d committed, %d conflicts, %d others", committed.Load(), conflicts.Load(), others.Load())
	}
	waitFor(t, func() bool { return h.readiness.Evaluate().Whole() })
}

// A storage that takes longer than it may is given up for this commit, and what
// became of it is found out.
func TestStorageThatTakesTooLong(t *testing.T) {
	j := &fickle{Journal: inMemory()}
	h := open(t, on(j), with(func(c *Config) { c.Storage.Timeout = 2 * time.Second }))
	h.init()
	p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
	release := j.hold()
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "Timeout")
	if v := h.readiness.Evaluate(); v.WriteReady || !v.Ready {
		t.Errorf("the verdict is %+v", v)
	}
	if h.count("storage_backoff_total", "op=commit") != 1 || h.count("io_timeouts_total", "op=commit") != 1 {
		t.Error("it was not counted")
	}
	release()
	waitFor(t, func() bool { return h.readiness.Evaluate().Whole() }) // the gate asks by itself
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
}

// tiredDisk is a disk whose syncs fail from some moment on.
type tiredDisk struct {
	disk.FS
	tired atomic.Bool
}

type tiredFile struct {
	disk.File
	disk *tiredDisk
}

func (d *tiredDisk) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := d.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return tiredFile{file, d}, nil
}

func (f tiredFile) Sync() error {
	if f.disk.tired.Load() {
		return errors.New("input/output error")
	}
	return f.File.Sync()
}

// After a sync has failed nothing is written any more, because nobody could
// know whether it is kept. Reads go on, and the node says what to do.
func TestASyncThatFails(t *testing.T) {
	disk, folder := &tiredDisk{FS: disk.Real()}, t.TempDir()
	kept, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk})
	must(t, err)
	h := open(t, on(kept))
	begun := h.init()
	h.change(name("docs", "1"))
	p := h.proposed([]json.RawMessage{name("docs", "2")}, alice, bob)
	disk.tired.Store(true)
	h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
	disk.tired.Store(false)
	for range 2 { // also after the gate has asked
		v := h.readiness.Evaluate()
		at := slices.IndexFunc(v.Reasons, func(r observe.Reason) bool { return r.Dep == "registry/storage" })
		if v.WriteReady || !v.Ready || at < 0 || !strings.Contains(v.Reasons[at].Next, "restart") {
			t.Fatalf("the verdict is %+v", v)
		}
		h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
		h.probe(t.Context())
		h.gate.tell(0)
	}
	var head client.RegistryHead
	if h.call("GET", "/registry/head", nil, &head, 200); head.Version != 1 {
		t.Errorf("the head is %d", head.Version)
	}
	h.call("GET", "/registry/0", nil, nil, 200)
	h.close()

	again := open(t, on(files(t, folder)))
	if head, _ := again.Head(); head.Version > 2 || head.Version < 1 {
		t.Errorf("after the restart the head is %d", head.Version)
	}
	again.change(name("more", "1"))
	again.close()
	if _, err := VerifyFolder(t.Context(), folder, Trust{Registry: &begun.Registry, Key: begun.Key}, nil); err != nil {
		t.Error(err)
	}
}

// What a crash has torn off is counted when the log is opened.
func TestATornTailIsCounted(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)))
	h.init()
	h.change(name("docs", "1"))
	h.close()
	must(t, os.Remove(filepath.Join(folder, "checkpoints", fmt.Sprintf("%020d", 2)))) // a crash leaves none
	damage(t, folder, "segments", func(segment []byte) {
		end := len(segment) - 1
		for segment[end] == 0 {
			end--
		}
		clear(segment[end-200 : end+1]) // the end of the last record was not written
	})
	again := open(t, on(files(t, folder)))
	if head, _ := again.Head(); head.Version != 0 {
		t.Errorf("the head is %d", head.Version)
	}
	if again.count("registry_torn_bytes_total") == 0 {
		t.Error("what was cut off was not counted")
	}
	again.change(name("docs", "1"))
}
