package index

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// folderOverlay is an overlay whose peers have the files of a folder.
type folderOverlay struct {
	fakeOverlay
	manifest b3.Address
	raw      []byte
	texts    []string // of the files, in order

	mu     sync.Mutex
	asked  []string // which peer was asked for what
	change map[oap.PeerID]func(view oap.View, data []byte) ([]byte, error)
}

// newFolderOverlay makes a folder, and gives it to some peers.
func newFolderOverlay(t *testing.T, texts []string, peers ...string) *folderOverlay {
	t.Helper()
	f := &folderOverlay{texts: texts, change: map[oap.PeerID]func(oap.View, []byte) ([]byte, error){}}
	var m client.Manifest
	for i, text := range texts {
		m.Entries = append(m.Entries, client.Entry{Path: fmt.Sprintf("%05d", i), B3: b3.Of([]byte(text)), Size: int64(len(text)), Type: "text/plain"})
	}
	var err error
	f.raw, err = m.Encode()
	testkit.Must(t, err)
	f.manifest = b3.Of(f.raw)
	for _, name := range peers {
		at := providerOf(name)
		at.HTTP = nil
		f.join(name, answersAfter(0, at))
	}
	return f
}

func (f *folderOverlay) OpenPart(_ context.Context, a b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error) {
	f.mu.Lock()
	f.asked = append(f.asked, string(view))
	change := f.change[peer]
	f.mu.Unlock()
	var data []byte
	switch {
	case view == oap.Files && a == f.manifest:
		data = []byte(strings.Join(f.texts, ""))
	case view == oap.Whole && a == f.manifest:
		data = f.raw
	case view == oap.Whole:
		if i := slices.IndexFunc(f.texts, func(text string) bool { return b3.Of([]byte(text)) == a }); i >= 0 {
			data = []byte(f.texts[i])
			break
		}
		fallthrough
	default:
		return nil, fault.New("test", fault.NotFound, "it has no %s%s", a, view)
	}
	data = bytes.Clone(data)
	if change != nil {
		var err error
		if data, err = change(view, data); err != nil {
			return nil, err
		}
	}
	data = data[min(from, int64(len(data))):]
	return io.NopCloser(bytes.NewReader(data[:min(length, int64(len(data)))])), nil
}

// count returns how often a view was asked for.
func (f *folderOverlay) count(view oap.View) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.asked {
		if one == string(view) {
			n++
		}
	}
	return n
}

// readFiles reads a range of the files of a folder as an HTTP client does.
func readFiles(t *testing.T, r *testIndex, manifest b3.Address, byteRange string) (string, error) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/fetch/"+manifest.String()+"/files", nil)
	request.SetPathValue("b3", manifest.String())
	if byteRange != "" {
		request.Header.Set("Range", byteRange)
	}
	answer := httptest.NewRecorder()
	err := r.handleReadFiles(answer, request)
	return answer.Body.String(), err
}

func manyTexts() (texts []string) {
	for i := range 300 {
		texts = append(texts, fmt.Sprintf("text %d of many\n", i/2*2)) // each is there twice
		if i%50 == 0 {
			texts = append(texts, "")
		}
	}
	return texts
}

// The files of a folder come together from a peer, are stored, and are not
// fetched a second time. A range brings those that it needs.
func TestTheFilesOfAFolderComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := newFolderOverlay(t, manyTexts(), "ana")
		r := open(t, withOverlay(overlay))
		whole := strings.Join(overlay.texts, "")
		got, err := readFiles(t, r, overlay.manifest, "bytes=20-39")
		if err != nil || got != whole[20:40] || overlay.count(oap.Files) != 1 {
			t.Fatalf("%q %v, %d exchanges", got, err, overlay.count(oap.Files))
		}
		if objects := r.ram.Usage().Objects; objects > 4 {
			t.Errorf("%d objects for a part", objects)
		}
		if got, err = readFiles(t, r, overlay.manifest, ""); err != nil || got != whole || overlay.count(oap.Files) > 4 {
			t.Fatalf("%d bytes, %v, %d exchanges", len(got), err, overlay.count(oap.Files))
		}
		before := overlay.count(oap.Files)
		if got, err = readFiles(t, r, overlay.manifest, ""); err != nil || got != whole || overlay.count(oap.Files) != before || overlay.count(oap.Whole) != 1 {
			t.Errorf("again: %d bytes, %v, %d exchanges", len(got), err, overlay.count(oap.Files))
		}
		info, err := r.spec.Store.Stat(t.Context(), b3.Of([]byte(overlay.texts[0])))
		if err != nil || info.Class != store.Cached {
			t.Errorf("%+v %v", info, err)
		}
	})
}

// Of two peers one is wrong in some way. What is right is stored and passed on,
// nothing else is, and the rest comes from the other one.
func TestTheFilesOfAFolderComeFromWhoHasThem(t *testing.T) {
	overlayTexts := manyTexts()
	whole := strings.Join(overlayTexts, "")
	for name, c := range map[string]struct {
		change func(view oap.View, data []byte) ([]byte, error)
		lies   int
	}{
		"it lies": {func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files {
				data[len(data)/2]++
			}
			return data, nil
		}, 1},
		"it is cut": {func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files {
				data = data[:len(data)/3]
			}
			return data, nil
		}, 0},
		"it is of an earlier version": {func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files {
				return nil, fault.New("test", fault.Malformed, "that is no address")
			}
			return data, nil
		}, 0},
		"it is busy": {func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files {
				return nil, fault.New("test", fault.Busy, "later")
			}
			return data, nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				overlay := newFolderOverlay(t, overlayTexts, "ana", "bea")
				overlay.change[idOfNode("ana")] = c.change
				r := open(t, withOverlay(overlay), withQuorum3)
				got, err := readFiles(t, r, overlay.manifest, "")
				if err != nil || got != whole {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				synctest.Wait()
				if lies := len(r.log.ofType(Lied)); lies != c.lies {
					t.Errorf("%d lies", lies)
				}
			})
		})
	}
}

// If nobody sends files together, that is said at once: then they are fetched
// one by one. A liar without an alternative is no alternative either, and what
// it has sent is not passed on.
func TestNobodySendsFilesTogether(t *testing.T) {
	for name, c := range map[string]struct {
		change func(view oap.View, data []byte) ([]byte, error)
		lies   int
	}{
		"an earlier version": {func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files {
				return nil, fault.New("test", fault.Malformed, "that is no address")
			}
			return data, nil
		}, 0},
		"a liar": {func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files {
				data[0]++
			}
			return data, nil
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				overlay := newFolderOverlay(t, manyTexts(), "ana")
				overlay.change[idOfNode("ana")] = c.change
				r := open(t, withOverlay(overlay))
				got, err := readFiles(t, r, overlay.manifest, "")
				if testkit.WantKind(t, err, fault.NotFound, name); got != "" {
					t.Errorf("%q was passed on", got)
				}
				synctest.Wait()
				if objects, lies := r.ram.Usage().Objects, len(r.log.ofType(Lied)); objects != 1 || lies != c.lies {
					t.Errorf("%d objects, %d lies", objects, lies)
				}
			})
		})
	}
}

// A file that a provider of the folder does not have comes by itself, from
// whoever has it, and the others come together.
func TestAFileThatIsMissingAtAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := []string{"one", "two", "three", "four", "five"}
		overlay := newFolderOverlay(t, texts, "ana")
		lacks := true
		overlay.change[idOfNode("ana")] = func(view oap.View, data []byte) ([]byte, error) {
			if view == oap.Files && lacks {
				lacks = false // it is asked from the next file on then
				return nil, fault.New("test", fault.NotFound, "it does not have it any more")
			}
			return data, nil
		}
		r := open(t, withOverlay(overlay))
		got, err := readFiles(t, r, overlay.manifest, "")
		if err != nil || got != strings.Join(texts, "") || overlay.count(oap.Files) != 2 || overlay.count(oap.Whole) != 2 {
			t.Errorf("%q %v, %d exchanges, %d objects", got, err, overlay.count(oap.Files), overlay.count(oap.Whole))
		}
	})
}

// A manifest that says of a file what is not so is refused.
func TestAManifestThatLiesAboutASize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := newFolderOverlay(t, []string{"one", "two"}, "ana")
		m, err := client.DecodeManifest(overlay.raw)
		testkit.Must(t, err)
		m.Entries[0].Size++
		overlay.raw, err = m.Encode()
		testkit.Must(t, err)
		overlay.manifest = b3.Of(overlay.raw)
		r := open(t, withOverlay(overlay))
		if got, err := readFiles(t, r, overlay.manifest, ""); err == nil || got != "" {
			t.Errorf("%q %v", got, err)
		}
	})
}
