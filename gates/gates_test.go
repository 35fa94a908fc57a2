//go:build gates

package gates

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/edge/pack/packtest"
)

// percentile of some durations.
func percentile(all []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p))]
}

// putLoad puts small objects from several callers until ctx ends.
func (p *process) putLoad(ctx context.Context, callers int, done func(status int, took time.Duration, body []byte)) *sync.WaitGroup {
	token := p.token("object:put")
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	p.t.Cleanup(transport.CloseIdleConnections)
	web := &http.Client{Transport: transport}
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			random := rand.NewChaCha8([32]byte{byte(caller), byte(caller >> 8)})
			body := make([]byte, 16<<10)
			for ctx.Err() == nil {
				_, _ = random.Read(body)
				r, _ := http.NewRequest(http.MethodPost, p.http+"/put", bytes.NewReader(body))
				r.Header.Set("Authorization", "Bearer "+token)
				from := time.Now()
				answer, err := web.Do(r)
				if err != nil {
					done(0, time.Since(from), []byte(err.Error()))
					continue
				}
				text, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				done(answer.StatusCode, time.Since(from), text)
			}
		})
	}
	return &group
}

// unlimited is for gates that are about something other than the rate limit:
// all the load comes from one address here.
var unlimited = []string{"MICRO_LIMITS__RATE=1000000", "MICRO_LIMITS__BURST=1000000", "MICRO_LIMITS__WORK_RATE=1000000"}

// A shutdown under load ends in time, whatever starts it, and with a report.
func TestDrainUnderLoad(t *testing.T) {
	retryMeasurement(t, func() error { return drainUnderLoad(t) })
}

func drainUnderLoad(t *testing.T) error {
	const rounds = 50
	var all []time.Duration
	for round := range rounds {
		p := start(t, nil, unlimited...)
		ctx, cancel := context.WithCancel(t.Context())
		var answered atomic.Int64
		begun := make(chan struct{})
		group := p.putLoad(ctx, 16, func(status int, _ time.Duration, _ []byte) {
			if status == http.StatusCreated && answered.Add(1) == 200 {
				close(begun)
			}
		})
		<-begun
		took := p.stop([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[round%2])
		cancel()
		group.Wait()
		all = append(all, took)
		if text := p.stderr.String(); !isCleanStop(text) {
			t.Errorf("round %d: the report is not that of a clean drain:\n%s", round, text)
		}
	}
	t.Logf("drain: p50 %s, p95 %s, p99 %s over %d shutdowns", percentile(all, 0.5), percentile(all, 0.95), percentile(all, 0.99), len(all))
	report(t, "drain under load", "p95 ≤ 2 s, p99 ≤ 5 s, ≥ 50 shutdowns", fmt.Sprintf("p95 %s, p99 %s, %d shutdowns", rounded(percentile(all, 0.95)), rounded(percentile(all, 0.99)), len(all)))
	return cmp.Or(checkBound(percentile(all, 0.95), 2*time.Second, "a drain at p95"), checkBound(percentile(all, 0.99), 5*time.Second, "a drain at p99"))
}

// slowBody is a body whose second half comes after a while: a request that
// holds its slot.
type slowBody struct {
	half []byte
	hold time.Duration
	sent int
}

func (s *slowBody) Read(p []byte) (int, error) {
	switch s.sent++; s.sent {
	case 1:
		return copy(p, s.half), nil
	case 2:
		time.Sleep(s.hold)
		return copy(p, s.half), nil
	}
	return 0, io.EOF
}

// Twice as many callers as the node's in-flight limit (its queues are the
// subject of TestTwiceTheLoad), each of which holds its slot for a while:
// excess requests are rejected at once with 429, nothing is dropped, and memory
// stays flat. The load is one of slots, not of cores, because the callers are
// on the same cores here.
func TestTwiceTheInflightLimit(t *testing.T) {
	span, inflight := 3*time.Second, 16
	if isLong() {
		span = 20 * time.Second
	}
	p := start(t, nil, append(unlimited, fmt.Sprintf("MICRO_LIMITS__INFLIGHT=%d", inflight), "MICRO_STORE__RAM_BYTES=64MiB")...)
	retryMeasurement(t, func() error { return p.overloadInflight(inflight, span) })
	if dropped := p.metric("queue_dropped_total", `queue="work"`); dropped != 0 {
		t.Errorf("%v jobs were dropped", dropped)
	}
	p.stop(syscall.SIGTERM)
}

// overloadInflight runs twice as many callers as there are slots, and checks
// the Busy answers and the memory.
func (p *process) overloadInflight(inflight int, span time.Duration) error {
	token := p.token("object:put")
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * inflight}
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport}
	ctx, cancel := context.WithTimeout(p.t.Context(), span)
	defer cancel()
	var mu sync.Mutex
	var busy []time.Duration
	counts := map[string]int{}
	var group sync.WaitGroup
	for range 2 * inflight {
		group.Go(func() {
			for ctx.Err() == nil {
				code, took := p.upload(web, token)
				mu.Lock()
				counts[code]++
				if code == "Busy" {
					busy = append(busy, took)
				}
				mu.Unlock()
				if code != "201" && code != "200" {
					time.Sleep(20 * time.Millisecond) // as a client does after Retry-After
				}
			}
		})
	}
	half := p.rssAfterDelay(span / 2)
	group.Wait()
	full := p.rss()
	p.t.Logf("answers %v; rss %d MiB at half time, %d MiB at the end", counts, half>>20, full>>20)
	if len(busy) == 0 || counts["200"]+counts["201"] == 0 {
		return fmt.Errorf("nobody was told Busy, or nobody was served: %v", counts)
	}
	p99 := percentile(busy, 0.99)
	p.t.Logf("Busy: p50 %s, p99 %s of %d", percentile(busy, 0.5), p99, len(busy))
	report(p.t, "twice the in-flight limit", "Busy ≤ 50 ms at p99", fmt.Sprintf("p50 %s, p99 %s of %d", rounded(percentile(busy, 0.5)), rounded(p99), len(busy)))
	if full > half+half/4+16<<20 {
		return fmt.Errorf("memory grows: %d MiB, then %d MiB", half>>20, full>>20)
	}
	return checkBound(p99, 50*time.Millisecond, "Busy at p99")
}

// upload sends one slow body and returns the code of the answer and when it
// came.
func (p *process) upload(web *http.Client, token string) (code string, took time.Duration) {
	half := make([]byte, 4<<10)
	r, _ := http.NewRequest(http.MethodPost, p.http+"/o", &slowBody{half: half, hold: 200 * time.Millisecond})
	r.ContentLength = int64(2 * len(half))
	r.Header.Set("Authorization", "Bearer "+token)
	from := time.Now()
	answer, err := web.Do(r)
	took = time.Since(from)
	if err != nil {
		return "cut", took
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 400 {
		return problemCode(text), took
	}
	return fmt.Sprint(answer.StatusCode), took
}

// rssAfterDelay waits for the middle of a load and reads the memory then.
func (p *process) rssAfterDelay(d time.Duration) int64 {
	time.Sleep(d)
	return p.rss()
}

// A request that waits is answered at its deadline, not before and not after.
func TestRequestDeadline(t *testing.T) {
	p := start(t, nil)
	token := p.token("object:put")
	host := strings.TrimPrefix(p.http, "http://")
	tries := 10
	if isLong() {
		tries = 100
	}
	for range tries {
		retryMeasurement(t, func() error { return checkHalfBodyDeadline(host, token) })
	}
	p.stop(syscall.SIGTERM)
}

// checkHalfBodyDeadline sends half of a body with a deadline of a second.
func checkHalfBodyDeadline(host, token string) error {
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return err
	}
	defer conn.Close()
	from := time.Now()
	fmt.Fprintf(conn, "POST /put HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nRequest-Timeout: 1\r\nContent-Length: 10\r\n\r\nhalf", host, token)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	took := time.Since(from)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	switch {
	case answer.StatusCode != http.StatusRequestTimeout || problemCode(body) != "RequestTimeout":
		return fmt.Errorf("%s %s", answer.Status, body)
	case took < 900*time.Millisecond:
		return fmt.Errorf("answered after %s, and the deadline was 1s", took)
	}
	return checkBound(took, 1100*time.Millisecond, "the answer at a deadline of 1s")
}

// fileSyscall finds in strace's output what was opened for writing.
var fileSyscall = regexp.MustCompile(`^\d+ +(open|openat|openat2|creat|mkdir|mkdirat|rename|renameat2?|unlink|unlinkat|truncate|link|linkat|symlink|symlinkat|mknodat?)\(`)

// A traced run of every feature opens nothing for writing.
func TestAmnesiaTraced(t *testing.T) {
	folder := t.TempDir()
	trace := filepath.Join(folder, "trace")
	config := filepath.Join(folder, "micronode.toml")
	if err := os.WriteFile(config, []byte("[log]\nlevel = \"info\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	origin, settings := newOrigin(t, serveAsset)
	for name, write := range map[string]func(string) error{
		"map.pmtiles": func(path string) error { return packtest.WritePMTiles(path, packtest.PMSpec{MaxZoom: 2}) },
		"old.mbtiles": func(path string) error { return packtest.MBTiles(path, packtest.MBSpec{MaxZoom: 2}) },
	} {
		if err := write(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := startWith(t, []string{"strace", "-f", "-qq", "-o", trace, "-e", "trace=%file", "-e", "signal=none"},
		[]string{"--pack", filepath.Join(folder, "map.pmtiles"), "--pack", filepath.Join(folder, "old.mbtiles")},
		append(append(settings, allFacets...), "MICRO_LOG__LEVEL=debug", "MICRO_EDGE__ASSETS="+folder)...)
	for _, path := range []string{"/edge/tiles/map/1/0/0", "/edge/tiles/old/2/1/1", "/edge/assets/map.pmtiles", "/edge/assets/micronode.toml",
		"/edge/assets/" + origin.host + "/a", "/edge/assets/" + origin.host + "/a"} {
		if answer, body, err := fetch(p.http + path); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %v %s", path, answer, err, body)
		}
	}
	local := p.local()
	object, err := local.Put(t.Context(), strings.NewReader("traced"), client.PutOptions{Size: 6})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := local.Get(t.Context(), object.Address, client.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(reader); err != nil || string(text) != "traced" {
		t.Errorf("get: %q, %v", text, err)
	}
	reader.Close()
	exerciseOverlay(t, p, object.Address)
	useFacets(t, p)
	if err := syscall.Kill(p.pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); p.metric("config_reload_total", "") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the reload was not seen")
		}
	}
	if err := local.Delete(t.Context(), object.Address); err != nil {
		t.Error(err)
	}
	p.stop(syscall.SIGTERM)

	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(text)) {
		lines++
		if fileSyscall.MatchString(line) && isWrite(line) {
			t.Errorf("for writing: %s", line)
		}
	}
	if lines < 10 {
		t.Errorf("the trace has only %d lines: nothing was traced", lines)
	}
	t.Logf("%d calls with a file name, none for writing", lines)
	report(t, "amnesia, traced", "nothing opened for writing", fmt.Sprintf("0 of %d calls with a file name", lines))
}

// useFacets sends a message and receives it, follows, posts, searches, and
// requests a small picture.
func useFacets(t *testing.T, p *process) {
	t.Helper()
	local := p.local()
	if _, err := local.SendMail(t.Context(), "jobs", []byte("render"), client.MailOptions{}); err != nil {
		t.Fatal(err)
	}
	mail, err := local.ReceiveMail(t.Context(), "jobs", client.ReceiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := local.AckMail(t.Context(), "jobs", mail.Receipt); err != nil {
		t.Error(err)
	}
	if _, err := local.Follow(t.Context(), "ann", "bob"); err != nil {
		t.Error(err)
	}
	if _, err := local.Post(t.Context(), "bob", "the quick fox", client.PostOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := local.Feed(t.Context(), "ann", client.FeedOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := local.Search(t.Context(), "fox", client.SearchOptions{}); err != nil {
		t.Error(err)
	}
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewGray(image.Rect(0, 0, 640, 400))); err != nil {
		t.Fatal(err)
	}
	picture, err := local.Put(t.Context(), bytes.NewReader(drawn.Bytes()), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if answer, body, err := fetch(p.http + "/media/" + picture.Address.String() + "?thumb=64x64"); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("a small picture: %v %v %s", answer, err, body)
	}
}

// isWrite reports whether a traced call requests write access.
func isWrite(line string) bool {
	if strings.Contains(line, `"/dev/null"`) || strings.Contains(line, `"/dev/tty"`) {
		return false
	}
	if strings.Contains(line, "open") {
		return strings.Contains(line, "O_WRONLY") || strings.Contains(line, "O_RDWR") || strings.Contains(line, "O_CREAT") || strings.Contains(line, "O_TRUNC")
	}
	return true
}

// Floods of several kinds at once: each is rejected with its own code, and a
// well-behaved client does not notice.
func TestFloods(t *testing.T) {
	p := start(t, nil)
	host := strings.TrimPrefix(p.http, "http://")
	token := p.token("object:put")

	// 600 connections of one address, each of which sends its header a byte at
	// a time: no more than 256 stay.
	var held []net.Conn
	for range 600 {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			continue
		}
		_, _ = io.WriteString(conn, "GET /o/b3:")
		held = append(held, conn)
	}
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	closed := map[net.Conn]bool{}
	awaitCondition(t, p, "all but 256 of 600 connections of one address to be closed", func() bool {
		for _, conn := range held {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := conn.Read(make([]byte, 1)); err != nil && !os.IsTimeout(err) {
				closed[conn] = true
			}
		}
		return 600-len(held)+len(closed) >= 600-256
	})

	// The local socket is another listener, and works.
	if _, err := p.local().Put(t.Context(), strings.NewReader("meanwhile"), client.PutOptions{Size: 9}); err != nil {
		t.Errorf("a client that does nothing wrong: %v", err)
	}
	for _, conn := range held {
		conn.Close()
	}
	held = nil

	post := func(body []byte, header ...string) (int, string) {
		r, _ := http.NewRequest(http.MethodPost, p.http+"/put", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, problemCode(text)
	}
	if status, code := post(make([]byte, 2<<20), "Expect", "100-continue"); status != 413 || code != "BodyTooLarge" {
		t.Errorf("2 MiB: %d %s", status, code)
	}
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = zip.Write(make([]byte, 9<<20))
	zip.Close()
	if status, code := post(bomb.Bytes(), "Content-Encoding", "gzip"); status != 413 || code != "RatioCap" {
		t.Errorf("a bomb of %d bytes: %d %s", bomb.Len(), status, code)
	}
	p.stop(syscall.SIGTERM)
}

// A gigabyte of undeclared length, into a store of 64 MiB: it is rejected on
// the way, its reservation is released, and memory never holds more than the
// budget.
func TestAGigabyteDoesNotGrowMemory(t *testing.T) {
	const budget = 64 << 20
	p := start(t, nil, "MICRO_STORE__RAM_BYTES=64MiB")
	before := p.rss()
	token := p.token("object:put")
	for range 3 {
		r, _ := http.NewRequest(http.MethodPost, p.http+"/o", io.LimitReader(rand.NewChaCha8([32]byte{}), 1<<30))
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err == nil { // the connection may be closed before the answer is read
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusInsufficientStorage || problemCode(body) != "StoreFull" {
				t.Errorf("%s %s", answer.Status, body)
			}
		}
	}
	after := p.rss()
	t.Logf("rss %d MiB before, %d MiB after three times a gigabyte", before>>20, after>>20)
	report(t, "three times a gigabyte through the node", "memory flat", fmt.Sprintf("%d MiB, then %d MiB", before>>20, after>>20))
	if after > before+budget+budget/2 {
		t.Errorf("rss grew from %d to %d MiB with a budget of %d MiB", before>>20, after>>20, budget>>20)
	}
	if held := p.metric("store_held_bytes", ""); held != 0 {
		t.Errorf("%v bytes are held for objects that were refused", held)
	}
	if _, err := p.local().Put(t.Context(), strings.NewReader("room again"), client.PutOptions{Size: 10}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	p.stop(syscall.SIGTERM)
}

// isCleanStop reports whether the last lines of a node say that it left nothing
// running: one line if nothing was aborted either, and a report otherwise.
func isCleanStop(text string) bool {
	return strings.Contains(text, "nothing aborted") || strings.Contains(text, "drained in") && !strings.Contains(text, "left running  ")
}
