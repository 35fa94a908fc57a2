package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

// fakeIndex is a node with objects, names, and objects at other nodes.
type fakeIndex struct {
	mu            sync.Mutex
	objects       map[string][]byte
	names         map[string]string
	remoteObjects map[string][]byte
	refusal       fault.Kind // of requests that change something
	requests      []string
}

func newFakeIndex(t *testing.T) *fakeIndex {
	f := &fakeIndex{objects: map[string][]byte{}, names: map[string]string{}, remoteObjects: map[string][]byte{}}
	routes := map[string]http.HandlerFunc{}
	for pattern, route := range map[string]func(w http.ResponseWriter, r *http.Request, body []byte) (status int, document any){
		"POST /put": f.put, "POST /o": f.put, "GET /o/{b3}": f.get, "GET /fetch/{b3}": f.read, "POST /fetch/{b3}": f.fetch, "POST /overlay/fetch/{b3}": f.fetch,
		"PUT /names/{name}": f.set, "DELETE /names/{name}": f.remove, "GET /names": f.list, "GET /resolve/{id}": f.resolve, "GET /providers/{b3}": f.providers,
		"POST /admin/pin": f.pin, "POST /admin/unpin": f.pin, "POST /admin/reindex": f.reindex,
	} {
		routes[pattern] = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			f.mu.Lock()
			f.requests = append(f.requests, r.Method+" "+r.URL.String())
			status, document := route(w, r, body)
			if f.refusal != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasPrefix(pattern, "POST /put") {
				status, document = 0, fault.New("fake", f.refusal, "not you")
			}
			f.mu.Unlock()
			reply(w, status, document)
		}
	}
	fakeNode(t, routes)
	return f
}

// reply writes a document, raw bytes, or a problem.
func reply(w http.ResponseWriter, status int, document any) {
	switch document := document.(type) {
	case *fault.Error:
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(document.Kind.Status())
		_ = json.NewEncoder(w).Encode(observe.ProblemOf(document, "corr-1234"))
	case []byte:
		_, _ = w.Write(document)
	case nil:
		w.WriteHeader(status)
	default:
		raw, _ := json.Marshal(document)
		respondJSON(status, string(raw))(w, nil)
	}
}

func (f *fakeIndex) put(_ http.ResponseWriter, _ *http.Request, body []byte) (int, any) {
	if bytes.Contains(body, []byte("poison")) {
		return 0, fault.New("fake", fault.StoreFull, "no room")
	}
	f.objects[b3.Of(body).String()] = body
	return 201, client.Object{Address: b3.Of(body), Size: int64(len(body))}
}

func (f *fakeIndex) get(_ http.ResponseWriter, r *http.Request, _ []byte) (int, any) {
	data, ok := f.objects[r.PathValue("b3")]
	if !ok {
		return 0, fault.New("fake", fault.NotFound, "there is no such object")
	}
	return 200, data
}

// read sends an object while the node fetches it.
func (f *fakeIndex) read(_ http.ResponseWriter, r *http.Request, _ []byte) (int, any) {
	data, ok := f.remoteObjects[r.PathValue("b3")]
	switch {
	case f.refusal != 0:
		return 0, fault.New("fake", f.refusal, "not you")
	case !ok:
		return 0, fault.New("fake", fault.NotFound, "nobody has it")
	}
	f.objects[r.PathValue("b3")] = data
	return 200, data
}

func (f *fakeIndex) fetch(_ http.ResponseWriter, r *http.Request, _ []byte) (int, any) {
	data, ok := f.remoteObjects[r.PathValue("b3")]
	if !ok || f.refusal != 0 {
		return 0, fault.New("fake", fault.NotFound, "nobody has it")
	}
	f.objects[r.PathValue("b3")] = data
	return 201, client.Object{Address: b3.Of(data), Size: int64(len(data))}
}

func (f *fakeIndex) set(_ http.ResponseWriter, r *http.Request, body []byte) (int, any) {
	var wanted client.NameRequest
	_ = json.Unmarshal(body, &wanted)
	if r.PathValue("name") == "governed" {
		return 0, fault.New("fake", fault.Conflict, "the registry holds this name")
	}
	f.names[r.PathValue("name")] = wanted.Manifest.String()
	return 200, client.NameRecord{Name: r.PathValue("name"), Manifest: wanted.Manifest, Seq: 1}
}

func (f *fakeIndex) remove(_ http.ResponseWriter, r *http.Request, _ []byte) (int, any) {
	if f.names[r.PathValue("name")] == "" {
		return 0, fault.New("fake", fault.NotFound, "there is no such name")
	}
	delete(f.names, r.PathValue("name"))
	return 204, nil
}

func (f *fakeIndex) list(http.ResponseWriter, *http.Request, []byte) (int, any) {
	page := client.NameList{}
	for name, address := range f.names {
		manifest, _ := b3.Parse(address)
		page.Names = append(page.Names, client.NameRecord{Name: name, Manifest: manifest, Seq: 1, Shadowed: name == "old"})
	}
	return 200, page
}

func (f *fakeIndex) resolve(_ http.ResponseWriter, r *http.Request, _ []byte) (int, any) {
	address, err := b3.Parse(f.names[strings.TrimPrefix(r.PathValue("id"), "name:")])
	if err != nil {
		return 0, fault.New("fake", fault.NotFound, "nobody knows the name")
	}
	return 200, client.Resolution{Key: r.PathValue("id"), Kind: client.KindName, Manifest: address, Source: "local", Freshness: 61,
		Stale: r.URL.Query().Get("fresh") == "false", Providers: someProviders}
}

var someProviders = []client.Provider{
	{ID: someID, Addr: "10.0.0.7:9500", Region: "eu", Class: "best", Score: 0.876, Latency: "near", LastSeen: 90},
	{ID: "12D3\x1b[31m", Class: "poor", Score: 0.1, Latency: "unknown", LastSeen: -1},
}

func (f *fakeIndex) providers(_ http.ResponseWriter, r *http.Request, _ []byte) (int, any) {
	address, _ := b3.Parse(r.PathValue("b3"))
	if address == b3.Of(nil) {
		return 200, client.Providers{CID: address, Hedge: client.Hedge{Winner: "none"}}
	}
	return 200, client.Providers{CID: address, Providers: someProviders, Hedge: client.Hedge{Fired: true, Winner: "beta"}}
}

func (f *fakeIndex) pin(_ http.ResponseWriter, _ *http.Request, body []byte) (int, any) {
	var wanted client.PinRequest
	_ = json.Unmarshal(body, &wanted)
	if f.objects[wanted.B3.String()] == nil {
		return 0, fault.New("fake", fault.NotFound, "there is no such object")
	}
	return 200, client.Pinned{B3: wanted.B3, Pinned: true}
}

func (f *fakeIndex) reindex(http.ResponseWriter, *http.Request, []byte) (int, any) {
	return 202, client.Reindexed{Objects: len(f.objects)}
}

// moveToRemote moves all objects to other nodes.
func (f *fakeIndex) moveToRemote() {
	f.remoteObjects, f.objects = f.objects, map[string][]byte{}
}

// writeFiles writes files into a new folder.
func writeFiles(t *testing.T, list map[string]string) string {
	folder := filepath.Join(t.TempDir(), "site")
	for name, content := range list {
		path := filepath.Join(folder, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return folder
}

// mustRun runs a command that must succeed, and returns its output.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, args)
	return s.stdout.String()
}

func addressOf(content string) string { return b3.Of([]byte(content)).String() }

func TestPuttingAFolder(t *testing.T) {
	node := newFakeIndex(t)
	folder := writeFiles(t, map[string]string{"b.txt": "two", "a/a.txt": "one"})
	lines := strings.Split(mustRun(t, "put", folder, "--name", "name:docs"), "\n")
	if len(lines) != 4 || lines[0] != addressOf("one")+"  "+folder+"/a/a.txt" || lines[1] != addressOf("two")+"  "+folder+"/b.txt" || lines[2] != node.names["docs"]+"  "+folder+"  name:docs" {
		t.Errorf("%q; docs is %s", lines, node.names["docs"])
	}
	manifest := node.names["docs"]
	if m, err := client.DecodeManifest(node.objects[manifest]); err != nil || len(m.Entries) != 2 {
		t.Errorf("%v, %v", m, err)
	}
	var printed []storedFile
	for line := range strings.Lines(mustRun(t, "put", folder, "--json")) {
		var one storedFile
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Error(err)
		}
		printed = append(printed, one)
	}
	if len(printed) != 3 || printed[0].Size != 3 || printed[2] != (storedFile{File: folder, Address: mustParse(t, manifest), Size: int64(len(node.objects[manifest]))}) {
		t.Errorf("%+v", printed)
	}

	// A file that cannot be stored: the name stays as it was, and a link is
	// skipped with a line.
	bad := writeFiles(t, map[string]string{"a": "fine", "b": "poison"})
	s := newTestConsole(t)
	s.expect(t, t.Context(), fault.StoreFull.Exit(), []string{"put", bad, "--name", "docs"}, filepath.Join(bad, "b")+": no room")
	testkit.Must(t, os.Symlink("a", filepath.Join(bad, "link")))
	s.expect(t, t.Context(), fault.StoreFull.Exit(), []string{"put", bad, "--name", "docs"}, "skipped "+filepath.Join(bad, "link")+": it is a link")
	if node.names["docs"] != manifest || s.stdout.Len() > 0 {
		t.Errorf("docs is %s; it printed %q", node.names["docs"], &s.stdout)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"put", folder, bad, "--name", "docs"}, "--name takes one file or folder")

	// One file may have a name, too. If the name cannot be set, the address is
	// printed all the same.
	file := filepath.Join(folder, "b.txt")
	if got := mustRun(t, "put", file, "--name", "two"); got != addressOf("two")+"  "+file+"  name:two\n" || node.names["two"] != addressOf("two") {
		t.Errorf("%q; two is %s", got, node.names["two"])
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), fault.Conflict.Exit(), []string{"put", file, "--name", "governed"}, "the registry holds this name")
	if s.stdout.String() != addressOf("two")+"  "+file+"\n" {
		t.Errorf("it printed %q", &s.stdout)
	}
}

func mustParse(t *testing.T, text string) b3.Address {
	t.Helper()
	address, err := b3.Parse(text)
	testkit.Must(t, err)
	return address
}

func TestGettingAFolder(t *testing.T) {
	node := newFakeIndex(t)
	mustRun(t, "put", writeFiles(t, map[string]string{"b.txt": "two", "a/a.txt": "one"}), "--name", "docs")
	manifest := node.names["docs"]
	into := filepath.Join(t.TempDir(), "copy")

	if got, want := mustRun(t, "get", "name:docs", "-o", into), manifest+"  "+into+"  2 files, 6 bytes\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if data, err := os.ReadFile(filepath.Join(into, "a/a.txt")); err != nil || string(data) != "one" {
		t.Errorf("%q, %v", data, err)
	}
	if got, want := mustRun(t, "get", "name:docs", "-o", into), manifest+"  "+into+"  2 files, 6 bytes; 2 there already\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got, want := mustRun(t, "get", manifest, "--json", "-o", into), fmt.Sprintf(`{"file":%q,"address":%q,"size":6,"files":2,"kept":2}`+"\n", into, manifest); got != want {
		t.Errorf("%q, not %q", got, want)
	}

	// The listing.
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"get", "name:docs"}, "fetch its files with -o DIR")
	if want := "  path     size  address\n  a/a.txt  3     " + addressOf("one") + "\n  b.txt    3     " + addressOf("two") + "\n"; s.stdout.String() != want {
		t.Errorf("%q", &s.stdout)
	}
	if got, want := mustRun(t, "get", "name:docs", "--json"), fmt.Sprintf(`{"name":"docs","address":%q,"size":6,"entries":[{"path":"a/a.txt","size":3,"address":%q,"type":"text/plain; charset=utf-8"},{"path":"b.txt","size":3,"address":%q,"type":"text/plain; charset=utf-8"}]}`+"\n",
		manifest, addressOf("one"), addressOf("two")); got != want {
		t.Errorf("%s", got)
	}
	// The manifest itself.
	if got := mustRun(t, "get", "name:docs", "-o", "-"); got != string(node.objects[manifest]) {
		t.Errorf("%s", got)
	}
	if got := mustRun(t, "get", manifest); got != string(node.objects[manifest]) {
		t.Errorf("%s", got)
	}
	file := filepath.Join(t.TempDir(), "manifest")
	if mustRun(t, "get", manifest, "-o", file); fmt.Sprint(os.ReadFile(file)) != fmt.Sprint(node.objects[manifest], nil) {
		t.Error("the manifest was not written as a file")
	}
	newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"get", "name:docs", "-o", file}, file+" is a file, where a folder would be written")

	// An object that only other nodes have is fetched.
	node.moveToRemote()
	other := filepath.Join(t.TempDir(), "other") + "/"
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", "name:docs", "--local", "-o", other}, "the node does not have "+manifest, "Leave out --local")
	mustRun(t, "get", manifest, "-o", other)
	if data, err := os.ReadFile(filepath.Join(other, "b.txt")); err != nil || string(data) != "two" {
		t.Errorf("%q, %v", data, err)
	}
	node.moveToRemote()
	if mustRun(t, "get", "name:docs", "--peer", someID, "-o", filepath.Join(t.TempDir(), "third")); strings.Count(fmt.Sprint(node.requests), "/overlay/fetch/") != 3 {
		t.Errorf("%q", node.requests)
	}
}

// A name may stand for one file.
func TestANameOfAFile(t *testing.T) {
	node := newFakeIndex(t)
	file := filepath.Join(writeFiles(t, map[string]string{"a": "some words"}), "a")
	mustRun(t, "put", file, "--name", "words")
	if got := mustRun(t, "get", "name:words"); got != "some words" {
		t.Errorf("%q", got)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if got, want := mustRun(t, "get", "name:words", "-o", copied, "--json"), fmt.Sprintf(`{"file":%q,"address":%q,"size":10,"name":"words"}`+"\n", copied, addressOf("some words")); got != want {
		t.Errorf("%s", got)
	}
	for _, path := range []string{filepath.Dir(copied), copied + "/"} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", "name:words", "-o", path}, "is one file, and cannot become the folder "+path, "this is a folder")
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", "name:words", "--json"}, "cannot both go to standard output")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", "name:nothing"}, "nobody knows the name")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", "name:words", "--local", "--peer", "any"}, "contradict")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", "name:words", "--peer", "nobody"})

	// A manifest that is not valid any more.
	raw := []byte(`{"entries":[{"b3":"` + addressOf("") + `","path":"../a","size":0,"type":"text/plain"}],"type":"micronode manifest v1"}`)
	node.objects[b3.Of(raw).String()], node.names["evil"] = raw, b3.Of(raw).String()
	into := filepath.Join(t.TempDir(), "evil")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", "name:evil", "-o", into}, `"../a"`, "Do not use it.")
	if _, err := os.Lstat(into); err == nil {
		t.Error("something was written")
	}
}

// Why an object is not available, in words that help.
func TestAnObjectThatIsNowhere(t *testing.T) {
	node := newFakeIndex(t)
	absent := addressOf("absent")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", absent}, "the node does not have "+absent+", and found no provider for it", "micronode peers add")
	for _, kind := range []fault.Kind{fault.Unauthorized, fault.Forbidden} {
		node.refusal = kind
		newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", absent}, "a fetch needs a token\nSet MICRO_TOKEN to a token with the scope object:put")
	}
	node.refusal = fault.StoreFull
	newTestConsole(t).expect(t, t.Context(), fault.StoreFull.Exit(), []string{"get", absent}, "not you")
}

// All files of a folder share one progress bar, which is cleared at the end.
func TestTheMeterOfAFolder(t *testing.T) {
	newFakeIndex(t)
	folder := writeFiles(t, map[string]string{"a": strings.Repeat("x", 1<<20), "b": strings.Repeat("y", 1<<20)})
	s := newTestConsole(t)
	s.errTerminal = true
	s.expect(t, t.Context(), 0, []string{"put", folder, "--name", "docs"}, "site ")
	into := filepath.Join(t.TempDir(), "copy")
	s.stderr.Reset()
	s.expect(t, t.Context(), 0, []string{"get", "name:docs", "-o", into}, "copy ")
	lines := strings.Split(strings.TrimRight(s.stderr.String(), "\r"), "\r")
	if last := lines[len(lines)-1]; strings.TrimSpace(last) != "" {
		t.Errorf("left on the screen: %q", last)
	}
	// Nothing to show, and nothing shown.
	s = newTestConsole(t)
	s.errTerminal = true
	if s.expect(t, t.Context(), 0, []string{"put", writeFiles(t, map[string]string{"a": "x"})}); s.stderr.Len() > 0 {
		t.Errorf("%q", &s.stderr)
	}
}

// With --json, progress is a line a second on standard error, from the first
// second on, with the rate and the time that is left.
func TestProgressInJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestConsole(t)
		s.json = true
		bar := s.newProgressBar("map.pmtiles", 1_000)
		for done := int64(0); done <= 1_000; done += 100 {
			bar.set(done, 1_000)
			time.Sleep(time.Second / 4)
		}
		bar.clear()
		want := `{"progress":"map.pmtiles","done":400,"total":1000,"bytes_per_s":400,"left_s":1}` + "\n" +
			`{"progress":"map.pmtiles","done":800,"total":1000,"bytes_per_s":400,"left_s":0}` + "\n"
		if got := s.stderr.String(); got != want || s.stdout.Len() > 0 {
			t.Errorf("%s and %s", got, &s.stdout)
		}

		// What was there before did not come at the rate of what comes.
		s.stderr.Reset()
		const had, total = 6 << 20, 8 << 20
		bar = s.newProgressBar("resumed.pmtiles", total)
		for done := int64(had); done <= had+400_000; done += 100_000 {
			bar.set(done, total)
			time.Sleep(time.Second / 4)
		}
		bar.clear()
		if got, want := s.stderr.String(), `{"progress":"resumed.pmtiles","done":6691456,"total":8388608,"bytes_per_s":400000,"left_s":4}`+"\n"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
