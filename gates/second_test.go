//go:build gates

package gates

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// needNetworks skips a gate on a machine that does not let us make networks of our
// own.
func needNetworks(t *testing.T) {
	t.Helper()
	if err := exec.Command("unshare", "--net", "ip", "link", "add", "mnprobe", "type", "veth").Run(); err != nil {
		skipGate(t, "this machine does not let us make networks of our own (%v): what people type on machines of their own was not tried", err)
	}
}

// shell is how somebody sits at a machine: a folder, and micronode in the PATH.
type shell struct {
	*netnsNode
	folder string
}

// env is the environment of what is typed. It has no setting of micronode.
func (s *shell) env() []string {
	list := []string{"PATH=" + filepath.Dir(binary) + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + s.folder}
	for _, one := range os.Environ() {
		if !strings.HasPrefix(one, "PATH=") && !strings.HasPrefix(one, "HOME=") && !strings.HasPrefix(one, "MICRO_") {
			list = append(list, one)
		}
	}
	return list
}

// command prepares a line as it is typed.
func (s *shell) command(line string) *exec.Cmd {
	args := s.netnsCommand("bash", "-c", line)
	command := exec.Command(args[0], args[1:]...)
	command.Dir, command.Env = s.folder, s.env()
	return command
}

// run types a line that starts a node, and waits until it is ready. The returned
// function stops it.
func (s *shell) run(line string) (stop func()) {
	s.t.Helper()
	node := s.command("exec " + line)
	node.Stdout, node.Stderr = s.stderr, s.stderr
	if err := node.Start(); err != nil {
		s.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = node.Process.Signal(os.Interrupt)
			_ = node.Wait()
		}
	}
	s.t.Cleanup(stop)
	s.typed("micronode status --wait 20s")
	return stop
}

// typed types a line, which must succeed, and returns its standard output.
func (s *shell) typed(line string) string {
	s.t.Helper()
	command := s.command(line)
	var out, problem bytes.Buffer
	command.Stdout, command.Stderr = &out, &problem
	if err := command.Run(); err != nil {
		s.t.Fatalf("%s: %v\n%s%s\nthe node says:\n%s", line, err, &out, &problem, s.stderr)
	}
	return out.String()
}

// readmeLines are the lines that people type by a recipe of the README, each with
// who types it, without what is said about them.
func readmeLines(t *testing.T, recipe string) (lines [][2]string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n### "+recipe+"\n")
	_, block, open := strings.Cut(section, "\n```\n")
	block, _, closed := strings.Cut(block, "\n```\n")
	if !found || !open || !closed {
		t.Fatalf("the README has no lines below %q", recipe)
	}
	for line := range strings.SplitSeq(block, "\n") {
		who, what, _ := strings.Cut(line, "$ ")
		what, _, _ = strings.Cut(what, "  #")
		lines = append(lines, [2]string{who, strings.TrimSpace(what)})
	}
	return lines
}

var invitationText = regexp.MustCompile(`mn1_i[A-Za-z0-9_-]+`)

// Two people type what the README says on two fresh machines, and the second has
// what the first shares. The last line works where no node runs, too.
func TestTheReadmeOnTwoMachines(t *testing.T) {
	needNetworks(t)
	a, b := newNetnsPair(t)
	who := map[string]*shell{"first": {a, t.TempDir()}, "second": {b, t.TempDir()}}
	content, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(who["first"].folder, "README.md"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	who["first"].run("micronode run")
	stopSecond := who["second"].run("micronode run")
	last := ""
	for _, line := range readmeLines(t, "Let a second person in") {
		text := line[1]
		if strings.Contains(text, "mn1_i…") {
			text = strings.ReplaceAll(text, "mn1_i…", last)
		}
		began := time.Now()
		out := who[line[0]].typed(text)
		t.Logf("%s$ %s (%s)\n%s", line[0], text, time.Since(began).Round(time.Millisecond), out)
		if found := invitationText.FindString(out); found != "" {
			if last = found; strings.Contains(text, "invite") && len(strings.TrimSpace(out)) > 120 {
				t.Errorf("an invitation of %d characters", len(strings.TrimSpace(out)))
			}
		}
		if strings.Contains(text, "peers") && !strings.Contains(out, "active") {
			t.Errorf("they are not connected:\n%s", out)
		}
	}
	if got, err := os.ReadFile(filepath.Join(who["second"].folder, "README.md")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the second has %d bytes, %v", len(got), err)
	}

	stopSecond()
	bare := &shell{b, t.TempDir()}
	bare.typed("micronode get " + last)
	if got, err := os.ReadFile(filepath.Join(bare.folder, "README.md")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("without a node there are %d bytes, %v", len(got), err)
	}
	report(t, "the README on two machines", "the second has what the first shares, with and without a node", "it has")
}

// sentPackets is how many packets have left a machine.
func (n *netnsNode) sentPackets() int {
	n.t.Helper()
	var links []struct {
		Stats struct {
			Tx struct {
				Packets int `json:"packets"`
			} `json:"tx"`
		} `json:"stats64"`
	}
	text := mustRun(n.t, n.netnsCommand("ip", "-s", "-j", "link", "show", "dev", n.veth)...)
	if err := json.Unmarshal([]byte(text), &links); err != nil || len(links) != 1 {
		n.t.Fatalf("%v: %s", err, text)
	}
	return links[0].Stats.Tx.Packets
}

// A default node sends nothing to anybody whom its operator did not name: no
// packet leaves the machine, although there is a way out and a name server. The
// kernel's own IPv6 is off, which sends by itself.
func TestADefaultNodeSendsNothing(t *testing.T) {
	needNetworks(t)
	a, b := newNetnsPair(t)
	for _, one := range []*netnsNode{a, b} {
		mustRun(t, one.netnsCommand("ip", "link", "set", one.veth, "down")...)
		mustRun(t, one.netnsCommand("bash", "-c", "echo 1 > /proc/sys/net/ipv6/conf/"+one.veth+"/disable_ipv6")...)
		mustRun(t, one.netnsCommand("ip", "link", "set", one.veth, "up")...)
	}
	mustRun(t, a.netnsCommand("ip", "route", "add", "default", "via", b.addr)...)
	s := &shell{a, t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.folder, "words"), []byte("words of a fox"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := a.sentPackets()
	stop := s.run("micronode run")
	s.typed("micronode put words --name words")
	s.typed("micronode get name:words -o copy")
	s.typed("micronode resolve name:words")
	s.typed("micronode pub news hello")
	s.typed("micronode invite")
	s.typed("micronode share words")
	s.typed("micronode doctor || true")
	s.typed("! micronode get b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 -o nothing")
	time.Sleep(2 * time.Second) // what a node does by itself, it does in its first seconds
	stop()
	if sent := a.sentPackets() - before; sent != 0 {
		t.Errorf("%d packets left the machine", sent)
	}
	report(t, "default node: packets to hosts that nobody named", "0", "0")
	// The count counts: a packet that is meant to leave does.
	_ = exec.Command("ip", "netns", "exec", a.name, "ping", "-c", "1", "-W", "1", b.addr).Run()
	mustRun(t, a.netnsCommand("bash", "-c", "exec 3<>/dev/udp/"+b.addr+"/9; echo hello >&3")...)
	if a.sentPackets() == before {
		t.Error("the count of packets does not count")
	}
}
