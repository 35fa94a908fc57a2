package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/registry/registrytest"
)

// TestRegistryOnEtcd checks nodes, as processes of their own, whose registry
// has its log on an etcd, from the view of clients.
func TestRegistryOnEtcd(t *testing.T) {
	folder := t.TempDir()
	programs := registryPrograms{node: filepath.Join(folder, "micronode"), etcd: filepath.Join(folder, "etcdserver")}
	for _, build := range [][]string{{"-C", "..", "-o", programs.node, "./cmd/micronode"}, {"-o", programs.etcd, "./etcdserver"}} {
		if out, err := exec.Command("go", append([]string{"build"}, build...)...).CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", build, err, out)
		}
	}
	for name, test := range map[string]func(t *testing.T, p registryPrograms){
		"the leader is killed": registryLeaderKilled,
		"a follower is killed": registryFollowerKilled,
		"two nodes commit":     registryTwoNodes,
		"all are killed":       registryEtcdAway,
	} {
		t.Run(name, func(t *testing.T) { test(t, programs) })
	}
}

// registryPrograms are the binaries that run here.
type registryPrograms struct{ node, etcd string }

func registryLeaderKilled(t *testing.T, p registryPrograms) {
	c := startCluster(t, p.etcd, 3)
	leader, _ := c.leader(t)
	killMemberDuringCommits(t, p, c, leader)
}

func registryFollowerKilled(t *testing.T, p registryPrograms) {
	c := startCluster(t, p.etcd, 3)
	_, others := c.leader(t)
	killMemberDuringCommits(t, p, c, others[0])
}

// killMemberDuringCommits kills a member while clients are at work on one node.
// Their history stays linearizable, and they make progress. The member is
// silent for a moment before it is killed, so that commits are on their way to
// it, and lost with it.
func killMemberDuringCommits(t *testing.T, p registryPrograms, c *etcdCluster, victim *etcdMember) {
	n := startRegistryNode(t, p.node, c.url("node"))
	w := registryWorkload(t, n)
	w.Steps = 80
	before := uint64(0)
	w.Halfway = func() {
		before = n.head().Version
		if err := victim.process.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
		time.Sleep(300 * time.Millisecond)
		victim.kill()
	}
	if _, err := w.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	history := w.Run(t.Context())
	t.Logf("killed after version %d of %d: %v", before, n.head().Version, history.Answers())
	if err := registrytest.Check(history); err != nil {
		t.Error(err)
	}
	if before == 0 || n.head().Version == before {
		t.Errorf("%d versions before the kill, and %d in all", before, n.head().Version)
	}
}

// registryEtcdAway kills the whole etcd while nobody writes, and starts it again.
// The node tells both in its status, with where etcd is.
func registryEtcdAway(t *testing.T, p registryPrograms) {
	c := startCluster(t, p.etcd, 1)
	n := startRegistryNode(t, p.node, c.url("away"))
	awaitStatus := func(text string) {
		t.Helper()
		begun, last := time.Now(), ""
		for ; time.Since(begun) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
			out, _ := exec.Command(p.node, "status", "--socket", n.socket).CombinedOutput()
			if last = string(out); strings.Contains(last, text) {
				t.Logf("%q after %s", text, time.Since(begun).Round(10*time.Millisecond))
				return
			}
		}
		t.Fatalf("the status does not say %q, but\n%s", text, last)
	}
	awaitStatus("is ready")
	c.members[0].kill()
	awaitStatus("registry/storage: etcd at ")
	awaitStatus("has not accepted writes since")
	awaitStatus("has not answered reads since")
	awaitStatus("is not ready")
	c.members[0].run(t)
	awaitStatus("is ready\n")
}

// registryTwoNodes has two nodes on one etcd commit at the same time, each its
// own proposals, about the same items. They never acknowledge the same version,
// and in the end they show the same log.
func registryTwoNodes(t *testing.T, p registryPrograms) {
	c := startCluster(t, p.etcd, 1)
	key := filepath.Join(t.TempDir(), "log.key")
	if out, err := exec.Command(p.node, "identity", "new", "--out", key).CombinedOutput(); err != nil {
		t.Fatalf("micronode identity new: %v\n%s", err, out)
	}
	var nodes []*registryNode
	for range 2 {
		nodes = append(nodes, startRegistryNode(t, p.node, c.url("shared"), "MICRO_REGISTRY__STORAGE__LOG_KEY=file:"+key))
	}
	w := registryWorkload(t, nodes...)
	begun, err := w.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nodes[1].awaitHead(begun.Head)

	var history registrytest.History
	for w.Seed = range 3 {
		history = append(history, w.Run(t.Context())...)
	}
	acked := registryAcknowledged(t, history)
	head := nodes[0].head()
	if other := nodes[1].head(); other.Version > head.Version {
		head = other
	}
	answers := history.Answers()
	t.Logf("version %d: %v", head.Version, answers)
	if least := uint64(len(acked)); head.Version < least || head.Version > least+uint64(answers["commit ?"]) {
		t.Errorf("the last version is %d, and %d were acknowledged; %v", head.Version, least, answers)
	}
	for _, n := range nodes {
		n.awaitHead(head)
		n.expectVersions(acked)
		n.do("registry", "verify", n.url, "--registry", begun.Registry.String(), "--log-key", begun.Key)
	}
}

// registryAcknowledged is what was committed at each version. No version may be
// acknowledged twice, and both nodes must have committed something.
func registryAcknowledged(t *testing.T, history registrytest.History) map[uint64]string {
	t.Helper()
	acked, by := map[uint64]string{}, map[int]int{}
	for _, c := range history.Commits() {
		if other, twice := acked[c.Version]; twice {
			t.Errorf("version %d was given out twice: as %s and as %s", c.Version, other, c.Hash)
		}
		acked[c.Version] = c.Hash
		by[c.Node]++
	}
	t.Logf("commits by node: %v", by)
	if by[0] < 3 || by[1] < 3 {
		t.Errorf("commits by node: %v, which shows little", by)
	}
	return acked
}

// registryWorkload is clients of these nodes.
func registryWorkload(t *testing.T, nodes ...*registryNode) registrytest.Workload {
	w := registrytest.Workload{Client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: oapTimeout}, Signers: registrytest.Signers()}
	t.Cleanup(w.Client.CloseIdleConnections)
	for _, n := range nodes {
		w.URLs = append(w.URLs, n.url)
	}
	return w
}

// registryNode is a node that requires no capability, and a client of it.
type registryNode struct {
	*micronode
	url    string
	client *client.Client
}

// startRegistryNode runs a node with its log on an etcd, and waits until it is
// ready.
func startRegistryNode(t *testing.T, binary, storage string, environment ...string) *registryNode {
	t.Helper()
	n := &registryNode{micronode: &micronode{t: t, binary: binary, output: &bytes.Buffer{}, ended: make(chan error, 1)}}
	n.socket = fmt.Sprintf("micronode-interop-%d-%d", os.Getpid(), time.Now().UnixNano())
	n.process = exec.Command(binary, "run", "--open", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", n.socket)
	n.process.Env = append(os.Environ(), append(environment, "MICRO_REGISTRY__STORAGE__URL="+storage)...)
	n.process.Stdout, n.process.Stderr = n.output, n.output
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- n.process.Wait() }()
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("the node said:\n%s", n.output)
		}
	})
	n.do("status", "--wait", "20s")
	var status struct{ Listen struct{ HTTP string } }
	err := json.Unmarshal([]byte(n.do("status", "--json")), &status)
	if err == nil {
		n.url = "http://" + status.Listen.HTTP
		n.client, err = client.New(client.Options{URL: n.url})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.client.Close)
	return n
}

func (n *registryNode) head() client.RegistryHead {
	n.t.Helper()
	head, err := n.client.RegistryHead(n.t.Context())
	if err != nil {
		n.t.Error(err) // it is called from other goroutines, too
	}
	return head
}

// awaitHead waits until the node shows a version: it follows the other one by a
// watch.
func (n *registryNode) awaitHead(want client.RegistryHead) {
	n.t.Helper()
	var head client.RegistryHead
	for deadline := time.Now().Add(oapTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if head, _ = n.client.RegistryHead(n.t.Context()); head.Version >= want.Version && !head.Hash.IsZero() {
			break
		}
	}
	if head.Version != want.Version || head.Hash != want.Hash {
		n.t.Fatalf("%s shows %d %s, and the other one %d %s", n.url, head.Version, head.Hash, want.Version, want.Hash)
	}
}

// expectVersions checks that the node shows everything that was acknowledged by
// either.
func (n *registryNode) expectVersions(acked map[uint64]string) {
	n.t.Helper()
	for version, hash := range acked {
		got, err := n.client.RegistryVersion(n.t.Context(), version, false)
		if err != nil || got.Hash.String() != hash {
			n.t.Errorf("version %d was acknowledged as %s; %s shows %s, %v", version, hash, n.url, got.Hash, err)
		}
	}
}
