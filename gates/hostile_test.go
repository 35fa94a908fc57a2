//go:build gates

package gates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"micronode/b3"
	"micronode/client"
)

// A hostile client, at the defaults, beside a good one at another address that
// requests something in memory. The good one's p99 stays within twice its quiet
// value; the hostile ones are on the same cores here, so what a bare timer is
// late beside them is subtracted.

// measureGets requests an object n times, at a moderate rate, over kept
// connections.
func measureGets(web *http.Client, url string, n int) (p99 time.Duration, err error) {
	var took []time.Duration
	for range n {
		from := time.Now()
		answer, err := web.Get(url)
		if err != nil {
			return 0, fmt.Errorf("a good client: %w", err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("a good client: %s, %v", answer.Status, err)
		}
		took = append(took, time.Since(from))
		time.Sleep(5 * time.Millisecond)
	}
	return percentile(took, 0.99), nil
}

// compareGets measures a good client alone and beside a hostile one, which attack
// starts and the function that it returns ends.
func compareGets(t *testing.T, gate string, web *http.Client, url string, attack func() (end func())) {
	t.Helper()
	retryMeasurement(t, func() error {
		quiet, err := measureGets(web, url, 200)
		if err != nil {
			return err
		}
		end := attack()
		timer := watchTimer()
		busy, err := measureGets(web, url, 200)
		late := timer()
		end()
		if err != nil {
			return err
		}
		reportRatio(t, gate, quiet, busy, late)
		return checkRatio(gate+": a good client", quiet, busy, late)
	})
}

// startTLS is a node with TLS, and what a client needs to trust it.
func startTLS(t *testing.T) (p *process, trust *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gate"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, kind string, raw []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p = start(t, nil, "MICRO_HTTP__CERT_FILE="+write("cert.pem", "CERTIFICATE", raw), "MICRO_HTTP__KEY_FILE="+write("key.pem", "EC PRIVATE KEY", secret))
	p.http = "https" + strings.TrimPrefix(p.http, "http")
	pool := x509.NewCertPool()
	cert, _ := x509.ParseCertificate(raw)
	pool.AddCert(cert)
	return p, &tls.Config{RootCAs: pool}
}

// putZeroes puts an object that is larger than any kernel buffer.
func (p *process) putZeroes(size int64) b3.Address {
	p.t.Helper()
	object, err := p.local().Put(p.t.Context(), io.LimitReader(zeroes{}, size), client.PutOptions{Size: size})
	if err != nil {
		p.t.Fatal(err)
	}
	return object.Address
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Connections of HTTP/2 whose window is closed hold as many requests as they
// may, and none of other clients.
func TestClosedWindows(t *testing.T) {
	p, trust := startTLS(t)
	small, big := p.put("small"), p.putZeroes(8<<20)
	host := strings.TrimPrefix(p.http, "https://")
	web := tlsClientFrom(t, "127.0.0.9", trust)
	var refused atomic.Int64
	compareGets(t, "HTTP/2 with closed windows", web, p.http+"/o/"+small.String(), func() func() {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() { refused.Add(closedWindow(ctx, host, trust, "/o/"+big.String())) })
		}
		time.Sleep(time.Second)
		return func() { cancel(); group.Wait() }
	})
	if refused.Load() == 0 {
		t.Error("nobody was told that it has too much under way")
	}
	p.checkLocalSocket()
	p.stop(syscall.SIGTERM)
}

// closedWindow opens a connection without a window and makes requests on a
// hundred streams, until ctx ends. It returns how many were rejected.
func closedWindow(ctx context.Context, host string, trust *tls.Config, path string) (refused int64) {
	config := trust.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", host, config)
	if err != nil {
		return 0
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range 100 {
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: hpackBlock(host, path), EndStream: true, EndHeaders: true})
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return refused
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			// 429 has no index of its own: it follows that of 200 with its text.
			if fragment := frame.HeaderBlockFragment(); len(fragment) > 0 && fragment[0] != 0x88 {
				refused++
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		}
	}
}

// hpackBlock is the block of a GET, in HPACK without its tables.
func hpackBlock(host, path string) []byte {
	block := []byte{0x82, 0x87} // GET, https
	for _, one := range []struct {
		index byte
		value string
	}{{0x01, host}, {0x04, path}} {
		block = append(block, one.index) // literal, not indexed
		n := len(one.value)
		if n >= 127 {
			block = append(block, 127, byte(n-127))
		} else {
			block = append(block, byte(n))
		}
		block = append(block, one.value...)
	}
	return block
}

// tlsClientFrom is an HTTPS client that comes from one address of this machine.
func tlsClientFrom(t *testing.T, ip string, trust *tls.Config) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: trust.Clone()}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// checkLocalSocket checks that the local socket and the probes are served.
func (p *process) checkLocalSocket() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	if _, err := p.local().Status(ctx); err != nil {
		p.t.Errorf("the local socket: %v", err)
	}
}

// Two addresses with slow downloads hold as many requests as they may, and none
// of other clients; health and the local socket answer.
func TestSlowDownloads(t *testing.T) {
	p := start(t, nil)
	small, big := p.put("small"), p.putZeroes(8<<20)
	host := strings.TrimPrefix(p.http, "http://")
	compareGets(t, "slow downloads from two addresses", clientFrom(t, "127.0.0.9", 1), p.http+"/o/"+small.String(), func() func() {
		var held []net.Conn
		for i := range 512 {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP([]string{"127.0.0.2", "127.0.0.3"}[i%2])}}
			conn, err := dialer.Dial("tcp", host)
			if err != nil {
				continue
			}
			fmt.Fprintf(conn, "GET /o/%s HTTP/1.1\r\nHost: %s\r\nRange: bytes=0-\r\n\r\n", big, host) // not for the warm lane
			held = append(held, conn)
		}
		for _, path := range []string{"/healthz", "/readyz", "/version"} {
			if answer, body, err := fetch(p.http + path); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s: %v %v %s", path, answer, err, body)
			}
		}
		p.checkLocalSocket()
		return func() {
			for _, conn := range held {
				conn.Close()
			}
		}
	})
	p.stop(syscall.SIGTERM)
}

// 300 silent connections to the admin plane do not keep a probe of the same
// address out.
func TestSilentConnections(t *testing.T) {
	p := start(t, nil)
	host := strings.TrimPrefix(p.admin, "http://")
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	compareGets(t, "300 silent connections to the admin plane", web, p.admin+"/healthz", func() func() {
		var held []net.Conn
		for range 300 {
			if conn, err := net.Dial("tcp", host); err == nil {
				held = append(held, conn)
			}
		}
		return func() {
			for _, conn := range held {
				conn.Close()
			}
		}
	})
	p.stop(syscall.SIGTERM)
}

// One address opens connections with TLS as fast as it can.
func TestHandshakeFlood(t *testing.T) {
	p, trust := startTLS(t)
	small := p.put("small")
	host := strings.TrimPrefix(p.http, "https://")
	config := trust.Clone()
	config.InsecureSkipVerify = true
	var shaken, refused atomic.Int64
	compareGets(t, "flood of TLS handshakes", tlsClientFrom(t, "127.0.0.9", trust), p.http+"/o/"+small.String(), func() func() {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for ctx.Err() == nil {
					if conn, err := tls.Dial("tcp", host, config); err == nil {
						shaken.Add(1)
						conn.Close()
					} else {
						refused.Add(1)
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
		before := refused.Load()
		for deadline := time.Now().Add(20 * time.Second); refused.Load() == before && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		} // until the burst is used up
		return func() { cancel(); group.Wait() }
	})
	if refused.Load() == 0 {
		t.Error("no connection was refused")
	}
	t.Logf("%d handshakes, %d refused", shaken.Load(), refused.Load())
	p.stop(syscall.SIGTERM)
}

// A client that reads 20 KB a second is served to the end of the gate; one that
// reads nothing is disconnected.
func TestSteadyReader(t *testing.T) {
	p, trust := startTLS(t)
	big := p.putZeroes(32 << 20)
	host := strings.TrimPrefix(p.http, "https://")
	span := 15 * time.Second
	var group sync.WaitGroup
	for name, protocol := range map[string]string{"HTTP/1.1": "http/1.1", "HTTP/2": "h2"} {
		group.Go(func() {
			config := trust.Clone()
			config.NextProtos = []string{protocol}
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: protocol == "h2", HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 20},
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					conn, err := net.Dial("tcp", host)
					return &throttledConn{Conn: conn, from: time.Now(), until: span}, err
				}}
			defer transport.CloseIdleConnections()
			answer, err := (&http.Client{Transport: transport}).Get(p.http + "/o/" + big.String())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer answer.Body.Close()
			if n, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Errorf("%s: a steady reader was cut after %d bytes: %v", name, n, err)
			}
		})
	}
	group.Wait()
	report(t, "a steady reader of 20 KB/s", "not cut in 15s", "not cut")
	p.stop(syscall.SIGTERM)
}

// throttledConn reads 20 KB a second for a while, and then as fast as it can.
type throttledConn struct {
	net.Conn
	from  time.Time
	until time.Duration
	n     int
}

func (c *throttledConn) Read(p []byte) (int, error) {
	const rate = 20_000
	for {
		age := time.Since(c.from)
		if age > c.until || c.n < int(age.Seconds()*rate) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if time.Since(c.from) <= c.until {
		p = p[:min(len(p), 2000)]
	}
	n, err := c.Conn.Read(p)
	c.n += n
	return n, err
}
