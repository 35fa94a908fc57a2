package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	"micronode/internal/testkit"
)

func TestURLs(t *testing.T) {
	for text, want := range map[string]clusterURL{
		"etcd+https://one:2379,two:2380/team/log":    {true, []string{"one:2379", "two:2380"}, "/team/log/"},
		"etcd+https://one,two,three/":                {true, []string{"one:2379", "two:2379", "three:2379"}, "/micronode/registry/"},
		"etcd+https://one":                           {true, []string{"one:2379"}, "/micronode/registry/"},
		"etcd+http://127.0.0.1:1,localhost:2,[::1]/": {false, []string{"127.0.0.1:1", "localhost:2", "[::1]:2379"}, "/micronode/registry/"},
		"etcd+https://[2001:db8::1]:99/a/b/c/":       {true, []string{"[2001:db8::1]:99"}, "/a/b/c/"},
	} {
		got, err := parseURL(text)
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
		_, err := parseURL(text)
		testkit.WantKind(t, err, fault.Malformed, text)
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
	testkit.Must(t, os.WriteFile(text, []byte("this is no certificate"), 0o600))
	for named, spec := range map[string]Spec{
		settingURL:       {URL: "what"},
		settingTimeout:   {URL: secure, Timeout: -1},
		settingPassword:  {URL: secure, Username: "root"},
		settingUsername:  {URL: secure, Password: "secret"},
		settingKey:       {URL: secure, CertFile: none},
		"etcd+http":      {URL: clear, CAFile: none},
		settingCA + ".":  {URL: secure, CAFile: none},
		settingCA + " n": {URL: secure, CAFile: text},
		settingCert:      {URL: secure, CertFile: text, KeyFile: none},
	} {
		_, err := Open(t.Context(), spec)
		testkit.WantKind(t, err, fault.Malformed, named)
		if !strings.Contains(fault.NextOf(err), named) {
			t.Errorf("the next step %q does not name %q", fault.NextOf(err), named)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ended, Spec{URL: secure})
	testkit.WantKind(t, err, fault.Canceled, "after the end")
}

// TestNobodyThere uses the real client, without a server.
func TestNobodyThere(t *testing.T) {
	const address = "127.0.0.1:1"
	_, certFile, keyFile := testkit.Certificate(t)
	for name, spec := range map[string]Spec{
		"plain":            {URL: "etcd+http://" + address + "/x"},
		"with a password":  {URL: "etcd+http://" + address + "/x", Username: "root", Password: "secret"},
		"with certificate": {URL: "etcd+https://" + address + "/x", CAFile: certFile, CertFile: certFile, KeyFile: keyFile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                   // each waits until its time is over
			spec.Timeout = 5 * time.Second // an attempt gets a fifth, and to be refused takes a moment on a busy machine
			j, err := Open(t.Context(), spec)
			testkit.Must(t, err)
			defer j.Close()
			_, err = j.Head(t.Context())
			testkit.WantKind(t, err, fault.Timeout, "nobody listens")
			// With a password every attempt begins with a connection of its own, and
			// the last one may be too short for that to be refused.
			if spec.Password == "" && !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("it does not say why: %v", err)
			}
			if strings.Contains(fmt.Sprint(err), "secret") || strings.Contains(fault.DetailOf(err), address) {
				t.Errorf("it says too much: %v", err)
			}
			testkit.WantKind(t, j.Append(t.Context(), nil, chain(0, 1, "a")), fault.Timeout, "nobody listens")
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			testkit.WantKind(t, j.Changed(ctx, nil), fault.Timeout, "nobody listens")
		})
	}
}

// TestForeignCertificate connects to a server whose certificate is not trusted.
func TestForeignCertificate(t *testing.T) {
	pair, _, _ := testkit.Certificate(t)
	_, other, _ := testkit.Certificate(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	testkit.Must(t, err)
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
	testkit.Must(t, err)
	defer j.Close()
	_, err = j.Head(t.Context())
	testkit.WantKind(t, err, fault.Timeout, "a foreign certificate")
	if !strings.Contains(fault.NextOf(err), settingCA) {
		t.Errorf("the next step %q does not name %s", fault.NextOf(err), settingCA)
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

// TestRefusedPassword checks that a client is not asked to fix what only the
// operator can.
func TestRefusedPassword(t *testing.T) {
	err := newConn(time.Second, nil).refusal(t.Context(), "test", rpctypes.ErrAuthFailed)
	testkit.WantKind(t, err, fault.NotReady, "a wrong password")
	if !strings.Contains(fault.NextOf(err), settingPassword) || errors.Is(err, fault.Unauthorized) {
		t.Errorf("%v: %s", err, fault.NextOf(err))
	}
}

// TestOrder checks that keys are in the order of their numbers.
func TestOrder(t *testing.T) {
	l := layout{prefix: prefix}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		for _, key := range []func(uint64) string{l.record, l.checkpoint, func(n uint64) string { return l.chunks(snapshotKey{size: n}) }} {
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

// TestValues checks that values are read as they were written, and that a
// change of any byte is detected.
func TestValues(t *testing.T) {
	some := rapid.SliceOfN(rapid.Byte(), 0, 100)
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.Uint64().Draw(t, "version")
		r := ledger.Record{Version: version, Header: some.Draw(t, "header"), Payload: some.Draw(t, "payload"), Preconditions: some.Draw(t, "preconditions")}
		e := storedRecord{Record: r, appendID: appendID{1, 2, 3}}
		back, err := decodeRecord(version, []byte(e.encode()))
		if err != nil || back.appendID != e.appendID || !bytes.Equal(back.Header, r.Header) || !bytes.Equal(back.Payload, r.Payload) || !bytes.Equal(back.Preconditions, r.Preconditions) {
			t.Fatalf("%+v is read as %+v, %v", e, back, err)
		}
		head := r.Head()
		if got, err := decodeHead([]byte(encodeHead(head))); err != nil || got != head {
			t.Fatalf("%+v is read as %+v, %v", head, got, err)
		}
		s := snapshotKey{size: version, address: b3.Of(r.Header), length: 7}
		if got, note, err := decodeCheckpoint([]byte(s.encode(r.Payload))); err != nil || got != s || !bytes.Equal(note, r.Payload) {
			t.Fatalf("%+v is read as %+v, %v", s, got, err)
		}
		p := journal.Prune{Below: version, Note: r.Payload}
		if got, err := decodePrune([]byte(encodePrune(p))); err != nil || got.Below != p.Below || !bytes.Equal(got.Note, p.Note) {
			t.Fatalf("%+v is read as %+v, %v", p, got, err)
		}

		value := []byte(e.encode())
		value[rapid.IntRange(0, len(value)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if _, err := decodeRecord(version, value); err == nil {
			t.Fatalf("a byte was changed, and nobody noticed")
		}
		if _, err := decodeRecord(version, value[:rapid.IntRange(0, len(value)-1).Draw(t, "length")]); err == nil {
			t.Fatalf("it was cut off, and nobody noticed")
		}
	})
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(storedRecord{Record: record(0, "a")}.encode()))
	f.Add([]byte(snapshotKey{}.encode([]byte("note"))))
	f.Add([]byte(encodePrune(prune(1))))
	f.Add([]byte(encodeHead(record(0, "a").Head())))
	f.Fuzz(func(t *testing.T, value []byte) {
		if e, err := decodeRecord(0, value); err == nil && e.encode() != string(value) {
			t.Errorf("%q is read as a record that is written in another way", value)
		}
		_, _, _ = decodeCheckpoint(value)
		_, _ = decodePrune(value)
		_, _ = decodeHead(value)
	})
}

// TestTooLate makes a client for a caller that has cancelled, as when a journal
// is closed while it connects. That client would never be closed.
func TestTooLate(t *testing.T) {
	dial, err := dialer(Spec{}, clusterURL{endpoints: []string{"127.0.0.1:1"}})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := dial(ctx); err == nil {
		t.Errorf("a client was made after the end")
		_ = r.close()
	}
}
