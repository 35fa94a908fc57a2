package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOAPViews: what stands behind an address, its tree and its files, between
// the real node and the Python peer, both ways.
func TestOAPViews(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/micronode: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, *micronode, *pythonPeer){
		"parts from the node":                   oapPartsFromNode,
		"parts from the peer":                   oapPartsFromPeer,
		"a wrong byte":                          oapWrongByte,
		"a folder from the node":                oapFolderFromNode,
		"a folder from the peer":                oapFolderFromPeer,
		"a folder that the peer has not all of": oapFolderInPieces,
	} {
		t.Run(name, func(t *testing.T) { test(t, startNode(t, binary), startPeer(t)) })
	}
}

const oapLarge = 40<<20 + 12345 // the last group and the last chunk are not whole

// The peer gets the tree, then the object in parts, four at a time, and verifies
// each part when it is here. The tree of an object of one group is empty.
func oapPartsFromNode(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	for _, size := range []int{oapLarge, 16<<10 + 1, 16 << 10, 0} {
		data, path := oapObject(t, size)
		obj, _, _ := strings.Cut(n.do("put", path), " ")
		p.do(peerCommand{"do": "download", "obj": obj})
		groups := (size + 16<<10 - 1) / (16 << 10)
		if groups == 1 {
			groups = 0
		}
		if h := p.await("downloaded"); h.Status != "ok" || h.Size != size || h.Groups != groups {
			t.Errorf("an object of %d bytes: %+v", size, h)
		}
		saved := filepath.Join(t.TempDir(), "saved")
		p.do(peerCommand{"do": "save", "obj": obj, "path": saved})
		p.await("saved")
		wantFile(t, saved, data)
	}
	p.do(peerCommand{"do": "download", "obj": "b3:" + strings.Repeat("0", 64)})
	if h := p.await("downloaded"); h.Status != "NotFound" {
		t.Errorf("the tree of what nobody has: %+v", h)
	}
}

// The node finds out that the peer has the object, gets the tree and the parts
// from it, and stores the object.
func oapPartsFromPeer(t *testing.T, n *micronode, p *pythonPeer) {
	data, path := oapObject(t, oapLarge)
	obj := p.hold(path) // before the session: it hashes for seconds, and answers no ping meanwhile
	oapConnect(n, p, true)
	got := filepath.Join(t.TempDir(), "got")
	n.do("get", obj, "-o", got)
	wantFile(t, got, data)
	trees, parts := 0, 0
	for _, h := range p.gifts() {
		switch {
		case h.Obj == obj+"/tree":
			trees++
		case h.Obj == obj && h.Chunks < oapLarge>>16:
			parts++
		}
	}
	if trees != 1 || parts < 2 {
		t.Errorf("the peer gave %d trees and %d parts", trees, parts)
	}
	if out := n.do("ls"); !strings.Contains(out, obj[:20]) {
		t.Errorf("the node does not have it:\n%s", out)
	}
}

// A byte that is wrong is found, and nothing of the object is taken for good.
func oapWrongByte(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	_, path := oapObject(t, 5<<20)
	obj := p.hold(path)
	p.do(peerCommand{"do": "damage", "obj": obj, "at": 3 << 20})
	p.await("damaged")
	got := filepath.Join(t.TempDir(), "got")
	if out, err := n.command("get", obj, "--peer", oapPeer, "-o", got).CombinedOutput(); err == nil {
		t.Errorf("a wrong byte was taken\n%s", out)
	}
	if _, err := os.Stat(got); err == nil {
		t.Error("there is a file")
	}
}

// oapFolder is a folder with small files, an empty one and one of several chunks.
func oapFolder(t *testing.T) (folder string, files map[string][]byte) {
	t.Helper()
	folder, files = t.TempDir(), map[string][]byte{"empty": {}, "large/one.bin": oapBytes(t, 300_000), "ä/ö.txt": []byte("ü")}
	for i := range 300 {
		files[fmt.Sprintf("small/%03d.txt", i)] = []byte(strings.Repeat(fmt.Sprintln("file", i), 1+i%400))
	}
	for path, data := range files {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, files
}

func oapBytes(t *testing.T, size int) []byte {
	t.Helper()
	data, _ := oapObject(t, size)
	return data
}

// The peer gets the manifest, and then all files in one stream.
func oapFolderFromNode(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	folder, files := oapFolder(t)
	obj := n.putFolder(folder)
	p.do(peerCommand{"do": "download_folder", "obj": obj})
	if h := p.await("downloaded"); h.Status != "ok" || h.Files != len(files) || len(h.Paths) != len(files) {
		t.Errorf("%+v", h)
	}
	_, path := oapObject(t, 100_000)
	plain, _, _ := strings.Cut(n.do("put", path), " ")
	for what, want := range map[string]string{plain: "Malformed", "b3:" + strings.Repeat("0", 64): "NotFound"} {
		p.do(peerCommand{"do": "fetch", "obj": what + "/files"})
		if h := p.await("fetched"); h.Status != want {
			t.Errorf("the files of %s: %+v", what, h)
		}
	}
}

// The node finds out that the peer has the folder, and gets its small files
// together.
func oapFolderFromPeer(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, true)
	folder, files := oapFolder(t)
	p.do(peerCommand{"do": "hold_folder", "path": folder})
	obj := p.await("holding").Obj
	got := filepath.Join(t.TempDir(), "got")
	n.do("get", obj, "-o", got+"/")
	for path, data := range files {
		wantFile(t, filepath.Join(got, path), data)
	}
	together, chunks := 0, 0
	for _, h := range p.gifts() {
		if h.Obj == obj+"/files" && h.Status == "ok" {
			together, chunks = together+1, chunks+h.Chunks
		}
	}
	if together < 1 || together > 5 || chunks < 2 {
		t.Errorf("of %d files, the peer gave %d runs with %d chunks", len(files), together, chunks)
	}
}

// What the peer does not have ends the stream there; what came before it stays.
func oapFolderInPieces(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	folder, files := oapFolder(t)
	p.do(peerCommand{"do": "hold_folder", "path": folder})
	obj := p.await("holding").Obj
	lost := "small/150.txt"
	file, _, _ := strings.Cut(n.do("put", filepath.Join(folder, lost)), " ")
	p.do(peerCommand{"do": "drop", "obj": file})
	p.await("dropped_object")
	got := filepath.Join(t.TempDir(), "got")
	n.do("get", obj, "-o", got+"/") // the node has that one
	for path, data := range files {
		wantFile(t, filepath.Join(got, path), data)
	}
}

func wantFile(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes that are not those of the object, %v", filepath.Base(path), len(got), err)
	}
}

// hold makes the peer a giver of a file, and returns its address.
func (p *pythonPeer) hold(path string) string {
	p.t.Helper()
	p.do(peerCommand{"do": "hold", "path": path})
	return p.await("holding").Obj
}

// gifts are the streams that the peer has given so far.
func (p *pythonPeer) gifts() (all []peerEvent) {
	p.t.Helper()
	p.do(peerCommand{"do": "ping"})
	for asked := uint64(0); ; {
		switch h := p.next(); h.Event {
		case "gave":
			all = append(all, h)
		case "pinged":
			asked = h.Corr
		case "pong": // it pings by itself, too
			if h.Corr == asked {
				return all
			}
		case "closed", "failed":
			p.t.Fatalf("the peer said %+v", h)
		}
	}
}

// putFolder puts a folder and returns the address of its manifest, which is
// printed behind those of its files.
func (m *micronode) putFolder(path string) (address string) {
	m.t.Helper()
	for line := range strings.Lines(m.do("put", path)) {
		if strings.HasPrefix(line, "b3:") {
			address, _, _ = strings.Cut(line, " ")
		}
	}
	return address
}
