package edge

import (
	"bytes"
	"net/http"
	"time"

	"github.com/maypok86/otter/v2"

	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
)

// readyAnswer is an answer in the form in which it is written. It holds for a
// second at most, because then its Age is another.
type readyAnswer struct {
	*ingress.Prepared
	until time.Time
}

// answerCache keeps the answers for targets that were asked for lately, within
// a number of bytes, so that a hot object is not made ready again for each
// request. What goes when there is no room is decided by the library.
type answerCache struct {
	ready *otter.Cache[string, readyAnswer] // set at construction; nil if nothing is to be kept
}

func newAnswerCache(bytes int64) *answerCache {
	if bytes <= 0 {
		return &answerCache{}
	}
	return &answerCache{otter.Must(&otter.Options[string, readyAnswer]{
		MaximumWeight: uint64(bytes),
		Weigher:       func(target string, a readyAnswer) uint32 { return uint32(len(target) + a.Size() + tileOverhead) },
		Executor:      func(task func()) { task() },
	})}
}

// clear forgets all answers: after a purge, and when the list of origins is
// another.
func (c *answerCache) clear() {
	if c.ready != nil {
		c.ready.InvalidateAll()
	}
}

// warmAssets makes the answers for what origins sent.
type warmAssets struct{ edge *Edge }

// Lookup finds an answer, or makes it from what the cache holds fresh.
func (w warmAssets) Lookup(target []byte) (*ingress.Prepared, bool) {
	answers := w.edge.answers.ready
	if answers == nil {
		return nil, false
	}
	if known, ok := answers.GetIfPresent(string(target)); ok && time.Now().Before(known.until) {
		return known.Prepared, true
	}
	made, ok := w.edge.makeAnswer(target[len(assetsPrefix):])
	if !ok {
		return nil, false
	}
	answers.Set(string(target), made)
	return made.Prepared, true
}

// makeAnswer makes the answer that the handler would give to a plain GET. It
// reports false for everything that the handler should explain, or fetch.
func (e *Edge) makeAnswer(rest []byte) (readyAnswer, bool) {
	path, query, _ := bytes.Cut(rest, []byte{'?'})
	if suspicious(string(path)) != "" {
		return readyAnswer{}, false
	}
	host, below, _ := bytes.Cut(path, []byte{'/'})
	if e.isLocal(string(host)) {
		return readyAnswer{}, false
	}
	key, err := e.cache.Key(fill.Request{Host: string(host), Path: "/" + string(below), Query: string(query), Method: http.MethodGet})
	if err != nil {
		return readyAnswer{}, false
	}
	found, ok := e.cache.Peek(key)
	if !ok {
		return readyAnswer{}, false
	}
	header := http.Header{}
	relayHeader(header, found.Header)
	ingress.Content{Type: found.Header.Get("Content-Type")}.Header(header)
	prepared, err := ingress.Prepare(ingress.Preparation{Pattern: assetPattern, Header: header, Body: found.Body, Hits: e.metrics.hits})
	return readyAnswer{prepared, found.Until}, err == nil
}

// isLocal reports whether a name is that of a pack or of a file, which come
// before hosts.
func (e *Edge) isLocal(name string) bool {
	if e.assets != nil {
		if _, err := e.assets.Lstat(name); err == nil {
			return true
		}
	}
	p, err := e.packs.Open(name)
	if err == nil {
		p.Close()
	}
	return err == nil
}
