package fill

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/store"
)

// withLargeStore has a store for large bodies.
func withLargeStore(s *Spec) {
	s.Store = store.NewRAM(store.RAMSpec{Budget: 256 << 20})
}

// chunkedOrigin is an origin that sends a chunk, or breaks off, each time the
// test says so. With a length of zero it does not announce its length.
type chunkedOrigin struct {
	length int
	chunk  []byte
	send   chan bool
}

func (c chunkedOrigin) answer(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Cache-Control", "max-age=60")
	if c.length > 0 {
		rw.Header().Set("Content-Length", fmt.Sprint(c.length))
	}
	for more := range c.send {
		if !more {
			panic(http.ErrAbortHandler)
		}
		_, _ = rw.Write(c.chunk)
		_ = http.NewResponseController(rw).Flush()
	}
}

// reader reads an answer as it arrives.
type reader struct {
	got  chan []byte
	done chan error
	bytes.Buffer
}

// startReading sends a request and reads in a goroutine of its own.
func (w *fixture) startReading(path string, header ...string) *reader {
	r := &reader{got: make(chan []byte, 4096), done: make(chan error, 1)}
	go func() {
		answer, err := w.Get(context.Background(), request(path, header...))
		if err == nil {
			err = answer.WriteRange(r, 0, answer.Size())
			answer.Close() // before done: the end of the test looks for handles that are open
		}
		r.done <- err
	}()
	return r
}

func (r *reader) Write(p []byte) (int, error) {
	r.got <- bytes.Clone(p)
	return r.Buffer.Write(p)
}

// A large body, and a slow one, are streamed to the waiters; a later waiter
// reads from the beginning; and then the body is stored.
func TestWhatComesIsPassedOn(t *testing.T) {
	for name, c := range map[string]struct {
		piece, n int
		declared bool
	}{
		"large":                    {96 << 10, 4, true},
		"large, of unknown length": {96 << 10, 4, false},
		"slow":                     {8 << 10, 5, true},
		"slow, of unknown length":  {8 << 10, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				o := chunkedOrigin{chunk: bytes.Repeat([]byte("0123456789abcdef"), c.piece/16), send: make(chan bool)}
				if c.declared {
					o.length = c.n * c.piece
				}
				w.origin(o.answer)
				first := w.startReading("/")
				o.send <- true
				if got := <-first.got; len(got) == 0 {
					t.Error("nothing came")
				}
				second := w.startReading("/")
				for range c.n - 1 {
					time.Sleep(4 * time.Second) // less than edge.fill.timeout, but more in all
					o.send <- true
				}
				close(o.send)
				for who, r := range map[string]*reader{"first": first, "second": second} {
					if err := <-r.done; err != nil || r.Len() != c.n*c.piece || !bytes.Equal(r.Bytes(), bytes.Repeat(o.chunk, c.n)) {
						t.Errorf("the %s got %d bytes, %v", who, r.Len(), err)
					}
				}
				synctest.Wait() // a reader may have the last byte before the store has it
				if got := w.get("/"); !got.Hit || len(got.body) != c.n*c.piece {
					t.Errorf("it was not kept: hit %v, %d bytes", got.Hit, len(got.body))
				}
				w.wantAsked(1)
				if w.coalesced != 1 {
					t.Errorf("%d joined", w.coalesced)
				}
			})
		})
	}
}

// A body that breaks off has no clean end, and leaves nothing behind.
func TestWhatBreaksOffHasNoEnd(t *testing.T) {
	for name, length := range map[string]int{"declared": 1 << 20, "unknown": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				o := chunkedOrigin{length: length, chunk: make([]byte, 128<<10), send: make(chan bool)}
				w.origin(o.answer)
				r := w.startReading("/")
				o.send <- true
				<-r.got
				o.send <- false
				if err := <-r.done; fault.KindOf(err) != fault.UpstreamFailed {
					t.Errorf("%d bytes, and then %v", r.Len(), err)
				}
				synctest.Wait()
				w.wantEmpty()
			})
		})
	}
}

// slowStore is a store that takes a second for each piece that it reads.
type slowStore struct{ store.Store }

func (s slowStore) Put(ctx context.Context, r io.Reader, o store.PutOptions) (store.Info, bool, error) {
	return s.Store.Put(ctx, slowReader{r}, o)
}

type slowReader struct{ io.Reader }

func (s slowReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	time.Sleep(time.Second)
	return n, err
}

// A body has its last bytes only when the whole of it is accepted: a reader
// that has as many as were declared takes it for complete.
func TestWhatIsRefusedAtTheEndHasNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		kind fault.Kind
	}{
		"a bomb":      {bomb(t, "gzip"), fault.RatioCap},
		"half a gzip": {bomb(t, "gzip")[:100], fault.UpstreamFailed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t, func(s *Spec) { s.Store = slowStore{store.NewRAM(store.RAMSpec{Budget: 64 << 20})} })
				w.origin(func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Cache-Control", "max-age=60")
					rw.Header().Set("Content-Encoding", "gzip")
					rw.Header().Set("Content-Length", fmt.Sprint(len(c.body)))
					_, _ = rw.Write(c.body)
				})
				r := w.startReading("/")
				if err := <-r.done; fault.KindOf(err) != c.kind || r.Len() >= len(c.body) {
					t.Errorf("%d of %d bytes, and then %v; want fewer, and %s", r.Len(), len(c.body), err, c.kind)
				}
				synctest.Wait()
				w.wantEmpty()
			})
		})
	}
}

// A request after a body broke off is not affected: no waiter boards a flight
// whose body has failed.
func TestNobodyJoinsWhatBrokeOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.Timeout, c.Tries = 7*time.Second, 2 }))
		o := chunkedOrigin{length: 256 << 10, chunk: make([]byte, 128<<10), send: make(chan bool)}
		w.origin(o.answer)
		go func() { o.send <- true }()
		first, err := w.Get(context.Background(), request("/"))
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close() // as long as it waits, there will be another try
		if err := first.WriteRange(io.Discard, 0, first.Size()); fault.KindOf(err) != fault.Timeout {
			t.Errorf("the origin stopped, and: %v", err)
		}
		close(o.send)

		began := time.Now()
		w.origin(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "whole") })
		if got := w.get("/"); got.body != "whole" || time.Since(began) > 0 {
			t.Errorf("%q after %s", got.body, time.Since(began))
		}
	})
}

// An origin that stops in the middle times out after edge.fill.timeout, and so
// does one that sends next to nothing.
func TestWhatStopsIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.Timeout, c.Tries = 7*time.Second, 1 }))
		o := chunkedOrigin{length: 1 << 20, chunk: make([]byte, 128<<10), send: make(chan bool)}
		w.origin(o.answer)
		r := w.startReading("/")
		o.send <- true
		<-r.got
		began := time.Now()
		if err := <-r.done; fault.KindOf(err) != fault.Timeout || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(o.send)

		drop := chunkedOrigin{length: 1 << 20, chunk: []byte("x"), send: make(chan bool, 100)}
		w.origin(drop.answer)
		r = w.startReading("/drops")
		for range 20 {
			drop.send <- true
			time.Sleep(time.Second)
		}
		if err := <-r.done; fault.KindOf(err) != fault.Timeout || r.Len() > 10 {
			t.Errorf("%d bytes, %v", r.Len(), err)
		}
		close(drop.send)
		w.wantEmpty()
	})
}

// Readers that do not read delay no others, and cost a bounded amount of
// memory. They continue with the stored copy.
func TestASlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, withLargeStore)
		const n, size = 48, 1 << 20
		o := chunkedOrigin{length: n * size, chunk: bytes.Repeat([]byte("0123456789abcdef"), size/16), send: make(chan bool)}
		w.origin(o.answer)
		quick := w.startReading("/")
		o.send <- true
		<-quick.got
		slow, err := w.Get(t.Context(), request("/"))
		if err != nil || !slow.Streaming() {
			t.Fatalf("%+v, %v", slow, err)
		}
		defer slow.Close()
		for range n - 1 {
			o.send <- true
			synctest.Wait()
			if held := w.streaming.used.Load(); held > int64(DefaultCacheConfig().ArrivingBytes) {
				t.Fatalf("%d bytes are held", held)
			}
		}
		close(o.send)
		if err := <-quick.done; err != nil || quick.Len() != n*size {
			t.Errorf("the quick one: %d bytes, %v", quick.Len(), err)
		}
		var late bytes.Buffer
		if err := slow.WriteRange(&late, 0, slow.Size()); err != nil || !bytes.Equal(late.Bytes(), quick.Bytes()) {
			t.Errorf("the slow one: %d bytes, %v", late.Len(), err)
		}
		w.wantAsked(1)
	})
}

// A part of a body that is arriving is sent as soon as it is there.
func TestARangeOfWhatComes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		o := chunkedOrigin{length: 384 << 10, chunk: bytes.Repeat([]byte("0123456789abcdef"), 8<<10), send: make(chan bool)}
		w.origin(o.answer)
		go func() { o.send <- true; o.send <- true }()
		answer, err := w.Get(t.Context(), request("/"))
		if err != nil || !answer.Streaming() || answer.Size() != 384<<10 {
			t.Fatalf("%+v, %v", answer, err)
		}
		defer answer.Close()
		var part bytes.Buffer
		if err := answer.WriteRange(&part, 130<<10, 16); err != nil || part.String() != "0123456789abcdef" {
			t.Errorf("%q, %v", part.String(), err)
		}
		o.send <- true
		close(o.send)
	})
}

// A body that is for one request only is not streamed to other waiters either.
func TestWhatComesForOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Cache-Control", "private")
			_, _ = io.WriteString(rw, strings.Repeat(fmt.Sprintf("%016d", len(w.requests())), 16<<10))
			time.Sleep(time.Second)
			_, _ = io.WriteString(rw, "end")
		})
		a, b := w.startReading("/"), w.startReading("/")
		if err := <-a.done; err != nil {
			t.Error(err)
		}
		if err := <-b.done; err != nil || bytes.Equal(a.Bytes()[:16], b.Bytes()[:16]) {
			t.Errorf("one got what is the other's, or nothing: %v", err)
		}
	})
}

// A body that is too large is refused before the first byte if the origin
// announces its length, and cut off if it does not.
func TestTooLargeWhileItComes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.MaxBytes = config.Size(256 << 10) }))
		o := chunkedOrigin{length: 512 << 10, chunk: make([]byte, 128<<10), send: make(chan bool, 8)}
		w.origin(o.answer)
		o.send <- true
		w.wantRefused(request("/said"), fault.UpstreamFailed, ReasonBody)
		close(o.send)
		o = chunkedOrigin{chunk: make([]byte, 128<<10), send: make(chan bool, 8)}
		w.origin(o.answer)
		for range 4 {
			o.send <- true
		}
		r := w.startReading("/unsaid")
		if err := <-r.done; fault.KindOf(err) != fault.UpstreamFailed {
			t.Errorf("%d bytes, %v", r.Len(), err)
		}
		close(o.send)
		w.wantEmpty()
	})
}

// Readers get an error when the cache closes, and nothing stays.
func TestClosingWhileItComes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		o := chunkedOrigin{length: 1 << 20, chunk: make([]byte, 128<<10), send: make(chan bool)}
		w.origin(o.answer)
		r := w.startReading("/")
		o.send <- true
		<-r.got
		go func() { time.Sleep(10 * time.Second); close(o.send) }()
		w.stop()
		if err := <-r.done; err == nil {
			t.Error("half a body came to a clean end")
		}
	})
}
