//go:build gates

package gates

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Slow readers from many addresses hold as many slots as they may. A client at
// another address is served all the same, again and again.
func TestSlowReadersFromManyAddresses(t *testing.T) {
	const places, addresses, each = 64, 20, 4
	p := start(t, nil, fmt.Sprintf("MICRO_LIMITS__READS=%d", places))
	var large strings.Builder
	for large.Len() < 8<<20 {
		fmt.Fprintf(&large, "%d ", large.Len())
	}
	address := p.put(large.String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range addresses * each {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(2+i/each))}, Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10) })
		}}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(p.http, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /o/%s HTTP/1.1\r\nHost: localhost\r\nX-Not-Warm: 1\r\n\r\n", address)
		go func() {
			for buffer := make([]byte, 8<<10); ; sleepContext(ctx, 500*time.Millisecond) {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
			}
		}()
	}
	// From the time on at which they can be told from clients that read.
	time.Sleep(12 * time.Second)
	served := 0
	for i := range 10 {
		web := clientFrom(t, fmt.Sprintf("127.0.2.%d", 2+i), 1)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, p.http+"/o/"+address.String(), nil)
		r.Header.Set("X-Not-Warm", "1")
		answer, err := web.Do(r)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			continue
		}
		n, err := io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || err != nil || n != int64(large.Len()) {
			t.Errorf("client %d: %s, %d bytes, %v", i, answer.Status, n, err)
			continue
		}
		served++
	}
	gaveWay := p.metric("rejected_total", `reason="gave_way"`)
	if gaveWay == 0 {
		t.Error("no slow reader gave way: the slots were not taken")
	}
	report(t, "slow readers from 20 addresses", "the next client is served", fmt.Sprintf("%d of 10 were; %v slow ones gave way", served, gaveWay))
	cancel()
	p.stop(syscall.SIGTERM)
}
