package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// versionsBefore are commits whose nodes have to understand ours, and ours
// them: what a change breaks for them, it breaks for people who have not updated.
var versionsBefore = []struct {
	name, commit string
	invites      bool // it has invitations
}{
	{name: "before objects came in parts", commit: "091c4ff570eba54ed940d174a9a68898661c613b"},
	{name: "before trees went by their bytes", commit: "71e79191357c60e48b6fd16ec5be4b626bb858cf", invites: true},
}

// TestTheVersionBefore connects the node of today with one of an earlier commit
// of this repository, in both directions.
func TestTheVersionBefore(t *testing.T) {
	today := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", today, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/micronode: %v\n%s", err, out)
	}
	for _, before := range versionsBefore {
		t.Run(before.name, func(t *testing.T) {
			earlier := buildCommit(t, before.commit)
			if before.invites {
				t.Run("an invitation from today's", func(t *testing.T) { joinBefore(t, startNode(t, today), startNode(t, earlier)) })
				t.Run("an invitation to today's", func(t *testing.T) { joinBefore(t, startNode(t, earlier), startNode(t, today)) })
			}
			for name, test := range map[string]func(t *testing.T, ours, theirs *micronode){
				"gossip":    gossipWithBefore,
				"an object": objectWithBefore,
				"a folder":  folderWithBefore,
				"a name":    nameWithBefore,
			} {
				t.Run(name, func(t *testing.T) {
					ours, theirs := startNode(t, today), startNode(t, earlier)
					connect(t, ours, theirs)
					t.Run("from today's", func(t *testing.T) { test(t, ours.in(t), theirs.in(t)) })
					t.Run("to today's", func(t *testing.T) { test(t, theirs.in(t), ours.in(t)) })
				})
			}
		})
	}
}

// buildCommit builds the node of a commit, once: in .build, where the next run
// finds it.
func buildCommit(t *testing.T, commit string) (binary string) {
	t.Helper()
	if err := exec.Command("git", "-C", "..", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history of this checkout does not go back to %s: fetch all of it to test against that version", commit[:7])
	}
	folder, err := filepath.Abs(filepath.Join("..", ".build", "before", commit[:7]))
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(folder, "micronode")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	source := filepath.Join(folder, "source")
	if err := os.MkdirAll(source, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(source)
	var complaints bytes.Buffer
	archive, extract := exec.Command("git", "-C", "..", "archive", commit), exec.Command("tar", "-x", "-C", source)
	pipe, err := archive.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	extract.Stdin, archive.Stderr, extract.Stderr = pipe, &complaints, &complaints
	if err := archive.Start(); err != nil {
		t.Fatal(err)
	}
	if err := extract.Run(); err != nil {
		t.Fatalf("tar: %v\n%s", err, &complaints)
	}
	if err := archive.Wait(); err != nil {
		t.Fatalf("git archive: %v\n%s", err, &complaints)
	}
	made := binary + ".new"
	if out, err := exec.Command("go", "build", "-C", source, "-o", made, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build of %s: %v\n%s", commit[:7], err, out)
	}
	if err := os.Rename(made, binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// in is the node for a test within the one that started it.
func (m *micronode) in(t *testing.T) *micronode {
	other := *m
	other.t = t
	return &other
}

// connect makes two nodes known to each other.
func connect(t *testing.T, a, b *micronode) {
	t.Helper()
	a.do("peers", "add", b.peerSpec)
	b.do("peers", "add", a.peerSpec)
	awaitSession(t, a, b)
}

// joinBefore has one node join the other by an invitation.
func joinBefore(t *testing.T, from, to *micronode) {
	invitation := regexp.MustCompile(`mn1_\S+`).FindString(from.do("invite"))
	to.do("join", invitation)
	awaitSession(t, from, to)
}

// awaitSession waits until each of two nodes has a session with the other.
func awaitSession(t *testing.T, a, b *micronode) {
	t.Helper()
	for _, pair := range [][2]*micronode{{a, b}, {b, a}} {
		for deadline := time.Now().Add(oapTimeout); !pair[0].hasPeer(pair[1].id); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("there is no session:\n%s", pair[0].do("peers"))
			}
		}
	}
}

func (m *micronode) hasPeer(id string) bool {
	m.t.Helper()
	var peers []struct{ ID, State string }
	if err := json.Unmarshal([]byte(m.do("peers", "--json")), &peers); err != nil {
		m.t.Fatal(err)
	}
	for _, one := range peers {
		if one.ID == id && one.State == "active" {
			return true
		}
	}
	return false
}

// A short message is pushed, one above 16 KiB may be announced first.
func gossipWithBefore(t *testing.T, from, to *micronode) {
	for _, text := range []string{"storm", strings.Repeat("storm from the west. ", 2000)} {
		printed := to.subscribe("news/eu")
		from.do("pub", "news/eu", text)
		var m struct {
			Origin, Topic string
			Data          []byte
			Signed        bool
		}
		if err := json.Unmarshal(printed(), &m); err != nil {
			t.Fatal(err)
		}
		if m.Origin != from.id || m.Topic != "news/eu" || string(m.Data) != text || !m.Signed {
			t.Errorf("of %d bytes %.200v arrived", len(text), m)
		}
	}
}

// Objects of less and more than a group, and of several parts; who has them is
// asked for, or told.
func objectWithBefore(t *testing.T, from, to *micronode) {
	for i, size := range []int{10_000, 1_500_000, 20<<20 + 1} {
		data, path := oapObject(t, size)
		data = append(data, from.id...) // not the same ones in the other direction
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		obj, _, _ := strings.Cut(from.do("put", path), " ")
		got := filepath.Join(t.TempDir(), "got")
		line := []string{"get", obj, "-o", got}
		if i%2 == 1 {
			line = append(line, "--peer", from.id)
		}
		to.do(line...)
		wantFile(t, got, data)
	}
}

func folderWithBefore(t *testing.T, from, to *micronode) {
	folder, files := oapFolder(t)
	obj := from.putFolder(folder)
	got := filepath.Join(t.TempDir(), "got")
	to.do("get", obj, "-o", got+"/")
	for path, data := range files {
		wantFile(t, filepath.Join(got, path), data)
	}
}

// A name is looked up with the ID of its node, and the folder behind it fetched.
func nameWithBefore(t *testing.T, from, to *micronode) {
	for i := range 2 { // the second time, it stands for something else
		folder, files := oapFolder(t)
		files["which"] = fmt.Append(nil, i, from.id)
		if err := os.WriteFile(filepath.Join(folder, "which"), files["which"], 0o600); err != nil {
			t.Fatal(err)
		}
		from.do("put", folder, "--name", "docs")
		var here, there struct {
			Manifest string `json:"manifest_cid"`
		}
		name := "name:docs@" + from.id
		if err := json.Unmarshal([]byte(from.do("resolve", "name:docs", "--json")), &here); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(oapTimeout); ; time.Sleep(100 * time.Millisecond) {
			if err := json.Unmarshal([]byte(to.do("resolve", name, "--json")), &there); err != nil {
				t.Fatal(err)
			}
			if there == here { // an answer is cached for a while
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %+v there, and %+v at its own node", name, there, here)
			}
		}
		got := filepath.Join(t.TempDir(), "got")
		to.do("get", there.Manifest, "-o", got+"/")
		for path, data := range files {
			wantFile(t, filepath.Join(got, path), data)
		}
	}
}
