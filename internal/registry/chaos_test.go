package registry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/disk"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
	"micronode/internal/testkit"
)

// A publisher that stalls does not block commits. What it loses is counted, and
// afterwards it goes on.
func TestAStalledPublisher(t *testing.T) {
	stalled, last := make(chan struct{}), atomic.Uint64{}
	h := startRegistry(t, func(s *Spec) {
		s.Announce = func(committed Committed) {
			<-stalled
			last.Store(committed.Version)
		}
	})
	h.initOne()
	live := h.subscribeSSE("0")
	h.grow(1024 + 200)
	if head := h.commitChange(putName("more", "1")); head.Version != 1224 {
		t.Errorf("the head is %d", head.Version)
	}
	close(stalled)
	testkit.WaitFor(t, "the last version is announced", func() bool { return last.Load() == 1224 })
	if lost := h.metricSum("bus_lagged_total", "consumer=publisher"); lost < 100 || lost > 201 {
		t.Errorf("%v were lost", lost)
	}
	heard, lagged := uint64(0), uint64(0) // a subscriber gets each version, or a lag
	for heard+lagged < 1224 {
		e, ok := live.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.event == "lagged" {
			var lag struct{ Missed uint64 }
			testkit.Must(t, json.Unmarshal([]byte(e.data), &lag))
			lagged += lag.Missed
			continue
		}
		heard++
		if version := e.updated(t); version != heard+lagged {
			t.Fatalf("told of %d after %d that were heard and %d that were missed", version, heard, lagged)
		}
	}
	if float64(lagged) < h.metricSum("bus_lagged_total", "consumer=publisher") {
		t.Errorf("%d were told as missed", lagged)
	}
}

// A thousand subscribers that never read cost some memory each, and do not delay
// commits. One of them that reconnects gets what it missed.
func TestAThousandFollowersThatDoNotRead(t *testing.T) {
	const followers = 1000
	published := atomic.Uint64{}
	h := startRegistry(t, func(s *Spec) { s.Announce = func(news Committed) { published.Store(news.Version) } })
	h.initOne()
	memory := testkit.WatchMemory()
	deaf := make([]net.Conn, followers)
	for i := range deaf {
		conn, err := deafDialer.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		testkit.Must(t, err)
		defer func() { _ = conn.Close() }() // whatever the server has done with it
		_, err = fmt.Fprintf(conn, "GET /registry/stream HTTP/1.1\r\nHost: %s\r\nLast-Event-ID: 0\r\n\r\n", conn.RemoteAddr())
		testkit.Must(t, err)
		deaf[i] = conn
	}
	testkit.WaitFor(t, "all followers have subscribed", func() bool { return h.subscriberCount() == followers })
	h.grow(1024 + 200)
	if n := h.metricSum("registry_updates_total", "result=committed"); n != 1223 {
		t.Errorf("%v commits", n)
	}
	if grown := memory.Grown(); grown > 256<<20 {
		t.Errorf("%d followers took %d MiB", followers, grown>>20)
	}
	testkit.WaitFor(t, "all versions are published", func() bool { return published.Load() == 1223 }) // a client that reads while they come misses none
	lines, last := bufio.NewScanner(deaf[0]), streamEvent{}
	testkit.Must(t, deaf[0].SetReadDeadline(time.Now().Add(5*time.Second))) // everything sent to it has arrived already
	for {
		e, ok := readEvent(lines)
		if !ok || e.event == "lagged" {
			break
		}
		last = e
	}
	if version := last.updated(t); version >= 1223 { // how many are in between depends on the kernel's buffers
		t.Fatalf("it was sent all %d versions, and did not read", version)
	}
	back := h.subscribeSSE("0") // as one that has missed more than is replayed
	if missed := back.expectLag(t); missed < 1000 {
		t.Errorf("it missed %d", missed)
	}
	back.expectVersions(t, 1223, 1223)
}

// deafDialer makes connections with the smallest receive buffer. It is set before
// they open: a window that was offered once is not taken back, and an open one holds
// hundreds of events.
var deafDialer = net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
	var narrowed error
	if err := raw.Control(func(fd uintptr) {
		narrowed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1)
	}); err != nil {
		return err
	}
	return narrowed
}}

// While the storage is slow the node is not ready for writes, and answers reads.
// When the queue is full, requests are rejected at once. When the storage is back,
// every waiting request is answered.
func TestSlowStorage(t *testing.T) {
	j := &faultyJournal{Journal: newRAMJournal()}
	h := startRegistry(t, withJournal(j), withConfig(func(c *Config) { c.Storage.Slow, c.Storage.Timeout = 10*time.Millisecond, time.Minute }))
	h.init()
	testkit.WaitFor(t, "everything is ready", func() bool { return h.readiness.Evaluate().Whole() })
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	release := j.blockWrites()
	var answers sync.WaitGroup
	var committed, conflicts, busy, others atomic.Int64
	commit := func() {
		answers.Go(func() {
			_, err := h.Registry.Commit(t.Context(), p.ProposalID)
			switch code := codeOf(err); code {
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
	testkit.WaitFor(t, "writes are not ready", func() bool { v := h.readiness.Evaluate(); return !v.WriteReady && v.Ready })
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
	testkit.WaitFor(t, "the queue refuses", func() bool { return busy.Load() == 600-512 })
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Busy")
	if n := h.metricSum("busy_rejections_total", "endpoint=commits"); n != 600-512+1 {
		t.Errorf("%v were counted as turned away", n)
	}
	release()
	answers.Wait()
	if committed.Load() != 1 || conflicts.Load() != 512 || others.Load() != 0 {
		t.Errorf("%d committed, %d conflicts, %d others", committed.Load(), conflicts.Load(), others.Load())
	}
	testkit.WaitFor(t, "everything is ready", func() bool { return h.readiness.Evaluate().Whole() })
}

// A write that takes longer than its timeout is aborted, and its outcome is read from
// the log.
func TestStorageThatTakesTooLong(t *testing.T) {
	j := &faultyJournal{Journal: newRAMJournal()}
	h := startRegistry(t, withJournal(j), withConfig(func(c *Config) { c.Storage.Timeout = 2 * time.Second }))
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	release := j.blockWrites()
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "Timeout")
	if v := h.readiness.Evaluate(); v.WriteReady || !v.Ready {
		t.Errorf("the verdict is %+v", v)
	}
	if h.metricSum("storage_backoff_total", "op=commit") != 1 || h.metricSum("io_timeouts_total", "op=commit") != 1 {
		t.Error("it was not counted")
	}
	release()
	testkit.WaitFor(t, "everything is ready", func() bool { return h.readiness.Evaluate().Whole() }) // storageHealth probes by itself
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
}

// failingDisk is a disk whose syncs fail from some moment on.
type failingDisk struct {
	disk.FS
	failing atomic.Bool
}

type failingFile struct {
	disk.File
	disk *failingDisk
}

func (d *failingDisk) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := d.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return failingFile{file, d}, nil
}

func (f failingFile) Sync() error {
	if f.disk.failing.Load() {
		return errors.New("input/output error")
	}
	return f.File.Sync()
}

// After a failed sync nothing is written any more, because it would be unknown
// whether it is durable. Reads go on, and the node says what to do.
func TestASyncThatFails(t *testing.T) {
	disk, folder := &failingDisk{FS: disk.OS()}, t.TempDir()
	kept, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk})
	testkit.Must(t, err)
	h := startRegistry(t, withJournal(kept))
	begun := h.init()
	h.commitChange(putName("docs", "1"))
	p := h.proposeApproved([]json.RawMessage{putName("docs", "2")}, alice, bob)
	disk.failing.Store(true)
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
	disk.failing.Store(false)
	for range 2 { // also after a probe
		v := h.readiness.Evaluate()
		at := slices.IndexFunc(v.Reasons, func(r observe.Reason) bool { return r.Dep == "registry/storage" })
		if v.WriteReady || !v.Ready || at < 0 || !strings.Contains(v.Reasons[at].Next, "restart") {
			t.Fatalf("the verdict is %+v", v)
		}
		h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
		h.probe(t.Context())
		h.health.update(0, 0)
	}
	var head client.RegistryHead
	if h.call("GET", "/registry/head", nil, &head, 200); head.Version != 1 {
		t.Errorf("the head is %d", head.Version)
	}
	h.call("GET", "/registry/0", nil, nil, 200)
	h.close()

	again := startRegistry(t, withJournal(openFiles(t, folder)))
	if head, _ := again.Head(); head.Version > 2 || head.Version < 1 {
		t.Errorf("after the restart the head is %d", head.Version)
	}
	again.commitChange(putName("more", "1"))
	again.close()
	if _, err := VerifyFolder(t.Context(), folder, Trust{Registry: &begun.Registry, Key: begun.Key}, nil); err != nil {
		t.Error(err)
	}
}

// The bytes of a torn write are counted when the log is opened.
func TestATornTailIsCounted(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	h.init()
	h.commitChange(putName("docs", "1"))
	h.close()
	testkit.Must(t, os.Remove(filepath.Join(folder, "checkpoints", fmt.Sprintf("%020d", 2)))) // a crash leaves none
	damageFile(t, folder, "segments", func(segment []byte) {
		end := len(segment) - 1
		for segment[end] == 0 {
			end--
		}
		clear(segment[end-200 : end+1]) // the end of the last record was not written
	})
	again := startRegistry(t, withJournal(openFiles(t, folder)))
	if head, _ := again.Head(); head.Version != 0 {
		t.Errorf("the head is %d", head.Version)
	}
	if again.metricSum("registry_torn_bytes_total") == 0 {
		t.Error("what was cut off was not counted")
	}
	again.commitChange(putName("docs", "1"))
}
