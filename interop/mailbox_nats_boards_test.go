package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/mailbox/nats"
)

// countingProxy is a proxy of a server that counts the bytes that it sends.
type countingProxy struct {
	address  string
	received atomic.Int64
}

func newCountingProxy(t *testing.T, server string) *countingProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &countingProxy{address: listener.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { m.relay(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait()
	})
	return m
}

func (c *countingProxy) relay(client net.Conn, server string) {
	defer func() { _ = client.Close() }()
	there, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(there, client)
		_ = there.Close()
	})
	_, _ = io.Copy(client, io.TeeReader(there, c))
	_ = client.Close()
	up.Wait()
}

// Write implements io.Writer.
func (c *countingProxy) Write(b []byte) (int, error) {
	c.received.Add(int64(len(b)))
	return len(b), nil
}

// natsPages reads pages of a long board, beside which others are written to,
// and counts what the server sends for each.
func natsPages(t *testing.T, binary string) {
	c := startNATS(t, binary, 1)
	const notes, size, page = 2000, 1 << 10, 50
	limits := mailboxtest.Limits()
	limits.BoardNotes = notes
	writer := openNATS(t, nats.Spec{URL: c.url(), Limits: limits, Timeout: 30 * time.Second})
	var posting sync.WaitGroup
	posting.Go(func() { // in bursts, so that the notes are not spread evenly
		for i := range notes {
			targets := []string{"wall"}
			if i%100 == 0 {
				for j := range 200 {
					targets = append(targets, fmt.Sprint("other ", i, j))
				}
			}
			if err := writer.Post(t.Context(), targets, mailbox.Note{ID: fmt.Sprint("note ", i), Body: bytes.Repeat([]byte{'x'}, size)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	posting.Wait()
	if t.Failed() {
		return
	}
	for _, depth := range []int{0, 1, 70, notes / 2, notes - page} {
		m := newCountingProxy(t, c.servers[0].client)
		reader := openNATS(t, nats.Spec{URL: "nats://" + m.address, Limits: limits, Timeout: 30 * time.Second}) // without a cache of the board
		if _, err := reader.Notes(t.Context(), "nothing", "", 1); err != nil {
			t.Fatal(err)
		}
		after := ""
		if depth > 0 {
			after = fmt.Sprint("note ", notes-depth)
		}
		before := m.received.Load()
		got, err := reader.Notes(t.Context(), "wall", after, page)
		read := m.received.Load() - before
		if err != nil || len(got) != page || got[0].ID != fmt.Sprint("note ", notes-1-depth) || got[page-1].ID != fmt.Sprint("note ", notes-depth-page) {
			t.Fatalf("the page after %q: %d notes, %v", after, len(got), err)
		}
		t.Logf("a page of %d KiB after %d of %d notes: %d KiB", page*size>>10, depth, notes, read>>10)
		if most := int64(3*page*size) + 64<<10; read > most {
			t.Errorf("after %d notes the server sent %d bytes for a page of %d, more than %d", depth, read, page*size, most)
		}
	}
}

// natsBoardsOfMany has several nodes post the same notes to one board at the same
// time, and again after a restart of the server.
func natsBoardsOfMany(t *testing.T, binary string) {
	c := startNATS(t, binary, 3)
	limits := mailboxtest.Limits()
	limits.BoardNotes = 40
	var nodes []*nats.Mailbox
	for range 3 {
		nodes = append(nodes, openNATS(t, nats.Spec{URL: c.url(), Replicas: 3, Limits: limits, Timeout: 20 * time.Second}))
	}
	natsEventually(t, "the cluster keeps notes", func() bool {
		return nodes[0].Post(t.Context(), []string{"first"}, mailbox.Note{ID: "1"}) == nil
	})
	const notes = 60
	post := func(body string) {
		var posting sync.WaitGroup
		for _, m := range nodes {
			posting.Go(func() {
				for i := range notes {
					n := mailbox.Note{ID: fmt.Sprint("note ", i), Body: fmt.Append(nil, body, i)}
					natsEventually(t, "it is posted", func() bool {
						err := m.Post(t.Context(), []string{"wall"}, n)
						if err != nil && !isUnavailable(err) {
							t.Errorf("Post: %v", err)
						}
						return err == nil
					})
				}
			})
		}
		posting.Wait()
	}
	post("first ")
	walk := func(m *nats.Mailbox) (all []mailbox.Note) {
		after := ""
		for {
			page, err := m.Notes(t.Context(), "wall", after, 7)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page...)
			if len(page) < 7 {
				return all
			}
			after = page[6].ID
		}
	}
	check := func() {
		t.Helper()
		for i, m := range nodes {
			var all []mailbox.Note
			natsEventually(t, "the newest are there, once", func() bool {
				all = walk(m)
				seen := map[string]bool{}
				for _, n := range all {
					seen[n.ID] = true
				}
				return len(all) == limits.BoardNotes && len(seen) == limits.BoardNotes
			})
			for _, n := range all {
				if !bytes.HasPrefix(n.Body, []byte("first ")) {
					t.Errorf("node %d: a note was replaced: %s", i, n.Body)
				}
			}
		}
	}
	check()
	newest := walk(nodes[0])
	for _, s := range c.servers {
		s.kill()
		s.run(t)
		ctx, cancel := context.WithTimeout(t.Context(), natsTimeout)
		natsEventually(t, "the cluster keeps notes again", func() bool {
			return nodes[0].Post(ctx, []string{"first"}, mailbox.Note{ID: s.client}) == nil
		})
		cancel()
	}
	for i, n := range slices.Backward(newest) { // they are on the board already, so nothing happens
		if err := nodes[i%3].Post(t.Context(), []string{"wall"}, mailbox.Note{ID: n.ID, Body: []byte("again")}); err != nil {
			t.Fatal(err)
		}
	}
	check()
	if now := walk(nodes[0]); !slices.EqualFunc(now, newest, func(a, b mailbox.Note) bool { return a.ID == b.ID }) {
		t.Errorf("the order has changed: %v, before %v", now, newest)
	}
}
