package demo

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

// siteLabel is the first node's name for the folder.
const siteLabel = "site"

// siteFile is a file of the folder. It exists in memory only.
type siteFile struct {
	path, kind string
	body       []byte
	address    b3.Address
}

// newSite makes the folder: a few pages, and a large incompressible file.
func newSite() []siteFile {
	page := func(text string) []byte {
		return []byte("<!doctype html>\n<title>demo</title>\n<link rel=stylesheet href=style.css>\n<p>" + text + "\n")
	}
	large := make([]byte, 4<<20+4321) // not a multiple of any block size
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

// manifestOf is the manifest of the folder.
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

// largest is the largest file.
func (net *network) largest() siteFile {
	return slices.MaxFunc(net.site, func(a, b siteFile) int { return len(a.body) - len(b.body) })
}

// formatMiB is the size of all files.
func formatMiB(site []siteFile) string {
	return fmt.Sprintf("%.1f MiB", float64(manifestOf(site).Size())/(1<<20))
}

// shortAddress is the beginning of an address, enough to recognise it.
func shortAddress(address b3.Address) string { return address.String()[:len(b3.Prefix)+8] + "…" }

// rangeSize is how many bytes of a file are requested at a time.
const rangeSize = 512 << 10

// edgePath is the path of a file of the folder at the edge of a node.
func (net *network) edgePath(file siteFile) string {
	return "/edge/assets/" + net.siteName() + "/" + file.path
}

// readThroughEdge reads every file of the folder through the edge of a node,
// as a browser or a map would: by its name, in ranges, by plain HTTP. The node
// does not have them, and searches for providers. It returns the number of
// ranges.
func (net *network) readThroughEdge(ctx context.Context, n *node) (ranges int, err error) {
	for _, file := range net.site {
		if _, err := n.local.Stat(ctx, file.address); !errors.Is(err, fault.NotFound) {
			return 0, n.wrapError(firstErr(err, n.errorf(fault.Conflict, "has %s already, so that a fetch would prove nothing", file.path)))
		}
		url := n.banner.HTTP + net.edgePath(file)
		var whole []byte
		for at := 0; at < len(file.body); at += rangeSize {
			var part []byte
			err := eventually(ctx, func() (err error) {
				part, err = net.readRange(ctx, url, at, min(at+rangeSize, len(file.body)), len(file.body))
				return n.wrapError(err)
			})
			if err != nil {
				return 0, err
			}
			whole = append(whole, part...)
			ranges++
		}
		if !bytes.Equal(whole, file.body) {
			return 0, n.errorf(fault.IntegrityFail, "returned other bytes of %s than node 1 stored", file.path)
		}
	}
	return ranges, nil
}

// readRange requests a range of a file, and rejects any other answer.
func (net *network) readRange(ctx context.Context, url string, from, to, size int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	answer, err := net.httpClient.Do(request)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer answer.Body.Close()
	part, err := io.ReadAll(io.LimitReader(answer.Body, rangeSize+1))
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	want := fmt.Sprintf("bytes %d-%d/%d", from, to-1, size)
	if got := answer.Header.Get("Content-Range"); answer.StatusCode != http.StatusPartialContent || got != want || len(part) != to-from {
		return nil, &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%s answered a request for %s with %s, %q and %d bytes", url, want, answer.Status, got, len(part)),
			Next: "See the last log lines of the node."}
	}
	return part, nil
}
