package ingress

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
)

// endless answers with as much as the client takes.
func endless(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	piece := make([]byte, 64<<10)
	for {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}

// readAt reads so many bytes after each pause until the connection ends, and
// returns how many that were.
func (c *client) readAt(piece int, pause time.Duration) (n int) {
	buffer := make([]byte, piece)
	for {
		m, err := c.Read(buffer)
		if n += m; err != nil {
			return n
		}
		time.Sleep(pause)
	}
}

// However many addresses hold slots with slow readers, a client that has
// nothing under way gets one: from the slowest of them, and not from one that
// reads.
func TestSlowReadersGiveWay(t *testing.T) {
	const places = 32
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{transfer("GET", "/big", endless)}, func(o *Options) { o.Limits.Inflight = places }).listen()
		var readers sync.WaitGroup
		var all []*client
		defer func() {
			for _, c := range all {
				c.Close()
			}
			readers.Wait()
		}()
		request := func(from int) *client {
			c := f.dialFrom(from)
			all = append(all, c)
			c.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait()
			return c
		}
		status := func(from int) string {
			c := request(from)
			line, _, err := c.r.ReadLine()
			if err != nil {
				t.Fatal(err)
			}
			readers.Go(func() { c.readAt(64<<10, time.Second) })
			return string(line)
		}
		good := request(100)
		goodEnded := make(chan int, 1)
		readers.Go(func() { goodEnded <- good.readAt(64<<10, 100*time.Millisecond) })
		for i := range 2 * places {
			c := request(1 + i/4)
			readers.Go(func() { c.readAt(256, time.Second) })
			synctest.Wait()
		}
		if line := status(200); line != "HTTP/1.1 429 Too Many Requests" {
			t.Fatalf("the slots are not taken: %s", line)
		}
		time.Sleep(slowWindow + time.Second)
		for i := range 6 {
			if line := status(201 + i); line != "HTTP/1.1 200 OK" {
				t.Errorf("newcomer %d: %s", i, line)
			}
		}
		f.wantMetric(6, "rejected_total", "reason", "gave_way")
		f.wantRefusal("a slow transfer gives way to another client", "limits.inflight")
		if line := status(206); line != "HTTP/1.1 429 Too Many Requests" {
			t.Errorf("one that has a slot, and wants that of another: %s", line)
		}
		time.Sleep(10 * time.Second)
		if n := f.laneInUse("http_inflight"); n > places {
			t.Errorf("%d of %d slots are taken", n, places)
		}
		select {
		case n := <-goodEnded:
			t.Errorf("a client that reads was cut after %d bytes", n)
		default:
		}
	})
}

// Reads wait for their turn where other requests are refused. A client that has
// none under way gets a turn although slow readers hold them all, and others
// of their addresses wait.
func TestSlowReadersGiveWayToReads(t *testing.T) {
	const places, addresses = 32, 24
	synctest.Test(t, func(t *testing.T) {
		big, small := transfer("GET", "/big", endless), readRoute("/small", respondWith("small"))
		big.Scope, big.Cheap = "", true
		f := newFixture(t, []Route{big, small}, func(o *Options) {
			o.Limits.Reads, o.Times.FirstByte, o.Times.Deadline = places, time.Minute, time.Minute
		}).listen()
		var readers sync.WaitGroup
		var all []*client
		defer func() {
			for _, c := range all {
				c.Close()
			}
			readers.Wait()
		}()
		request := func(from int) *client {
			c := f.dialFrom(from)
			all = append(all, c)
			c.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait()
			return c
		}
		good, goodEnded := request(100), make(chan int, 1)
		readers.Go(func() { goodEnded <- good.readAt(64<<10, 100*time.Millisecond) })
		for i := range 2 * addresses {
			c := request(1 + i/2)
			readers.Go(func() { c.readAt(256, time.Second) })
		}
		f.wantMetric(places, "inflight_requests", "route", "/big")
		began := time.Now()
		for i := range 6 {
			if r := f.dialFrom(201 + i).get("/small"); r.StatusCode != 200 || time.Since(began) > 2*slowWindow {
				t.Errorf("newcomer %d: %d %s after %s", i, r.StatusCode, r.body, time.Since(began))
			}
		}
		if n := f.metric("inflight_requests", "route", "/big"); n > places {
			t.Errorf("%v of %d slots are taken", n, places)
		}
		select {
		case n := <-goodEnded:
			t.Errorf("a client that reads was cut after %d bytes", n)
		default:
		}
	})
}

// A client that has reads under way waits for its turn, and takes no slot from
// slower ones.
func TestAReaderTakesNoSlotFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := transfer("GET", "/big", endless)
		big.Scope, big.Cheap = "", true
		f := newFixture(t, []Route{big}, func(o *Options) { o.Limits.Reads, o.Times.FirstByte = 4, time.Minute }).listen()
		var readers sync.WaitGroup
		var all []*client
		defer func() {
			for _, c := range all {
				c.Close()
			}
			readers.Wait()
		}()
		for _, from := range []int{1, 1, 2, 3} {
			c := f.dialFrom(from)
			all = append(all, c)
			c.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
			readers.Go(func() { c.readAt(256, time.Second) })
			synctest.Wait()
		}
		time.Sleep(slowWindow + time.Second)
		third := f.dialFrom(1)
		third.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		time.Sleep(3 * time.Second)
		f.wantMetric(4, "inflight_requests", "route", "/big")
		f.wantMetric(0, "rejected_total", "reason", "gave_way")
		newcomer := f.dialFrom(4)
		newcomer.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if line, _, err := newcomer.r.ReadLine(); err != nil || string(line) != "HTTP/1.1 200 OK" {
			t.Errorf("a newcomer: %s, %v", line, err)
		}
		f.wantMetric(1, "rejected_total", "reason", "gave_way")
		f.wantRefusal("a slow transfer gives way to another client", "limits.reads")
		third.Close()
		newcomer.Close()
	})
}

// Slow uploads from many addresses do not keep the lane of a route from a client
// that has nothing under way.
func TestSlowUploadsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upload := transfer("POST", "/up", echo)
		upload.Lane = flow.NewLane(flow.NewInventory(), flow.LaneSpec{Service: "store", Name: "uploads", Running: 4, Waiting: 4})
		f := newFixture(t, []Route{upload}).listen()
		var senders sync.WaitGroup
		var all []*client
		defer func() {
			for _, c := range all {
				c.Close()
			}
			senders.Wait()
		}()
		for i := range 4 {
			c := f.dialFrom(1 + i)
			all = append(all, c)
			c.send("POST /up HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
			senders.Go(func() {
				for {
					if _, err := c.Write(make([]byte, 30)); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
			synctest.Wait()
		}
		time.Sleep(slowWindow + time.Second)
		began := time.Now()
		if r := f.dialFrom(99).post("/up", "quick"); r.StatusCode != 200 || r.body != "quick" || time.Since(began) > 2*time.Second {
			t.Errorf("%d %s after %s", r.StatusCode, r.body, time.Since(began))
		}
		f.wantMetric(1, "rejected_total", "reason", "gave_way")
	})
}
