package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// many answers the calls about many objects, as a node does.
func (f *FakeNode) many(w http.ResponseWriter, r *http.Request) bool {
	switch manifest, ofFiles := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/o/"), "/files"); {
	case r.URL.Path == "/o/missing":
		var request MissingRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		answer := MissingResponse{}
		for _, one := range request.Objects {
			if _, there := f.object(one); !there {
				answer.Missing = append(answer.Missing, one)
			}
		}
		raw, _ := json.Marshal(answer)
		writeJSON(w, 200, string(raw))
	case r.URL.Path == "/o/batch":
		raw := new(bytes.Buffer)
		_, _ = raw.ReadFrom(r.Body)
		answer := BatchResponse{}
		for raw.Len() > 0 {
			var address b3.Address
			n := copy(address[:], raw.Next(len(address)))
			data := bytes.Clone(raw.Next(int(binary.LittleEndian.Uint64(raw.Next(8)))))
			if n < len(address) || b3.Of(data) != address {
				refuse(w, r, fault.IntegrityFail, "the bytes of another address")
				return true
			}
			_, had := f.object(b3.Of(data))
			answer.Objects = append(answer.Objects, Object{Address: f.Add(data), Size: int64(len(data)), Created: !had})
		}
		text, _ := json.Marshal(answer)
		writeJSON(w, 200, string(text))
	case ofFiles:
		address, _ := b3.Parse(manifest)
		raw, _ := f.object(address)
		m, err := DecodeManifest(raw)
		if err != nil {
			refuse(w, r, fault.Malformed, err.Error())
			return true
		}
		var all []byte
		for _, one := range m.Entries {
			data, _ := f.object(one.B3)
			all = append(all, data...)
		}
		if int64(len(all)) != m.Size() {
			refuse(w, r, fault.NotFound, "a file is missing")
			return true
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(all))
	default:
		return false
	}
	return true
}

// newManyFiles is a folder with files of all kinds: many small ones, equal ones,
// empty ones and a large one.
func newManyFiles() map[string]string {
	files := map[string]string{"large": strings.Repeat("0123456789abcdef", smallFile/16+1), "empty": "", "void": "", "twin!": "file 7"}
	for i := range 200 {
		files[fmt.Sprintf("d%d/%d", i%7, i)] = fmt.Sprint("file ", i)
	}
	return files
}

// counts is how many requests of each kind a node has seen.
func (f *FakeNode) counts() map[string]int {
	counts := map[string]int{}
	for _, r := range f.seen() {
		path := r.URL.Path
		if strings.HasPrefix(path, "/o/") && strings.HasSuffix(path, "/files") {
			path = "files"
		} else if strings.HasPrefix(path, "/o/b3:") {
			path = "object"
		}
		counts[r.Method+" "+path]++
	}
	return counts
}

// A folder of many files takes a few requests: to put it, to put it again, when
// nothing is sent, and to get it.
func TestManyFiles(t *testing.T) {
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool { return node.many(w, r) }
	c := serve(t, node)
	files := newManyFiles()
	folder := newTree(t, files)
	last := int64(0)
	o := FolderOptions{Parallel: 1, Progress: func(done, total int64) {
		if last = done; done > total {
			t.Errorf("%d of %d", done, total)
		}
	}}
	for _, sent := range []int{202, 0} { // two are empty, and two are twins
		last = 0
		whole, err := c.PutFolder(t.Context(), folder, o)
		if err != nil {
			t.Fatal(err)
		}
		if whole.Sent != sent || last != whole.Manifest.Size() {
			t.Errorf("%d were sent, not %d; the progress ended at %d", whole.Sent, sent, last)
		}
		raw, _ := node.object(whole.Address)
		if m, err := DecodeManifest(raw); err != nil || len(m.Entries) != len(files) {
			t.Errorf("%d entries: %v", len(m.Entries), err)
		}
	}
	counts := node.counts()
	if counts["POST /o/missing"] != 2 || counts["POST /o/batch"] > 2 || counts["HEAD object"] != 0 || counts["POST /put"] != 3 {
		t.Errorf("%v", counts)
	}

	whole, err := c.PutFolder(t.Context(), folder, FolderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "copy")
	last = 0
	got, err := c.GetFolder(t.Context(), whole.Manifest, into, o)
	if err != nil || got.Files != len(files) || got.Kept != 0 || last != got.Size {
		t.Fatalf("%+v, %d, %v", got, last, err)
	}
	wantTree(t, "the copy", into, files)
	if counts := node.counts(); counts["GET files"] > 5 || counts["GET object"] > 2 {
		t.Errorf("%v", counts)
	}

	// What is there and right is kept; what is missing in the middle, or wrong, is fetched.
	for _, name := range []string{"d0/7", "d1/1", "d1/8", "large"} {
		if err := os.WriteFile(filepath.Join(into, name), []byte("wrong."), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(into, "empty")); err != nil {
		t.Fatal(err)
	}
	got, err = c.GetFolder(t.Context(), whole.Manifest, into, FolderOptions{})
	if err != nil || got.Kept != len(files)-5 {
		t.Fatalf("%+v, %v", got, err)
	}
	wantTree(t, "the mended copy", into, files)
}

// A node of an earlier version knows nothing of many files: they are put and
// got one by one. A node that sends wrong bytes in a run is asked for the files
// themselves, and a wrong file is never written.
func TestManyFilesOfOtherNodes(t *testing.T) {
	files := map[string]string{}
	for i := range 2 * manyFiles {
		files[fmt.Sprint(i)] = fmt.Sprint("file ", i)
	}
	folder := newTree(t, files)
	for name, before := range map[string]func(node *FakeNode, w http.ResponseWriter, r *http.Request) bool{
		"an earlier version": func(_ *FakeNode, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/o/missing" {
				refuse(w, r, fault.MethodNotAllowed, "POST is not for an object")
				return true
			}
			return false
		},
		"wrong bytes": func(node *FakeNode, w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/files") {
				return node.many(w, r)
			}
			size := 0
			for _, text := range files {
				size += len(text)
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(bytes.Repeat([]byte("x"), size)))
			return true
		},
		"what is missing twice": func(node *FakeNode, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/o/missing" {
				return node.many(w, r)
			}
			var request MissingRequest
			_ = json.NewDecoder(r.Body).Decode(&request)
			raw, _ := json.Marshal(MissingResponse{append(request.Objects, append(request.Objects, b3.Of([]byte("nobody asked for it")))...)})
			writeJSON(w, 200, string(raw))
			return true
		},
	} {
		node := NewFakeNode()
		node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool { return before(node, w, r) }
		c := serve(t, node)
		whole, err := c.PutFolder(t.Context(), folder, FolderOptions{})
		if err != nil || whole.Sent != len(files) {
			t.Fatalf("%s: %d were sent: %v", name, whole.Sent, err)
		}
		into := filepath.Join(t.TempDir(), "copy")
		if _, err := c.GetFolder(t.Context(), whole.Manifest, into, FolderOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantTree(t, name, into, files)
	}
}

// A file that changes between its address and its turn is found out, and no
// manifest is stored.
func TestAFileOfManyChanges(t *testing.T) {
	files := map[string]string{}
	for i := range 2 * manyFiles {
		files[fmt.Sprint(i)] = fmt.Sprint("file ", i)
	}
	folder := newTree(t, files)
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == "/o/missing" {
			if err := os.WriteFile(filepath.Join(folder, "7"), []byte("other!"), 0o600); err != nil {
				t.Error(err)
			}
		}
		return node.many(w, r)
	}
	whole, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{})
	testkit.WantKind(t, err, fault.IntegrityFail, "a changed file")
	if _, there := node.object(whole.Address); there || node.counts()["POST /put"] != 0 {
		t.Errorf("a manifest was stored: %v", node.counts())
	}
}

// A node that says that it has stored other bytes than it was sent is not
// believed: no manifest is stored.
func TestABatchThatIsAnsweredWrongly(t *testing.T) {
	files := map[string]string{}
	for i := range 2 * manyFiles {
		files[fmt.Sprint(i)] = fmt.Sprint("file ", i)
	}
	folder := newTree(t, files)
	for what, c := range map[string]struct {
		answer string
		kind   fault.Kind
	}{
		"fewer": {`{"objects":[]}`, fault.UpstreamFailed},
		"other": {`{"objects":[` + strings.Repeat(`{"address":"`+b3.Of(nil).String()+`","size":0},`, 2*manyFiles-1) + `{"address":"` + b3.Of(nil).String() + `","size":0}]}`, fault.IntegrityFail},
	} {
		node := NewFakeNode()
		node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/o/batch" {
				_, _ = io.Copy(io.Discard, r.Body)
				writeJSON(w, 200, c.answer)
				return true
			}
			return node.many(w, r)
		}
		_, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{})
		testkit.WantKind(t, err, c.kind, what)
		if node.counts()["POST /put"] != 0 {
			t.Errorf("%s: a manifest was stored: %v", what, node.counts())
		}
	}
}

// What the node does not have it fetches, many files together. A node of an
// earlier version cannot, nor can one that may not: then each file is fetched by
// itself.
func TestManyFilesOfAnotherNode(t *testing.T) {
	files := map[string]string{"empty": ""}
	for i := range 3 * manyFiles {
		files[fmt.Sprint(i)] = fmt.Sprint("file ", i)
	}
	folder := newTree(t, files)
	for name, c := range map[string]struct {
		knows  bool
		here   int // files that the node has
		broken bool
		singly int // files that are fetched by themselves, at most
	}{
		"nothing is here":         {knows: true},
		"some are here":           {knows: true, here: 20},
		"it breaks in the middle": {knows: true, broken: true, singly: 2 * manyFiles},
		"an earlier version":      {singly: 3*manyFiles + 1},
	} {
		t.Run(name, func(t *testing.T) {
			far, near := NewFakeNode(), NewFakeNode()
			far.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool { return far.many(w, r) }
			whole, err := serve(t, far).PutFolder(t.Context(), folder, FolderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range whole.Manifest.Entries[:c.here] {
				data, _ := far.object(one.B3)
				near.Add(data)
			}
			raw, _ := far.object(whole.Address)
			near.Add(raw)
			broke := false
			near.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				path, fetched := strings.CutPrefix(r.URL.Path, "/fetch/")
				switch {
				case !fetched:
					return near.many(w, r)
				case c.knows && strings.HasSuffix(path, "/files"):
					r.URL.Path = "/o/" + path
					if c.broken {
						size := whole.Manifest.Size() / 2
						all := httptest.NewRecorder()
						far.many(all, r)
						if broke { // and then it has no more

							refuse(w, r, fault.NotFound, "it is the end")
							return true
						}
						broke = true
						w.Header()["Content-Length"], w.Header()["Content-Range"] = all.Header()["Content-Length"], all.Header()["Content-Range"]
						w.WriteHeader(all.Code)
						_, _ = w.Write(all.Body.Bytes()[:size])
						_ = http.NewResponseController(w).Flush()
						panic(http.ErrAbortHandler)
					}
					return far.many(w, r)
				case r.Method == http.MethodPost && !strings.HasSuffix(path, "/files"):
					address, _ := b3.Parse(path)
					data, _ := far.object(address)
					near.Add(data)
					writeJSON(w, 201, fmt.Sprintf(`{"address":"%s","size":%d}`, address, len(data)))
					return true
				}
				refuse(w, r, fault.MethodNotAllowed, "GET is not for that")
				return true
			}
			into := filepath.Join(t.TempDir(), "copy")
			last := int64(0)
			got, err := serve(t, near).GetFolder(t.Context(), whole.Manifest, into, FolderOptions{Parallel: 1, Progress: func(done, _ int64) { last = done }})
			if err != nil || got.Files != len(files) || last != got.Size {
				t.Fatalf("%+v, %d, %v", got, last, err)
			}
			wantTree(t, name, into, files)
			singly := 0
			for _, r := range near.seen() {
				if r.Method == http.MethodPost {
					singly++
				}
			}
			if singly > c.singly || c.singly > 0 && singly == 0 {
				t.Errorf("%d were fetched by themselves, of at most %d", singly, c.singly)
			}
		})
	}
}
