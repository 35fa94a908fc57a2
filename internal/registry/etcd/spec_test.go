package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

func TestURLs(t *testing.T) {
	for text, want := range map[string]location{
		"etcd+https://one:2379,two:2380/team/log":    {true, []string{"one:2379", "two:2380"}, "/team/log/"},
		"etcd+https://one,two,three/":                {true, []string{"one:2379", "two:2379", "three:2379"}, "/micronode/registry/"},
		"etcd+https://one":                           {true, []string{"one:2379"}, "/micronode/registry/"},
		"etcd+http://127.0.0.1:1,localhost:2,[::1]/": {false, []string{"127.0.0.1:1", "localhost:2", "[::1]:2379"}, "/micronode/registry/"},
		"etcd+https://[2001:db8::1]:99/a/b/c/":       {true, []string{"[2001:db8::1]:99"}, "/a/b/c/"},
	} {
		got, err := parse(text)
		if err != nil || got.secure != want.secure || !slices.Equal(got.endpoints, want.endpoints) || got.prefix != want.prefix {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, named := range map[string]string{
		"":                                    "etcd+https://",
		"https://one:2379/x":                  "etcd+https://",
		"etcd+https://":                       "etcd+https://",
		"etcd+https:///prefix":                "etcd+https://",
		"etcd+https://one:2379,/x":            "etcd+https://",
		"etcd+https://one:99999/x":            "etcd+https://",
		"etcd+https://one:/x":                 "etcd+https://",
		"etcd+https://one:2:3/x":              "etcd+https://",
		"etcd+https://:2379/x":                "etcd+https://",
		"etcd+https://one/x?y=1":              "etcd+https://",
		"etcd+https://one/x#y":                "etcd+https://",
		"etcd+https://one/a//b":               "etcd+https://",
		"etcd+https://one/a/../b":             "etcd+https://",
		"etcd+https://one/a/./b":              "etcd+https://",
		"etcd+https://one, two/b":             "etcd+https://",
		"etcd+https://one,one:2379/b":         "once",
		"etcd+http://one.example:2379/b":      "etcd+https",
		"etcd+http://127.0.0.1,10.0.0.1/b":    "etcd+https",
		"etcd+https://root:secret@one:2379/b": "registry.storage.password",
	} {
		_, err := parse(text)
		kind(t, err, text, fault.Malformed)
		if !strings.Contains(fault.NextOf(err), named) {
			t.Errorf("%s: the next step %q does not name %s", text, fault.NextOf(err), named)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the password is in %v", err)
		}
	}
}

func TestSpecs(t *testing.T) {
	const secure, clear = "etcd+https://one/x", "etcd+http://127.0.0.1/x"
	folder := t.TempDir()
	none := filepath.Join(folder, "none")
	text := filepath.Join(folder, "text")
	must(t, os.WriteFile(text, []byte("this is no certificate"), 0o600))
	for named, spec := range map[string]Spec{
		setURL:       {URL: "what"},
		setTimeout:   {URL: secure, Timeout: -1},
		setPassword:  {URL: secure, Username: "root"},
		setUsername:  {URL: secure, Password: "secret"},
		setKey:       {URL: secure, CertFile: none},
		"etcd+http":  {URL: clear, CAFile: none},
		setCA + ".":  {URL: secure, CAFile: none},
		setCA + " n": {URL: secure, CAFile: text},
		setCert:      {URL: secure, CertFile: text, KeyFile: none},
	} {
		_, err := Open(t.Context(), spec)
		kind(t, err, named, fault.Malformed)
		if !strings.Contains(fault.NextOf(err), named) {
			t.Errorf("the next step %q does not name %q", fault.NextOf(err), named)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ended, Spec{URL: secure})
	kind(t, err, "after the end", fault.Canceled)
}

// certificate makes one that signs itself, and files of it.
func certificate(t *testing.T) (pair tls.Certificate, certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}), 0o600))
	pair, err = tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	return pair, certFile, keyFile
}

// TestNobodyThere uses the real client, with nobody at the other end.
func TestNobodyThere(t *testing.T) {
	const address = "127.0.0.1:1"
	_, certFile, keyFile := certificate(t)
	for name, spec := range map[string]Spec{
		"plain":            {URL: "etcd+http://" + address + "/x"},
		"with a password":  {URL: "etcd+http://" + address + "/x", Username: "root", Password: "secret"},
		"with certificate": {URL: "etcd+https://" + address + "/x", CAFile: certFile, CertFile: certFile, KeyFile: keyFile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                   // each waits until its time is over
			spec.Timeout = 5 * time.Second // an attempt gets a fifth, and to be refused takes a moment on a busy machine
			j, err := Open(t.Context(), spec)
			must(t, err)
			defer j.Close()
			_, err = j.Head(t.Context())
			kind(t, err, "nobody listens", fault.Timeout)
			// With a password every attempt begins with a connection of its own, and
			// the last one may be too short for that to be refused.
			if spec.Password == "" && !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("it does not say why: %v", err)
			}
			if strings.Contains(fmt.Sprint(err), "secret") || strings.Contains(fault.DetailOf(err), address) {
				t.Errorf("it says too much: %v", err)
			}
			kind(t, j.Append(t.Context(), nil, chain(0, 1, "a")), "nobody listens", fault.Timeout)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			kind(t, j.Changed(ctx, nil), "nobody listens", fault.Timeout)
		})
	}
}

// TestForeignCertificate meets a server whose certificate nobody vouches for.
func TestForeignCertificate(t *testing.T) {
	pair, _, _ := certificate(t)
	_, other, _ := certificate(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	j, err := Open(t.Context(), Spec{URL: "etcd+https://" + l.Addr().String() + "/x", CAFile: other, Timeout: 4 * time.Second})
	must(t, err)
	defer j.Close()
	_, err = j.Head(t.Context())
	kind(t, err, "a foreign certificate", fault.Timeout)
	if !strings.Contains(fault.NextOf(err), setCA) {
		t.Errorf("the next step %q does not name %s", fault.NextOf(err), setCA)
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Kind
	}{
		{rpctypes.ErrNoSpace, fault.StoreFull},
		{fmt.Errorf("wrapped: %w", rpctypes.ErrNoSpace), fault.StoreFull},
		{rpctypes.ErrTooManyRequests, fault.StorageBusy},
		{rpctypes.ErrNoLeader, fault.StorageBusy},
		{rpctypes.ErrAuthOldRevision, fault.StorageBusy},
		{rpctypes.ErrTimeoutDueToLeaderFail, fault.Timeout},
		{rpctypes.ErrUserEmpty, fault.Unauthorized},
		{rpctypes.ErrInvalidAuthToken, fault.Unauthorized},
		{rpctypes.ErrRoleNotFound, fault.UpstreamFailed},
		{rpctypes.ErrCompacted, fault.Conflict},
		{rpctypes.ErrCorrupt, fault.IntegrityFail},
		{status.Error(codes.Unavailable, "transport is closing"), fault.StorageBusy},
		{status.Error(codes.DataLoss, "what is this"), fault.IntegrityFail},
		{status.Error(codes.Internal, "what is this"), fault.UpstreamFailed},
		{context.DeadlineExceeded, fault.Timeout},
		{errors.New("what is this"), fault.UpstreamFailed},
		{fault.New("x", fault.NotFound, "ours"), fault.NotFound},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// TestRefusedPassword checks that a stranger is not told to fix what only the
// operator can.
func TestRefusedPassword(t *testing.T) {
	err := newLine(time.Second, nil).refusal(t.Context(), "test", rpctypes.ErrAuthFailed)
	kind(t, err, "a wrong password", fault.NotReady)
	if !strings.Contains(fault.NextOf(err), setPassword) || errors.Is(err, fault.Unauthorized) {
		t.Errorf("%v: %s", err, fault.NextOf(err))
	}
}

// TestOrder checks that keys are in the order of their numbers.
func TestOrder(t *testing.T) {
	l := layout{prefix: prefix}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		for _, key := range []func(uint64) string{l.record, l.checkpoint, func(n uint64) string { return l.chunks(snapshot{size: n}) }} {
			if (a < b) != (key(a) < key(b)) {
				t.Fatalf("%s and %s", key(a), key(b))
			}
		}
		if back, err := l.versionOf([]byte(l.record(a))); err != nil || back != a {
			t.Fatalf("%s is read as %d, %v", l.record(a), back, err)
		}
		first, beyond := l.records()
		if key := l.record(a); key < first || key >= beyond {
			t.Fatalf("%s is not among the records", key)
		}
	})
}

// TestValues checks that values are read as they were written, and that not a
// byte of them can change without being noticed.
func TestValues(t *testing.T) {
	some := rapid.SliceOfN(rapid.Byte(), 0, 100)
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.Uint64().Draw(t, "version")
		r := ledger.Record{Version: version, Header: some.Draw(t, "header"), Payload: some.Draw(t, "payload"), Preconditions: some.Draw(t, "preconditions")}
		e := entry{Record: r, mark: mark{1, 2, 3}}
		back, err := decodeEntry(version, []byte(e.encode()))
		if err != nil || back.mark != e.mark || !bytes.Equal(back.Header, r.Header) || !bytes.Equal(back.Payload, r.Payload) || !bytes.Equal(back.Preconditions, r.Preconditions) {
			t.Fatalf("%+v is read as %+v, %v", e, back, err)
		}
		head := r.Head()
		if got, err := decodeHead([]byte(encodeHead(head))); err != nil || got != head {
			t.Fatalf("%+v is read as %+v, %v", head, got, err)
		}
		s := snapshot{size: version, address: b3.Of(r.Header), length: 7}
		if got, note, err := decodeCheckpoint([]byte(s.encode(r.Payload))); err != nil || got != s || !bytes.Equal(note, r.Payload) {
			t.Fatalf("%+v is read as %+v, %v", s, got, err)
		}
		p := journal.Prune{Below: version, Note: r.Payload}
		if got, err := decodePrune([]byte(encodePrune(p))); err != nil || got.Below != p.Below || !bytes.Equal(got.Note, p.Note) {
			t.Fatalf("%+v is read as %+v, %v", p, got, err)
		}

		value := []byte(e.encode())
		value[rapid.IntRange(0, len(value)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if _, err := decodeEntry(version, value); err == nil {
			t.Fatalf("a byte was changed, and nobody noticed")
		}
		if _, err := decodeEntry(version, value[:rapid.IntRange(0, len(value)-1).Draw(t, "length")]); err == nil {
			t.Fatalf("it was cut off, and nobody noticed")
		}
	})
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(entry{Record: record(0, "a")}.encode()))
	f.Add([]byte(snapshot{}.encode([]byte("note"))))
	f.Add([]byte(encodePrune(prune(1))))
	f.Add([]byte(encodeHead(record(0, "a").Head())))
	f.Fuzz(func(t *testing.T, value []byte) {
		if e, err := decodeEntry(0, value); err == nil && e.encode() != string(value) {
			t.Errorf("%q is read as a record that is written in another way", value)
		}
		_, _, _ = decodeCheckpoint(value)
		_, _ = decodePrune(value)
		_, _ = decodeHead(value)
	})
}

// TestTooLate makes a client for somebody who has left, as when a journal is
// closed while it connects. Nobody would close that client.
func TestTooLate(t *testing.T) {
	dial, err := dialer(Spec{}, location{endpoints: []string{"127.0.0.1:1"}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := dial(ctx); err == nil {
		t.Errorf("a client was made after the end")
		_ = r.close()
	}
}
