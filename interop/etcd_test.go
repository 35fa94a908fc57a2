package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"micronode/fault"
	"micronode/internal/registry/etcd"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/journal/journaltest"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tampertest"
)

// TestEtcd tests the journal on etcd with etcd itself: members that are
// processes of their own, on this machine.
func TestEtcd(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "etcdserver")
	if out, err := exec.Command("go", "build", "-o", binary, "./etcdserver").CombinedOutput(); err != nil {
		t.Fatalf("go build ./etcdserver: %v\n%s", err, out)
	}
	for name, test := range map[string]func(t *testing.T, binary string){
		"conformance":               etcdConformance,
		"tampering":                 etcdTampering,
		"two writers":               etcdRace,
		"members killed and paused": etcdDisturbed,
		"the quorum is killed":      etcdQuorumKilled,
		"the quorum is paused":      etcdQuorumPaused,
		"paused":                    etcdPaused,
		"full":                      etcdFull,
		"changes are heard of":      etcdChanged,
		"a password":                etcdPassword,
		"certificates":              etcdCertificates,
		"the largest of everything": etcdLargest,
	} {
		t.Run(name, func(t *testing.T) { test(t, binary) })
	}
}

// etcdMember is a child process that is one member of a cluster.
type etcdMember struct {
	binary        string
	flags         []string
	client        string // host:port
	serverProcess        // for its process
}

// etcdCluster is all members.
type etcdCluster struct {
	scheme  string
	members []*etcdMember
}

// startCluster runs so many members and waits until all of them are ready.
func startCluster(t *testing.T, binary string, n int, flags ...string) *etcdCluster {
	t.Helper()
	c := &etcdCluster{scheme: "http"}
	if strings.Contains(strings.Join(flags, " "), "-cert") {
		c.scheme = "https"
	}
	ports := freePorts(t, 2*n)
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("m%d=http://%s", i, ports[n+i]))
	}
	for i := range n {
		m := &etcdMember{binary: binary, client: ports[i]}
		m.flags = append([]string{
			"-name", fmt.Sprint("m", i), "-folder", t.TempDir(), "-client", c.scheme + "://" + ports[i],
			"-peer", "http://" + ports[n+i], "-cluster", strings.Join(all, ","),
		}, flags...)
		c.members = append(c.members, m)
	}
	var starting sync.WaitGroup
	for _, m := range c.members {
		starting.Go(func() { m.run(t) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
		}
	})
	return c
}

// givenPorts are those that freePorts has returned.
var givenPorts sync.Map

// freePorts finds ports that are free at the moment. The server listens by
// itself, and again after it was killed, so they are closed. They are below the
// ephemeral ports: one of those could be assigned to the next connection that
// any process opens while the server is down. No port is given twice.
func freePorts(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for tries := 0; len(addresses) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			if tries < 100 {
				continue
			}
			t.Fatal(err)
		}
		defer l.Close()
		if _, again := givenPorts.LoadOrStore(l.Addr().String(), true); !again {
			addresses = append(addresses, l.Addr().String())
		}
	}
	return addresses
}

// run starts the member and waits until it is ready, for which a majority must
// be running.
func (m *etcdMember) run(t *testing.T) {
	ready := m.startAsync(t)
	if !<-ready {
		t.Errorf("the etcd server ended before it was ready: %v", m.process.ProcessState)
	}
}

// startAsync starts the member. The channel returns whether it became ready.
func (m *etcdMember) startAsync(t *testing.T) <-chan bool {
	m.process = exec.Command(m.binary, m.flags...)
	out, err := m.process.StdoutPipe()
	if err == nil {
		err = m.process.Start()
	}
	if err != nil {
		t.Error(err)
	}
	ready := make(chan bool, 1)
	go func() { ready <- bufio.NewScanner(out).Scan() }()
	return ready
}

// url is the URL of a journal under a name on the cluster, or only on some
// members.
func (c *etcdCluster) url(name string, members ...*etcdMember) string {
	if len(members) == 0 {
		members = c.members
	}
	var hosts []string
	for _, m := range members {
		hosts = append(hosts, m.client)
	}
	return "etcd+" + c.scheme + "://" + strings.Join(hosts, ",") + "/test/" + name
}

func openJournal(t testing.TB, spec etcd.Spec) *etcd.Journal {
	t.Helper()
	j, err := etcd.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// newClient makes a client of etcd's own, to inspect the cluster beside the
// journal.
func (c *etcdCluster) newClient(t *testing.T) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, c.scheme+"://"+m.client)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// leader finds the member that leads, and the others.
func (c *etcdCluster) leader(t *testing.T) (leader *etcdMember, others []*etcdMember) {
	t.Helper()
	client := c.newClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for leader == nil && ctx.Err() == nil {
		others = nil
		for _, m := range c.members {
			one, stop := context.WithTimeout(ctx, time.Second)
			status, err := client.Status(one, "http://"+m.client)
			stop()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = m
			} else {
				others = append(others, m)
			}
		}
	}
	if leader == nil {
		t.Fatal("nobody leads")
	}
	return leader, others
}

// newRecord makes a record that names its predecessor, so that a broken chain can
// be seen.
func newRecord(prev *ledger.Head, who string) ledger.Record {
	r := ledger.Record{Payload: []byte(`{"ops":[]}`), Preconditions: []byte(`[]`)}
	before := ""
	if prev != nil {
		r.Version, before = prev.Version+1, prev.Hash.String()
	}
	r.Header = fmt.Appendf(nil, `{"prev":%q,"version":%d,"who":%q}`, before, r.Version, who)
	return r
}

// journalWriter appends records as a committer does: after a mismatch it reads the
// head, and after an error that leaves the outcome open it does so too.
type journalWriter struct {
	journal *etcd.Journal
	name    string
	head    *ledger.Head

	serial    int
	acked     map[uint64]ledger.Head // what Append acknowledged
	ambiguous map[ledger.Head]bool   // what it did not, and may have written

	ackedCount atomic.Int64 // of what was acknowledged
}

func newWriter(j *etcd.Journal, name string) *journalWriter {
	return &journalWriter{journal: j, name: name, acked: map[uint64]ledger.Head{}, ambiguous: map[ledger.Head]bool{}}
}

// appendOne tries to append one record, in a few seconds.
func (w *journalWriter) appendOne(t *testing.T) {
	ctx, end := withDeadline(t, 5*time.Second)
	defer end(w.name + " appends")
	w.serial++
	r := newRecord(w.head, fmt.Sprint(w.name, " ", w.serial))
	err := w.journal.Append(ctx, w.head, []ledger.Record{r})
	head := r.Head()
	switch fault.KindOf(err) {
	case fault.KindOf(nil):
		w.acked[r.Version], w.head = head, &head
		w.ackedCount.Add(1)
		return
	case fault.ChainMismatch:
	case fault.Timeout, fault.StorageBusy:
		w.ambiguous[head] = true
	default:
		t.Errorf("%s: %v", w.name, err)
		time.Sleep(100 * time.Millisecond)
	}
	w.readHead(t)
}

func (w *journalWriter) readHead(t *testing.T) {
	ctx, end := withDeadline(t, 5*time.Second)
	defer end(w.name + " reads the head")
	switch head, err := w.journal.Head(ctx); fault.KindOf(err) {
	case fault.KindOf(nil):
		w.head = &head
	case fault.NotFound:
		w.head = nil
	case fault.Timeout, fault.StorageBusy:
	default:
		t.Errorf("%s: %v", w.name, err)
	}
}

// checkLog reads the whole log and compares it with what the writers know: it
// is a chain, everything that was acknowledged is in it, and nothing else is
// but unknown outcomes.
func checkLog(t *testing.T, j *etcd.Journal, writers ...*journalWriter) (log []ledger.Record) {
	t.Helper()
	var prev *ledger.Head
	open := 0
	err := j.Scan(t.Context(), 0, func(r ledger.Record) error {
		head, before := r.Head(), ""
		if prev != nil {
			before = prev.Hash.String()
		}
		if r.Version != uint64(len(log)) || !bytes.HasPrefix(r.Header, fmt.Appendf(nil, `{"prev":%q,"version":%d,`, before, len(log))) {
			t.Errorf("record %d does not follow the one before: %s", len(log), r.Header)
		}
		owners := 0
		for _, w := range writers {
			if acked, ok := w.acked[r.Version]; ok {
				owners++
				if acked != head {
					t.Errorf("version %d was acknowledged to %s, and another one is there: %s", r.Version, w.name, r.Header)
				}
			}
			if w.ambiguous[head] {
				open++
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("version %d has %d owners", r.Version, owners)
		}
		log, prev = append(log, r), &head
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	acked := 0
	for _, w := range writers {
		acked += len(w.acked)
	}
	if acked+open != len(log) {
		t.Errorf("%d versions: %d were acknowledged, %d of unknown outcome were kept", len(log), acked, open)
	}
	if head, err := j.Head(t.Context()); err != nil || prev == nil || head != *prev {
		t.Errorf("the head is %+v, %v", head, err)
	}
	t.Logf("%d versions: %d acknowledged, %d of unknown outcome kept", len(log), acked, open)
	return log
}

// etcdConformance runs the suite that every journal has to pass, with a prefix
// for each check.
func etcdConformance(t *testing.T, binary string) {
	c := startCluster(t, binary, 1)
	var checks atomic.Int64
	journaltest.Run(t, func(t *testing.T) journaltest.Opened {
		spec := etcd.Spec{URL: c.url(fmt.Sprint("check-", checks.Add(1)))}
		again := func(t *testing.T) journal.Journal { return openJournal(t, spec) }
		return journaltest.Opened{Journal: again(t), Reopen: again, Another: again}
	}, journaltest.Options{Durable: true, Shared: true})
}

// etcdTampering changes logs in every way that is possible with write access to
// the prefix.
func etcdTampering(t *testing.T, binary string) {
	c := startCluster(t, binary, 1)
	var logs atomic.Int64
	tampertest.Run(t, func(t *testing.T) tampertest.Storage {
		spec := etcd.Spec{URL: c.url(fmt.Sprint("log-", logs.Add(1)))}
		again := func() journal.Journal { return openJournal(t, spec) }
		return tampertest.Storage{Journal: again(), Reopen: again}
	})
}

// etcdRace has two writers on one log, each as fast as it can.
func etcdRace(t *testing.T, binary string) {
	c := startCluster(t, binary, 1)
	spec := etcd.Spec{URL: c.url("race")}
	writers := []*journalWriter{newWriter(openJournal(t, spec), "one"), newWriter(openJournal(t, spec), "two")}
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() {
			for w.ackedCount.Load() < 200 && !t.Failed() {
				w.appendOne(t)
			}
		})
	}
	all.Wait()
	if log := checkLog(t, writers[0].journal, writers...); len(log) != 400 {
		t.Errorf("%d versions, want 400", len(log))
	}
}

// etcdDisturbed kills the leader and starts it again, and pauses the next one
// and resumes it, while two writers commit.
func etcdDisturbed(t *testing.T, binary string) {
	c := startCluster(t, binary, 3)
	spec := etcd.Spec{URL: c.url("disturbed")}
	writers := []*journalWriter{newWriter(openJournal(t, spec), "one"), newWriter(openJournal(t, spec), "two")}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				w.appendOne(t)
			}
		})
	}
	count := func() int64 { return writers[0].ackedCount.Load() + writers[1].ackedCount.Load() }
	expectProgress := func(when string) {
		t.Helper()
		began, before := time.Now(), count()
		for count() < before+50 {
			if time.Since(began) > time.Minute || t.Failed() {
				t.Errorf("%s: %d commits in %v", when, count()-before, time.Since(began))
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%s: 50 commits in %v", when, time.Since(began).Round(time.Millisecond))
	}
	expectProgress("with all members")
	killed, _ := c.leader(t)
	killed.kill()
	expectProgress("after the leader was killed")
	back := killed.startAsync(t)
	expectProgress("while it starts again")
	if !<-back {
		t.Error("the member that was killed does not start again")
	}
	paused, _ := c.leader(t)
	paused.pause(t)
	expectProgress("while the leader is paused")
	expectProgress("while it is still paused")
	paused.signal(t, syscall.SIGCONT)
	expectProgress("after it went on")
	_, others := c.leader(t)
	others[0].pause(t)
	expectProgress("while another one is paused")
	others[0].signal(t, syscall.SIGCONT)
	stop()
	all.Wait()

	log := checkLog(t, writers[0].journal, writers...)
	for _, m := range c.members {
		seen := 0
		look := func(r ledger.Record) error {
			if seen < len(log) && !bytes.Equal(r.Header, log[seen].Header) {
				t.Errorf("%s has another version %d", m.client, r.Version)
			}
			seen++
			return nil
		}
		j := openJournal(t, etcd.Spec{URL: c.url("disturbed", m)})
		err := j.Scan(t.Context(), 0, look)
		for limit := time.Now().Add(time.Minute); fault.KindOf(err) == fault.Timeout && time.Now().Before(limit); { // it has just restarted
			seen = 0
			err = j.Scan(t.Context(), 0, look)
		}
		if err != nil || seen != len(log) {
			t.Errorf("%s has %d versions, want %d: %v", m.client, seen, len(log), err)
		}
	}
}

// etcdQuorumKilled kills two of three.
func etcdQuorumKilled(t *testing.T, binary string) {
	c := startCluster(t, binary, 3)
	_, others := c.leader(t)
	withoutQuorum(t, c, func() {
		for _, m := range others {
			m.kill()
		}
	}, func() {
		var ready []<-chan bool
		for _, m := range others {
			ready = append(ready, m.startAsync(t))
		}
		for _, back := range ready {
			if !<-back {
				t.Error("a member that was killed does not start again")
			}
		}
	})
}

// etcdQuorumPaused pauses the two followers, so that the leader accepts a
// commit whose outcome is unknown.
func etcdQuorumPaused(t *testing.T, binary string) {
	c := startCluster(t, binary, 3)
	_, others := c.leader(t)
	withoutQuorum(t, c, func() {
		for _, m := range others {
			m.pause(t)
		}
	}, func() {
		for _, m := range others {
			m.signal(t, syscall.SIGCONT)
		}
	})
}

// withoutQuorum appends while the quorum is lost, and reads the outcome when it
// is back.
func withoutQuorum(t *testing.T, c *etcdCluster, lose, restore func()) {
	w := newWriter(openJournal(t, etcd.Spec{URL: c.url("quorum"), Timeout: 2 * time.Second}), "writer")
	for limit := time.Now().Add(time.Minute); len(w.acked) < 10; w.appendOne(t) {
		if time.Now().After(limit) {
			t.Fatalf("%d commits in a minute", len(w.acked))
		}
	}
	expect := w.head
	lose()
	for range 3 {
		ctx, end := withDeadline(t, time.Second)
		r := newRecord(expect, fmt.Sprint("open ", len(w.ambiguous)))
		err := w.journal.Append(ctx, expect, []ledger.Record{r})
		end("append without a quorum")
		if k := fault.KindOf(err); k != fault.Timeout && k != fault.StorageBusy {
			t.Errorf("append without a quorum: %v", err)
		}
		w.ambiguous[r.Head()] = true
		ctx, end = withDeadline(t, time.Second)
		_, err = w.journal.Head(ctx)
		end("head without a quorum")
		if k := fault.KindOf(err); k != fault.Timeout && k != fault.StorageBusy {
			t.Errorf("the head was read without a quorum: %v", err)
		}
	}
	restore()
	limit := time.Now().Add(time.Minute)
	for before := len(w.acked); len(w.acked) < before+10; w.appendOne(t) {
		if time.Now().After(limit) {
			t.Fatal("the quorum is back, and commits do not go on")
		}
	}
	log := checkLog(t, w.journal, w)
	if r := log[10]; !w.ambiguous[r.Head()] && w.acked[10] != r.Head() {
		t.Errorf("version 10 is nobody's: %s", r.Header)
	}
}

// expectNoLeaks demands that no goroutines are left but others. Those that were
// cancelled may take a moment.
func expectNoLeaks(t *testing.T, others goleak.Option) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); goleak.Find(others) != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	goleak.VerifyNone(t, others)
}

// etcdPaused stops the only member without closing its connections.
func etcdPaused(t *testing.T, binary string) {
	c := startCluster(t, binary, 1)
	others := goleak.IgnoreCurrent()
	w := newWriter(openJournal(t, etcd.Spec{URL: c.url("paused")}), "writer")
	w.appendOne(t)
	j := w.journal
	c.members[0].pause(t)
	for what, do := range map[string]func(ctx context.Context) error{
		"head": func(ctx context.Context) error { _, err := j.Head(ctx); return err },
		"read": func(ctx context.Context) error { _, err := j.Read(ctx, 0); return err },
		"append": func(ctx context.Context) error {
			return j.Append(ctx, w.head, []ledger.Record{newRecord(w.head, "paused")})
		},
		"scan":      func(ctx context.Context) error { return j.Scan(ctx, 0, func(ledger.Record) error { return nil }) },
		"save tile": func(ctx context.Context) error { return j.SaveTile(ctx, journal.TileID{}, []byte("x")) },
		"changed":   func(ctx context.Context) error { return j.Changed(ctx, w.head) },
	} {
		ctx, end := withDeadline(t, 500*time.Millisecond)
		expectKind(t, do(ctx), what+" while etcd is paused", fault.Timeout)
		end(what)
	}
	c.members[0].signal(t, syscall.SIGCONT)
	w.ambiguous[newRecord(w.head, "paused").Head()] = true
	for range 3 {
		w.appendOne(t)
	}
	checkLog(t, j, w)
	c.members[0].pause(t)
	_, end := withDeadline(t, time.Second)
	_ = j.Close()
	end("close")
	expectNoLeaks(t, others)
	c.members[0].signal(t, syscall.SIGCONT)
}

// etcdFull fills the database, and compares the result of each Append with the
// log.
func etcdFull(t *testing.T, binary string) {
	c := startCluster(t, binary, 1, "-quota", fmt.Sprint(4<<20))
	j := openJournal(t, etcd.Spec{URL: c.url("full")})
	var head *ledger.Head
	for i := range 100 {
		r := newRecord(head, fmt.Sprint(i))
		r.Payload = sample(200_000)
		err := j.Append(t.Context(), head, []ledger.Record{r})
		now, headErr := j.Head(t.Context())
		if headErr != nil {
			t.Fatal(headErr)
		}
		if err != nil {
			expectKind(t, err, "a full database", fault.StoreFull)
			if head == nil || now != *head {
				t.Errorf("version %d was refused, and it is there", r.Version)
			}
			if _, err := j.Read(t.Context(), now.Version); err != nil {
				t.Errorf("a full database cannot be read: %v", err)
			}
			return
		}
		if now != r.Head() {
			t.Fatalf("version %d was acknowledged, and it is not there", r.Version)
		}
		head = &now
	}
	t.Error("it is never full")
}

// etcdChanged waits for commits of another node, through a compaction and
// through a member that is killed.
func etcdChanged(t *testing.T, binary string) {
	c := startCluster(t, binary, 3)
	here := openJournal(t, etcd.Spec{URL: c.url("changed")})
	w := newWriter(openJournal(t, etcd.Spec{URL: c.url("changed")}), "writer")
	client := c.newClient(t)
	var killed *etcdMember
	for name, meanwhile := range map[string]func(){
		"nothing happens": func() {},
		"compaction": func() {
			got, err := client.Get(t.Context(), "x")
			if err == nil {
				_, err = client.Compact(t.Context(), got.Header.Revision)
			}
			if err != nil {
				t.Error(err)
			}
		},
		"a member is killed": func() {
			killed = c.members[0]
			killed.kill()
		},
	} {
		heard := make(chan error)
		go func(since *ledger.Head) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := here.Changed(ctx, since)
			for fault.KindOf(err) == fault.StorageBusy {
				err = here.Changed(ctx, since)
			}
			heard <- err
		}(w.head)
		meanwhile()
		before := len(w.acked)
		for len(w.acked) == before && !t.Failed() {
			w.appendOne(t)
		}
		if err := <-heard; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if killed != nil {
			killed.run(t)
			killed = nil
		}
	}
}

// etcdPassword uses a cluster that requires authentication, with tokens that
// are valid for a second.
func etcdPassword(t *testing.T, binary string) {
	c := startCluster(t, binary, 1, "-tokens", "1")
	client := c.newClient(t)
	_, err := client.UserAdd(t.Context(), "root", "right")
	if err == nil {
		_, err = client.UserGrantRole(t.Context(), "root", "root")
	}
	if err == nil {
		_, err = client.AuthEnable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]etcd.Spec{
		"no password":    {},
		"wrong password": {Username: "root", Password: "wrong"},
		"unknown user":   {Username: "nobody", Password: "right"},
	} {
		spec.URL = c.url("secret")
		_, err := openJournal(t, spec).Head(t.Context())
		expectKind(t, err, name, fault.NotReady)
		if !strings.Contains(fault.NextOf(err), "registry.storage.password") {
			t.Errorf("%s: the next step is %q", name, fault.NextOf(err))
		}
	}
	w := newWriter(openJournal(t, etcd.Spec{URL: c.url("secret"), Username: "root", Password: "right"}), "writer")
	for range 3 {
		w.appendOne(t)
		time.Sleep(2500 * time.Millisecond) // until the token has expired
		w.appendOne(t)
	}
	if len(checkLog(t, w.journal, w)) != 6 {
		t.Errorf("a token that expired costs commits")
	}
}

// etcdCertificates uses a cluster with mutual TLS.
func etcdCertificates(t *testing.T, binary string) {
	cert, key := selfSigned(t)
	stranger, strangerKey := selfSigned(t)
	c := startCluster(t, binary, 1, "-cert", cert, "-key", key, "-authority", cert)
	for name, spec := range map[string]etcd.Spec{
		"another authority":    {CAFile: stranger, CertFile: cert, KeyFile: key},
		"no certificate":       {CAFile: cert},
		"a wrong certificate":  {CAFile: cert, CertFile: stranger, KeyFile: strangerKey},
		"the system's, and no": {},
	} {
		spec.URL, spec.Timeout = c.url("tls"), 5*time.Second // it ends before etcd can be used, and a handshake may take a while
		_, err := openJournal(t, spec).Head(t.Context())
		if k := fault.KindOf(err); k != fault.Timeout && k != fault.StorageBusy {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(fault.NextOf(err), "registry.storage.c") {
			t.Errorf("%s: %v: the next step is %q", name, err, fault.NextOf(err))
		}
	}
	w := newWriter(openJournal(t, etcd.Spec{URL: c.url("tls"), CAFile: cert, CertFile: cert, KeyFile: key}), "writer")
	w.appendOne(t)
	checkLog(t, w.journal, w)
}

// selfSigned makes a certificate for this machine.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: raw}, keyFile: {Type: "PRIVATE KEY", Bytes: rawKey}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// etcdLargest writes a batch and a snapshot that each exceed etcd's limit for
// one request.
func etcdLargest(t *testing.T, binary string) {
	c := startCluster(t, binary, 1)
	j := openJournal(t, etcd.Spec{URL: c.url("large"), Timeout: 20 * time.Second})
	var batch []ledger.Record
	var head *ledger.Head
	for i := range 500 {
		r := newRecord(head, "large")
		if i%100 == 99 {
			r.Payload, r.Preconditions = sample(1<<20), sample(400<<10)
		}
		now := r.Head()
		batch, head = append(batch, r), &now
	}
	if err := j.Append(t.Context(), nil, batch); err != nil {
		t.Fatal(err)
	}
	next := 0
	err := j.Scan(t.Context(), 0, func(r ledger.Record) error {
		if !bytes.Equal(r.Header, batch[next].Header) || !bytes.Equal(r.Payload, batch[next].Payload) || !bytes.Equal(r.Preconditions, batch[next].Preconditions) {
			t.Errorf("version %d is another", next)
		}
		next++
		return nil
	})
	if err != nil || next != len(batch) {
		t.Errorf("%d records, %v", next, err)
	}
	over := newRecord(head, "over")
	over.Payload = sample(3 << 19)
	expectKind(t, j.Append(t.Context(), head, []ledger.Record{over}), "a record that is too large", fault.BodyTooLarge)

	large := journal.Checkpoint{Size: 500, Note: []byte("note"), Snapshot: sample(20<<20 + 1)}
	if err := j.SaveCheckpoint(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	got, err := j.LoadCheckpoint(t.Context(), 1000)
	if err != nil || got.Size != 500 || !bytes.Equal(got.Snapshot, large.Snapshot) {
		t.Errorf("a snapshot of %d bytes, %v", len(got.Snapshot), err)
	}
	if first, err := j.Prune(t.Context(), journal.Prune{Below: 450, Note: []byte("note")}); err != nil || first != 450 {
		t.Errorf("pruned up to %d, %v", first, err)
	}
	if _, err := j.Read(t.Context(), 449); fault.KindOf(err) != fault.Expired {
		t.Errorf("a pruned record: %v", err)
	}
}
