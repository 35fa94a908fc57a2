package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// siteLabel is what the first node calls the folder.
const siteLabel = "site"

// siteFile is a file of the folder. It exists in memory only.
type siteFile struct {
	path, kind string
	body       []byte
	address    b3.Address
}

// newSite makes the folder: a few pages, and something large that nothing can
// compress.
func newSite() []siteFile {
	page := func(text string) []byte {
		return []byte("<!doctype html>\n<title>demo</title>\n<link rel=stylesheet href=style.css>\n<p>" + text + "\n")
	}
	large := make([]byte, 4<<20+4321) // no multiple of anything
	_, _ = rand.NewChaCha8([32]byte{'d', 'e', 'm', 'o'}).Read(large)
	var site []siteFile
	for _, one := range []siteFile{
		{path: "about/index.html", kind: "text/html; charset=utf-8", body: page("This page was never on a disk.")},
		{path: "data/large.bin", kind: "application/octet-stream", body: large},
		{path: "index.html", kind: "text/html; charset=utf-8", body: page("Hello from node 1.")},
		{path: "notes.txt", kind: "text/plain; charset=utf-8", body: bytes.Repeat([]byte("The same bytes always have the same address.\n"), 2000)},
		{path: "style.css", kind: "text/css; charset=utf-8", body: []byte("p { font: 2em serif }\n")},
	} {
		one.address = b3.Of(one.body)
		site = append(site, one)
	}
	return site
}

// manifestOf is what the folder holds.
func manifestOf(site []siteFile) client.Manifest {
	var m client.Manifest
	for _, one := range site {
		m.Entries = append(m.Entries, client.Entry{B3: one.address, Path: one.path, Size: int64(len(one.body)), Type: one.kind})
	}
	return m
}

func bodies(site []siteFile) [][]byte {
	var all [][]byte
	for _, one := range site {
		all = append(all, one.body)
	}
	return all
}

// largest is the file that takes the longest.
func (s *stage) largest() siteFile {
	return slices.MaxFunc(s.site, func(a, b siteFile) int { return len(a.body) - len(b.body) })
}

// mebibytes is the size of all files.
func mebibytes(site []siteFile) string {
	return fmt.Sprintf("%.1f MiB", float64(manifestOf(site).Size())/(1<<20))
}

// short is an address as a person recognises it.
func short(address b3.Address) string { return address.String()[:len(b3.Prefix)+8] + "…" }

// rangeSize is how much of a file is asked for at a time.
const rangeSize = 512 << 10

// edgePath is where the edge of a node serves a file of the folder.
func (s *stage) edgePath(file siteFile) string {
	return "/edge/assets/" + s.siteName() + "/" + file.path
}

// readThrough reads every file of the folder through the edge of a node, as a
// browser or a map would: by its name, in ranges, by plain HTTP. The node does
// not have them, and finds out who has. It tells how many ranges there were.
func (s *stage) readThrough(ctx context.Context, n *demoNode) (ranges int, err error) {
	for _, file := range s.site {
		if _, err := n.local.Stat(ctx, file.address); !errors.Is(err, fault.NotFound) {
			return 0, n.about(orElse(err, n.wrong(fault.Conflict, "has %s already, and to fetch it would prove nothing", file.path)))
		}
		url := n.banner.HTTP + s.edgePath(file)
		var whole []byte
		for at := 0; at < len(file.body); at += rangeSize {
			var part []byte
			err := eventually(ctx, func() (err error) {
				part, err = s.readRange(ctx, url, at, min(at+rangeSize, len(file.body)), len(file.body))
				return n.about(err)
			})
			if err != nil {
				return 0, err
			}
			whole = append(whole, part...)
			ranges++
		}
		if !bytes.Equal(whole, file.body) {
			return 0, n.wrong(fault.IntegrityFail, "gave other bytes of %s than were put on node 1", file.path)
		}
	}
	return ranges, nil
}

// readRange asks for the bytes of a file from one place up to another, and
// takes nothing else for an answer.
func (s *stage) readRange(ctx context.Context, url string, from, to, size int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fault.Wrap(demoOp, err)
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	answer, err := s.web.Do(request)
	if err != nil {
		return nil, fault.Wrap(demoOp, err)
	}
	defer answer.Body.Close()
	part, err := io.ReadAll(io.LimitReader(answer.Body, rangeSize+1))
	if err != nil {
		return nil, fault.Wrap(demoOp, err)
	}
	want := fmt.Sprintf("bytes %d-%d/%d", from, to-1, size)
	if got := answer.Header.Get("Content-Range"); answer.StatusCode != http.StatusPartialContent || got != want || len(part) != to-from {
		return nil, &fault.Error{Op: demoOp, Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%s was asked for %s and answered %s with %q and %d bytes", url, want, answer.Status, got, len(part)),
			Next: "What the node said last may tell why."}
	}
	return part, nil
}
