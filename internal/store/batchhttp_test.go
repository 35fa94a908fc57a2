package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

func encodeBatch(objects ...string) string {
	raw := []byte{}
	for _, one := range objects {
		address := b3.Of([]byte(one))
		raw = append(raw, address[:]...)
		raw = binary.LittleEndian.AppendUint64(raw, uint64(len(one)))
		raw = append(raw, one...)
	}
	return string(raw)
}

// A batch stores each of its objects, those of no bytes and those that are in
// it twice too, and says which are new.
func TestABatchOfObjects(t *testing.T) {
	for name, s := range stores(t) {
		f := newHTTPFixture(t, s, false)
		sent := []string{"one", "", strings.Repeat("x", 70_000), "one", "last"}
		for _, first := range []bool{true, false} {
			answer, body := f.ask(http.MethodPost, "/o/batch", encodeBatch(sent...))
			var got client.BatchResponse
			if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK || len(got.Objects) != len(sent) {
				t.Fatalf("%s: %s %s %v", name, answer.Status, body, err)
			}
			for i, want := range sent {
				if one := got.Objects[i]; one.Address != b3.Of([]byte(want)) || one.Size != int64(len(want)) || one.Created != (first && i != 3) {
					t.Errorf("%s: object %d is %+v", name, i, one)
				}
			}
		}
		if answer, body := f.ask(http.MethodPost, "/o/batch", ""); answer.StatusCode != http.StatusOK || body != "{\"objects\":[]}\n" {
			t.Errorf("%s: of nothing: %s %q", name, answer.Status, body)
		}
	}
}

// A batch that is too large, that ends too early or that lies is refused, with
// what to do next. What came before is stored, and nothing else.
func TestABatchThatIsRefused(t *testing.T) {
	lie := []byte(encodeBatch("false"))
	lie[len(lie)-1]++
	for name, s := range stores(t) {
		for what, c := range map[string]struct {
			body   string // after that of the first object
			status int
		}{
			"half an address": {"1234", http.StatusBadRequest},
			"half a size":     {encodeBatch("false")[:36], http.StatusBadRequest},
			"half a body":     {encodeBatch("false")[:42], http.StatusBadRequest},
			"too many":        {encodeBatch(make([]string, client.MaxBatchObjects)...) + encodeBatch("false"), http.StatusBadRequest},
			"one too large":   {encodeBatch(strings.Repeat("x", client.MaxBatchObject+1)), http.StatusRequestEntityTooLarge},
			"a lie":           {string(lie) + encodeBatch("false"), http.StatusBadGateway},
			"all too large":   {strings.Repeat(encodeBatch(strings.Repeat("x", client.MaxBatchObject)), client.MaxBatch/client.MaxBatchObject), http.StatusRequestEntityTooLarge},
		} {
			f := newHTTPFixture(t, s, false)
			first := name + what
			answer, text := f.ask(http.MethodPost, "/o/batch", encodeBatch(first)+c.body)
			var problem struct{ Code, Next string }
			if err := json.Unmarshal([]byte(text), &problem); err != nil || answer.StatusCode != c.status || problem.Next == "" {
				t.Errorf("%s: %s: %s %s %v", name, what, answer.Status, text, err)
			}
			if _, err := s.Stat(t.Context(), b3.Of([]byte(first))); err != nil && what != "all too large" { // its length is refused
				t.Errorf("%s: %s: what was before it is lost: %v", name, what, err)
			}
			if _, err := s.Stat(t.Context(), b3.Of([]byte("false"))); fault.KindOf(err) != fault.NotFound {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		f := newHTTPFixture(t, s, false)
		if answer, _ := f.ask(http.MethodPost, "/o/batch?want="+b3.Of(nil).String(), encodeBatch("one")); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: with one address for all: %s", name, answer.Status)
		}
	}
}

// What is missing is said, and what is there cannot be evicted any more.
func TestWhatIsMissing(t *testing.T) {
	for name, s := range stores(t) {
		f := newHTTPFixture(t, s, false)
		for i, class := range []Class{Pinned, Cached} {
			if _, _, err := s.Put(t.Context(), strings.NewReader(fmt.Sprint(i)), PutOptions{Size: Unknown, Class: class}); err != nil {
				t.Fatal(err)
			}
		}
		asked, _ := json.Marshal(client.MissingRequest{Objects: []b3.Address{b3.Of([]byte("0")), b3.Of([]byte("absent")), b3.Of([]byte("1"))}})
		answer, body := f.ask(http.MethodPost, "/o/missing", string(asked), "Content-Type", "application/json")
		var got client.MissingResponse
		if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK || len(got.Missing) != 1 || got.Missing[0] != b3.Of([]byte("absent")) {
			t.Errorf("%s: %s %s %v", name, answer.Status, body, err)
		}
		if info, err := s.Stat(t.Context(), b3.Of([]byte("1"))); err != nil || info.Class != Pinned {
			t.Errorf("%s: %+v %v", name, info, err)
		}
		many, _ := json.Marshal(client.MissingRequest{Objects: make([]b3.Address, client.MaxBatchObjects+1)})
		if answer, _ := f.ask(http.MethodPost, "/o/missing", string(many), "Content-Type", "application/json"); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: too many: %s", name, answer.Status)
		}
	}
}

// The files of a folder follow each other as in its manifest, whole and in
// parts. A file that is not here, or has another size, is not made up.
func TestTheFilesOfAFolder(t *testing.T) {
	for name, s := range stores(t) {
		f := newHTTPFixture(t, s, false)
		store := func(text string) b3.Address {
			info, _, err := s.Put(t.Context(), strings.NewReader(text), PutOptions{Size: Unknown})
			if err != nil {
				t.Fatal(err)
			}
			return info.Address
		}
		folder := func(entries ...client.Entry) string {
			raw, err := client.Manifest{Entries: entries}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return "/o/" + store(string(raw)).String() + "/files"
		}
		entry := func(path, text string) client.Entry {
			return client.Entry{Path: path, B3: b3.Of([]byte(text)), Size: int64(len(text)), Type: "text/plain"}
		}
		texts := []string{"first", "", strings.Repeat("second", 20_000), "", "first", "third"}
		var entries []client.Entry
		for i, text := range texts {
			store(text)
			entries = append(entries, entry(fmt.Sprint(i), text))
		}
		path, whole := folder(entries...), strings.Join(texts, "")
		for _, ranged := range []struct{ from, to int }{{0, len(whole)}, {0, 5}, {5, 6}, {4, 100_000}, {len(whole) - 5, len(whole)}, {len(whole) - 6, len(whole)}} {
			answer, body := f.ask(http.MethodGet, path, "", "Range", fmt.Sprintf("bytes=%d-%d", ranged.from, ranged.to-1))
			if answer.StatusCode != http.StatusPartialContent || body != whole[ranged.from:ranged.to] {
				t.Errorf("%s: %v: %s, %d bytes", name, ranged, answer.Status, len(body))
			}
		}
		if answer, body := f.ask(http.MethodGet, path, ""); answer.StatusCode != http.StatusOK || body != whole {
			t.Errorf("%s: %s, %d bytes", name, answer.Status, len(body))
		}
		wrong := entry("0", "first")
		wrong.Size++
		for what, path := range map[string]string{
			"a file that is missing":      folder(entry("0", "absent")),
			"a file of another size":      folder(wrong),
			"an object that is no folder": "/o/" + b3.Of([]byte("first")).String() + "/files",
		} {
			if answer, body := f.ask(http.MethodGet, path, ""); answer.StatusCode/100 != 4 {
				t.Errorf("%s: %s: %s %q", name, what, answer.Status, body)
			}
		}
	}
}
