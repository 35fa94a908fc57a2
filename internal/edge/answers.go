package edge

import (
	"bytes"
	"net/http"
	"sync/atomic"
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

	cleared atomic.Uint64 // how often all were forgotten
}

func newAnswerCache(bytes int64) *answerCache {
	if bytes <= 0 {
		return &answerCache{}
	}
	return &answerCache{ready: otter.Must(&otter.Options[string, readyAnswer]{
		MaximumWeight: uint64(bytes),
		Weigher:       func(target string, a readyAnswer) uint32 { return uint32(len(target) + a.Size() + tileOverhead) },
		Executor:      func(task func()) { task() },
	})}
}

// clear forgets all answers: after a purge, and when the list of origins is
// another.
func (c *answerCache) clear() {
	if c.ready != nil {
		c.cleared.Add(1)
		c.ready.InvalidateAll()
	}
}

// keep puts an answer there that was begun when all had been forgotten so often.
//
// To forget is to count first and to empty second; here the answer is put there
// first and the count looked at second. So whichever way the two interleave,
// what was made of something that is purged does not stay.
func (c *answerCache) keep(target string, made readyAnswer, begun uint64) {
	c.ready.Set(target, made)
	if c.cleared.Load() != begun {
		c.ready.Invalidate(target)
	}
}

// warmAssets makes the answers for what origins sent.
type warmAssets struct{ edge *Edge }

// Lookup finds an answer, or makes it from what the cache holds fresh.
func (w warmAssets) Lookup(target []byte) (*ingress.Prepared, bool) {
	answers := w.edge.answers
	if answers.ready == nil {
		return nil, false
	}
	if known, ok := answers.ready.GetIfPresent(string(target)); ok && time.Now().Before(known.until) {
		return known.Prepared, true
	}
	begun := answers.cleared.Load()
	made, ok := w.edge.makeAnswer(target[len(assetsPrefix):])
	if !ok {
		return nil, false
	}
	answers.keep(string(target), made, begun)
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
