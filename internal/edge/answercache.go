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

// preparedAnswer is an answer as it is written to the connection. It is valid
// for a second at most, because its Age changes then.
type preparedAnswer struct {
	*ingress.PreparedResponse
	validUntil time.Time
}

// answerCache keeps the answers for recently requested targets, within a number
// of bytes, so that a hot object is not prepared again for each request. The
// library decides what is evicted.
type answerCache struct {
	answers *otter.Cache[string, preparedAnswer] // set at construction; nil if nothing is to be kept

	generation atomic.Uint64 // how often the cache was cleared
}

func newAnswerCache(bytes int64) *answerCache {
	if bytes <= 0 {
		return &answerCache{}
	}
	return &answerCache{answers: otter.Must(&otter.Options[string, preparedAnswer]{
		MaximumWeight: uint64(bytes),
		Weigher:       func(target string, a preparedAnswer) uint32 { return uint32(len(target) + a.Size() + tileOverhead) },
		Executor:      func(task func()) { task() },
	})}
}

// clear drops all answers: after a purge, and when the list of origins changes.
func (c *answerCache) clear() {
	if c.answers != nil {
		c.generation.Add(1)
		c.answers.InvalidateAll()
	}
}

// insert stores an answer whose preparation began at the given generation.
//
// clear increments the generation first and empties the cache second; insert
// stores the answer first and checks the generation second. So however the two
// interleave, an answer prepared from a purged entry does not stay.
func (c *answerCache) insert(target string, answer preparedAnswer, generation uint64) {
	c.answers.Set(target, answer)
	if c.generation.Load() != generation {
		c.answers.Invalidate(target)
	}
}

// warmAssets prepares the answers for objects of origins.
type warmAssets struct{ edge *Edge }

// Lookup finds a prepared answer, or prepares one from a fresh cache entry.
func (w warmAssets) Lookup(target []byte) (*ingress.PreparedResponse, bool) {
	answers := w.edge.answers
	if answers.answers == nil {
		return nil, false
	}
	if known, ok := answers.answers.GetIfPresent(string(target)); ok && time.Now().Before(known.validUntil) {
		return known.PreparedResponse, true
	}
	generation := answers.generation.Load()
	answer, ok := w.edge.prepareAnswer(target[len(assetsPrefix):])
	if !ok {
		return nil, false
	}
	answers.insert(string(target), answer, generation)
	return answer.PreparedResponse, true
}

// prepareAnswer makes the answer that the handler would give to a plain GET. It
// reports false for everything that the handler has to fetch, or to answer with
// an error.
func (e *Edge) prepareAnswer(rest []byte) (preparedAnswer, bool) {
	path, query, _ := bytes.Cut(rest, []byte{'?'})
	if pathTrick(string(path)) != "" {
		return preparedAnswer{}, false
	}
	host, below, _ := bytes.Cut(path, []byte{'/'})
	if e.isLocal(string(host)) {
		return preparedAnswer{}, false
	}
	key, err := e.cache.Key(fill.Request{Host: string(host), Path: "/" + string(below), Query: string(query), Method: http.MethodGet})
	if err != nil {
		return preparedAnswer{}, false
	}
	found, ok := e.cache.Peek(key)
	if !ok {
		return preparedAnswer{}, false
	}
	header := http.Header{}
	relayHeader(header, found.Header)
	ingress.Content{Type: found.Header.Get("Content-Type")}.Header(header)
	prepared, err := ingress.Prepare(ingress.PreparedSpec{Pattern: assetPattern, Header: header, Body: found.Body, Hits: e.metrics.hits})
	return preparedAnswer{prepared, found.ValidUntil}, err == nil
}

// isLocal reports whether a name is that of a pack or of a file, which take
// precedence over hosts.
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
