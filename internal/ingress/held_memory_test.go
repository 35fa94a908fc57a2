package ingress

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/config"
)

// heldFixture has 1 MiB for what requests hold.
func heldFixture(t *testing.T, routes ...Route) *fixture {
	t.Helper()
	return newFixture(t, routes, func(o *Options) { o.Limits.Memory = config.MiB }).listen()
}

// nothingHeld checks that everything was given back.
func (f *fixture) nothingHeld() {
	f.t.Helper()
	if n := f.server.memory.taken.Load(); n != 0 {
		f.t.Errorf("%d bytes are held", n)
	}
}

// Bodies that arrive slowly, and are read whole, take no more than the budget:
// one client half of it, others what is left, and small requests are served.
func TestSlowBodiesAreHeldToABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := control("POST", "/read", echo)
		read.Deadline = time.Minute
		f := heldFixture(t, read)
		const size = 70 << 10 // which takes twice that, and up to 32 KiB more
		slow := func(from int) *client {
			c := f.dialFrom(from)
			c.send("POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", size+1, strings.Repeat("x", size))
			synctest.Wait()
			return c
		}
		one := []*client{slow(1), slow(1), slow(1)}
		slow(1).receive().wantRefusal(t, 503, "Backpressure")
		others := []*client{slow(2), slow(3)}
		if n := f.server.memory.taken.Load(); n < 5*2*size || n > 1<<20 {
			t.Errorf("%d bytes are held for five bodies of %d", n, size)
		}
		slow(4).receive().wantRefusal(t, 503, "Backpressure")
		f.wantMetric(2, "rejected_total", "reason", "memory")
		f.wantRefusal("memory for the content of requests", "limits.memory")
		if fill, refused := f.server.HeldMemory(); fill < 0.7 || refused != 2 {
			t.Errorf("%f full, %d refused", fill, refused)
		}
		if r := f.dialFrom(5).post("/read", "small"); r.body != "small" {
			t.Errorf("a small request: %d %s", r.StatusCode, r.body)
		}
		for _, c := range append(one, others...) {
			c.send("y")
			if r := c.receive(); r.StatusCode != 200 || len(r.body) != size+1 {
				t.Errorf("%d, %d bytes", r.StatusCode, len(r.body))
			}
		}
		synctest.Wait()
		f.nothingHeld()
	})
}

// A compressed body takes what it inflates to; a body that is streamed takes
// nothing.
func TestWhatIsInflatedIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := func(w http.ResponseWriter, r *http.Request) error {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(w, n)
			return err
		}
		read := control("POST", "/read", drain)
		stream := transfer("POST", "/stream", drain)
		read.BodyCap, stream.BodyCap = 10<<20, 10<<20
		f := newFixture(t, []Route{read, stream}, func(o *Options) { o.Limits.Memory, o.Limits.InflateRatio = config.MiB, 10_000 }).listen()
		body := gzipped(strings.Repeat("0", 600<<10))
		f.dial().post("/read", body, "Content-Encoding: gzip").wantRefusal(t, 413, "BodyTooLarge")
		if r := f.dial().post("/stream", body, "Content-Encoding: gzip"); r.body != fmt.Sprint(600<<10) {
			t.Errorf("what is streamed: %d %s", r.StatusCode, r.body)
		}
		small := gzipped(strings.Repeat("0", 60<<10))
		if r := f.dial().post("/read", small, "Content-Encoding: gzip"); r.body != fmt.Sprint(60<<10) {
			t.Errorf("a small one: %d %s", r.StatusCode, r.body)
		}
		synctest.Wait()
		f.nothingHeld()
	})
}

// Halves of headers take no more than the budget, and the client whose header
// does not fit is told so.
func TestHalfHeadersAreHeldToABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t, control("GET", "/x", respondWith("x")))
		half := func(from int) *client {
			c := f.dialFrom(from)
			c.send("GET /x HTTP/1.1\r\nHost: localhost\r\nX-Half: %s", strings.Repeat("h", 30<<10))
			synctest.Wait()
			return c
		}
		var held []*client
		for i := range 30 {
			held = append(held, half(1+i))
		}
		if n := f.server.memory.taken.Load(); n > 1<<20 || n < 512<<10 {
			t.Errorf("%d bytes are held for headers", n)
		}
		held[29].receive().wantRefusal(t, 503, "Backpressure")
		if r := f.dialFrom(99).get("/x"); r.body != "x" {
			t.Errorf("a small request: %d %s", r.StatusCode, r.body)
		}
		held[0].send("\r\n\r\n")
		if r := held[0].receive(); r.body != "x" {
			t.Errorf("the rest of a header: %d %s", r.StatusCode, r.body)
		}
		for _, c := range held {
			c.Close()
		}
		synctest.Wait()
		f.nothingHeld()
	})
}

// A connection of HTTP/2 carries many requests, and their headers are held as
// well.
func TestHeadersOfHTTP2AreHeldToABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, let := blockingHandler()
		hold := control("GET", "/hold", held)
		f := newFixture(t, []Route{hold}, func(o *Options) {
			o.Limits.Memory, o.Times.Deadline, o.Tasks = 128*config.KiB, time.Minute, newTaskGroup(t, 64)
		})
		web, base := f.httpClient(newAuthority(t), true, true)
		ask := func() int {
			r, _ := http.NewRequest(http.MethodGet, base+"/hold", nil)
			r.Header.Set("X-Large", strings.Repeat("h", 30<<10))
			answer, err := web.Do(r)
			if err != nil {
				t.Error(err)
				return 0
			}
			answer.Body.Close()
			return answer.StatusCode
		}
		codes := make(chan int, 2)
		for range 2 {
			go func() { codes <- ask() }()
			synctest.Wait()
		}
		if code := ask(); code != 503 {
			t.Errorf("the third: %d", code)
		}
		let()
		for range 2 {
			if code := <-codes; code != 200 {
				t.Errorf("one that was held: %d", code)
			}
		}
		synctest.Wait()
		f.nothingHeld()
	})
}

// A large answer takes memory until it is sent.
func TestLargeAnswersAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := control("GET", "/big", func(w http.ResponseWriter, _ *http.Request) error {
			return WriteJSON(w, 200, strings.Repeat("a", 300<<10))
		})
		big.Deadline = time.Hour
		f := heldFixture(t, big)
		var held []*client
		for i := range 3 {
			c := f.dialFrom(1 + i)
			c.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait()
			held = append(held, c)
		}
		if n := f.server.memory.taken.Load(); n < 600<<10 {
			t.Errorf("%d bytes are held for answers", n)
		}
		f.dialFrom(9).get("/big").wantRefusal(t, 503, "Backpressure")
		for _, c := range held {
			c.Close()
		}
		synctest.Wait()
		f.nothingHeld()
	})
}
