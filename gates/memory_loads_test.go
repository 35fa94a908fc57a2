//go:build gates

package gates

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/fault"
)

// In a control group of 200 MB and at the defaults, a node takes no load for
// which it has no memory: each kind of load is refused with a type where it does
// not fit, and the node is never killed for it.
func TestMemoryLoads(t *testing.T) {
	const limit = 200_000_000
	for name, load := range map[string]struct {
		settings []string
		onDisk   bool
		fills    bool // and what it fills stays full
		run      func(t *testing.T, p *process) (answers map[string]int)
		refusals []string // codes, one of which must have come
	}{
		"two thumbnails of a large picture":   {[]string{"MICRO_FACETS__MEDIA__ENABLED=true"}, false, false, loadThumbnails, []string{"RatioCap", "Backpressure"}},
		"slow bodies of messages":             {nil, false, false, loadSlowMessages, []string{"Backpressure", "Busy"}},
		"compressed puts":                     {nil, false, false, loadCompressedPuts, []string{"Backpressure", "Busy", "StoreFull", "RateLimited"}},
		"halves of headers":                   {nil, false, false, loadHalfHeaders, []string{"Backpressure", "closed"}},
		"texts that are searched":             {[]string{"MICRO_FACETS__SEARCH__ENABLED=true"}, false, true, loadTexts, nil},
		"a graph with all the edges it takes": {[]string{"MICRO_FACETS__GRAPH__ENABLED=true"}, false, true, loadGraph, []string{"StoreFull"}},
		"a mailbox on disk":                   {nil, true, false, loadMailbox, []string{"Busy", "StoreFull"}},
	} {
		t.Run(name, func(t *testing.T) {
			group := newMemoryCgroup(t, limit)
			var arguments []string
			if load.onDisk {
				arguments = []string{"--persist", filepath.Join(t.TempDir(), "node")}
			}
			p := startWith(t, group.wrapper(), arguments, load.settings...)
			answers := load.run(t, p)
			refused := len(load.refusals) == 0
			for _, code := range load.refusals {
				refused = refused || answers[code] > 0
			}
			if !refused {
				t.Errorf("nothing was refused as one of %v: %v", load.refusals, answers)
			}
			if n := group.oomKills(t); n != 0 {
				t.Fatalf("%d processes were killed for their memory", n)
			}
			if !load.fills {
				p.awaitWhole(30 * time.Second)
				small := p.put("small")
				if answer, body, err := fetch(p.http + "/o/" + small.String()); err != nil || answer.StatusCode != http.StatusOK || string(body) != "small" {
					t.Errorf("afterwards: %v, %v", answer, err)
				}
			} else if state := p.readyz(); !state.Ready || len(state.Reasons) == 0 {
				t.Errorf("readiness does not say that something is full: %+v", state)
			}
			report(t, "200 MB of memory: "+name, "never killed; refused with a type where it does not fit; whole again within 30s, or what is full says so",
				fmt.Sprintf("at most %s MiB used; %v", group.peakMiB(), answers))
			p.stop(syscall.SIGTERM)
		})
	}
}

// answerTally counts answers by code.
type answerTally struct {
	mu    sync.Mutex
	codes map[string]int
}

func (a *answerTally) add(code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.codes == nil {
		a.codes = map[string]int{}
	}
	a.codes[code]++
}

// largePicture is a picture of one colour, of which nothing is in memory.
type largePicture struct{ width, height int }

func (l largePicture) ColorModel() color.Model { return color.NRGBAModel }
func (l largePicture) Bounds() image.Rectangle { return image.Rect(0, 0, l.width, l.height) }
func (l largePicture) At(x, y int) color.Color {
	return color.NRGBA{uint8(x >> 8), uint8(y >> 8), 7, 200}
}

func loadThumbnails(t *testing.T, p *process) map[string]int {
	var file bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&file, largePicture{7980, 5000}); err != nil {
		t.Fatal(err)
	}
	address := p.put(file.String())
	var group sync.WaitGroup
	var answers answerTally
	for i := range 4 {
		group.Go(func() {
			answers.add(send(t.Context(), http.DefaultClient, http.MethodGet, fmt.Sprintf("%s/media/%s?thumb=%dx100", p.http, address, 100+i), "", ""))
		})
	}
	group.Wait()
	return answers.codes
}

// fromAddress opens a connection from one of our addresses.
func (p *process) fromAddress(t *testing.T, n int) (net.Conn, error) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+n/200), byte(2+n%200))}}
	return dialer.Dial("tcp", strings.TrimPrefix(p.http, "http://"))
}

// holdAndRead sends the beginning of a request on each of n connections, from
// so many addresses, waits, and counts what was answered meanwhile.
func (p *process) holdAndRead(t *testing.T, n, addresses int, begin string, hold time.Duration) map[string]int {
	t.Helper()
	var answers answerTally
	var all []net.Conn
	for i := range n {
		conn, err := p.fromAddress(t, i%addresses)
		if err != nil {
			answers.add("closed")
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.WriteString(conn, begin); err != nil {
			answers.add("closed")
		}
		all = append(all, conn)
	}
	time.Sleep(hold)
	var group sync.WaitGroup
	for _, conn := range all {
		group.Go(func() {
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			text, err := io.ReadAll(io.LimitReader(conn, 16<<10))
			_, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
			switch code := problemCode(body); {
			case code != "":
				answers.add(code)
			case err == nil:
				answers.add("closed")
			default:
				answers.add("held")
			}
		})
	}
	group.Wait()
	return answers.codes
}

func loadSlowMessages(t *testing.T, p *process) map[string]int {
	body := `{"box":"slow","body":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 370_000))
	return p.holdAndRead(t, 480, 24, fmt.Sprintf("POST /mbox/send HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		p.token("mbox:send"), len(body)+100, body), time.Second)
}

func loadHalfHeaders(t *testing.T, p *process) map[string]int {
	return p.holdAndRead(t, 4000, 100, "GET /version HTTP/1.1\r\nHost: localhost\r\nX-Half: "+strings.Repeat("h", 30_000), time.Second)
}

func loadCompressedPuts(t *testing.T, p *process) map[string]int {
	block := make([]byte, 1024)
	var body bytes.Buffer
	packed := gzip.NewWriter(&body)
	random := rand.NewChaCha8([32]byte{1})
	for range 8 << 10 {
		_, _ = random.Read(block[:120])
		_, _ = packed.Write(block)
	}
	_ = packed.Close()
	token := p.token("object:put")
	var group sync.WaitGroup
	var answers answerTally
	for i := range 200 {
		group.Go(func() {
			web := clientFrom(t, fmt.Sprintf("127.0.0.%d", 2+i%5), 1)
			_, code, _, err := doRequest(t.Context(), web, http.MethodPost, p.http+"/put", token, body.Bytes(), "Content-Encoding", "gzip")
			if err != nil {
				code = "cut"
			}
			answers.add(code)
		})
	}
	group.Wait()
	return answers.codes
}

func loadTexts(t *testing.T, p *process) map[string]int {
	words := rand.New(rand.NewPCG(1, 2))
	var answers answerTally
	for range 40 {
		var text strings.Builder
		for text.Len() < 900_000 {
			fmt.Fprintf(&text, "word%x ", words.IntN(1<<22))
		}
		_, code, _, err := doRequest(t.Context(), http.DefaultClient, http.MethodPost, p.http+"/put", p.token("object:put"), []byte(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		answers.add(code)
	}
	time.Sleep(10 * time.Second) // until they are indexed, or left out
	return answers.codes
}

func loadGraph(t *testing.T, p *process) map[string]int {
	var group sync.WaitGroup
	var answers answerTally
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for caller := range 8 {
		group.Go(func() {
			local := p.local()
			for i := range 60_000 {
				_, err := local.Follow(ctx, fmt.Sprintf("reader-%d-%d-%s", caller, i/50, strings.Repeat("r", 40)), fmt.Sprintf("author-%d-%d-%s", caller, i, strings.Repeat("a", 40)))
				if err != nil {
					answers.add(fault.KindOf(err).String())
					return
				}
			}
			answers.add("all")
		})
	}
	group.Wait()
	return answers.codes
}

// loadMailbox sends messages until none is taken any more.
func loadMailbox(t *testing.T, p *process) map[string]int {
	token := p.token("mbox:send")
	body := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("m"), 2000))
	var group sync.WaitGroup
	var answers answerTally
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for caller := range 8 {
		group.Go(func() {
			for i := range 20_000 {
				text := fmt.Appendf(nil, `{"box":"box-%d-%d","body":"%s"}`, caller, i/1000, body)
				_, code, _, err := doRequest(ctx, http.DefaultClient, http.MethodPost, p.http+"/mbox/send", token, text, "Content-Type", "application/json", "Idempotency-Key", fmt.Sprint(caller, i))
				if err != nil {
					answers.add("cut")
					return
				}
				if answers.add(code); code == "Busy" || code == "StoreFull" {
					return
				}
			}
		})
	}
	group.Wait()
	return answers.codes
}
