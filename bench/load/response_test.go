package load

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const hello = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"

const inChunks = "HTTP/1.1 200 OK\r\nTrailer: X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n"

// A response is parsed the same way however the network splits it.
func TestAnswerInPieces(t *testing.T) {
	for name, text := range map[string]string{"length": hello, "chunks": inChunks} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var a responseParser
				a.reset(Exchange{Status: 200, Length: 5, Body: []byte("hello"), Contains: []byte("ell")}, true)
				for rest := []byte(text); len(rest) > 0; {
					n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
					done, err := a.feed(rest[:n])
					rest = rest[n:]
					if err != nil || done != (len(rest) == 0) {
						t.Fatalf("with %d bytes left: done %v, %v", len(rest), done, err)
					}
				}
			})
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	want := Exchange{Status: 200, Length: 5, Body: []byte("hello")}
	holds := Exchange{Status: 200, Length: AnyLength, Contains: []byte("hello")}
	for name, c := range map[string]struct {
		want   Exchange
		answer string
		says   string
	}{
		"status":         {want, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow", "429 Too Many Requests instead of 200: slow"},
		"length":         {want, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell", "4 bytes instead of 5"},
		"body":           {want, strings.Replace(hello, "hello", "hallo", 1), "other bytes than were stored"},
		"too much":       {want, hello + "!", "1 bytes more"},
		"no length":      {want, "HTTP/1.1 200 OK\r\n\r\nhello", "neither its length"},
		"bad length":     {want, "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello", "neither its length"},
		"not HTTP":       {want, "SSH-2.0-OpenSSH\r\n\r\n", "not an answer in HTTP/1.1"},
		"does not hold":  {holds, strings.Replace(hello, "hello", "hallo", 1), "does not contain"},
		"endless head":   {want, "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead), "does not end"},
		"chunk size":     {holds, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "size of a chunk"},
		"after chunks":   {holds, inChunks + "!", "after the last chunk"},
		"chunked length": {Exchange{Status: 200, Length: 6}, inChunks, "5 bytes instead of 6"},
		"chunked body":   {want, strings.Replace(inChunks, "hel", "hal", 1), "other bytes"},
		"endless chunk":  {holds, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", maxHead+1), "does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			var a responseParser
			a.reset(c.want, true)
			_, err := a.feed([]byte(c.answer))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("said %v, want %q", err, c.says)
			}
		})
	}
}

func TestNoContentHasNoBody(t *testing.T) {
	var a responseParser
	a.reset(Exchange{Status: 204}, true)
	done, err := a.feed([]byte("HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n"))
	if !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
}

// The generator must not collect garbage while it measures.
func TestReadingAnAnswerAllocatesNothing(t *testing.T) {
	var a responseParser
	want, text := Exchange{Status: 200, Length: 5, Body: []byte("hello")}, []byte(hello)
	got := testing.AllocsPerRun(100, func() {
		a.reset(want, true)
		if done, err := a.feed(text); !done || err != nil {
			t.Fatal(done, err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
