package client

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
)

// A folder of many files is not one exchange for each of them: the client asks
// what is missing, and small files go together, in both directions. A node of
// an earlier version knows none of that, and gets and sends one after the other.

const (
	manyFiles  = 32        // files of a folder, from which on that is worth it
	smallFile  = 256 << 10 // bytes of a file that goes together with others
	batchBytes = 2 << 20   // bytes of files that are sent together
	runBytes   = 16 << 20  // bytes of files that are received together
	minRun     = 512       // files that are received together; more of a large folder
	maxRuns    = 16        // parts of a large folder, each of which costs the node a manifest
)

// folderPutter is a PutFolder that is under way.
type folderPutter struct {
	// set at construction
	client   *Client
	root     *os.Root
	folder   string // as errors name it
	entries  []Entry
	follow   bool // links to files in the folder
	named    bool // the files are kept for a name
	parallel int
	progress *progressSum

	sent atomic.Int64 // files that the node did not have
}

func (p *folderPutter) file(i int) localFile {
	return localFile{root: p.root, follow: p.follow, named: p.named, label: filepath.Join(p.folder, filepath.FromSlash(p.entries[i].Path))}
}

// putEach asks for each file, and sends it if it is missing.
func (p *folderPutter) putEach(ctx context.Context) error {
	return forEachParallel(ctx, p.parallel, len(p.entries), func(ctx context.Context, i int) error {
		created, err := p.file(i).put(ctx, p.client, &p.entries[i], p.progress)
		if created {
			p.sent.Add(1)
		}
		return err
	})
}

// putMany computes all addresses, asks for all of them, and sends what is
// missing: small files together.
func (p *folderPutter) putMany(ctx context.Context) error {
	err := forEachParallel(ctx, p.parallel, len(p.entries), func(ctx context.Context, i int) error {
		return p.file(i).address(ctx, &p.entries[i])
	})
	if err != nil {
		return err
	}

	// Files with the same bytes are one object.
	first := map[b3.Address]int{}
	addresses := []b3.Address{}
	for i, one := range p.entries {
		if _, again := first[one.B3]; !again {
			first[one.B3] = i
			addresses = append(addresses, one.B3)
		}
	}
	var jobs [][]int
	size := int64(0)
	there := Manifest{Entries: p.entries}.Size()
	for ask := range slices.Chunk(addresses, MaxBatchObjects) {
		missing, err := p.client.missing(ctx, ask, p.named)
		switch fault.KindOf(err) {
		case fault.NotFound, fault.MethodNotAllowed, fault.Timeout:
			if ctx.Err() == nil {
				return p.putEach(ctx) // it is of an earlier version, or its store is too far away to be asked a thousand times
			}
		}
		if err != nil {
			return err
		}
		for _, address := range missing {
			i, asked := first[address]
			if !asked {
				continue
			}
			delete(first, address) // it is sent once, however often the node says that it is missing
			one := p.entries[i]
			there -= one.Size
			last := len(jobs) - 1
			if one.Size > smallFile || last < 0 || size+one.Size > batchBytes || len(jobs[last]) == MaxBatchObjects {
				jobs, size = append(jobs, nil), 0
				last++
			}
			jobs[last] = append(jobs[last], i)
			if size += one.Size; one.Size > smallFile {
				size = batchBytes // it goes alone
			}
		}
	}
	p.progress.add(there)
	return forEachParallel(ctx, p.parallel, len(jobs), func(ctx context.Context, j int) error { return p.send(ctx, jobs[j]) })
}

// send sends one file, or several small ones together.
func (p *folderPutter) send(ctx context.Context, files []int) error {
	if len(files) == 1 {
		created, err := p.file(files[0]).send(ctx, p.client, p.entries[files[0]], p.progress)
		if created {
			p.sent.Add(1)
		}
		return err
	}
	var together batch
	size := int64(0)
	for _, i := range files {
		data, err := p.file(i).read(p.entries[i])
		if err != nil {
			return err
		}
		together.add(data, p.entries[i].B3)
		size += p.entries[i].Size
	}
	created, err := p.client.putBatch(ctx, &together, p.named)
	if err != nil {
		return withPath(putFolderOp, p.file(files[0]).label+" and others", err)
	}
	p.sent.Add(int64(created))
	p.progress.add(size)
	return nil
}

// read reads a small file whose address is known.
func (f localFile) read(entry Entry) ([]byte, error) {
	file, err := f.open(entry.Path)
	if err != nil {
		return nil, readFileError(f.label, err)
	}
	defer file.Close()
	data := make([]byte, entry.Size+1)
	n, err := io.ReadFull(file, data)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, readFileError(f.label, err)
	}
	if got := b3.Of(data[:n]); got != entry.B3 {
		return nil, &fault.Error{Op: putFolderOp, Kind: fault.IntegrityFail, Detail: f.label + " has changed while the folder was being put", Err: &b3.Mismatch{Want: entry.B3, Got: got},
			Next: "Put the folder again when no program writes to it."}
	}
	return data[:n], nil
}

// getMany keeps the files that are complete, and gets the rest: runs of small
// ones together. What a run does not bring is fetched by itself.
func (g *folderGetter) getMany(ctx context.Context, parallel int, manifest b3.Address, entries []Entry) error {
	entries = slices.SortedFunc(slices.Values(entries), byPath) // as the manifest has them
	missing := make([]bool, len(entries))
	err := forEachParallel(ctx, parallel, len(entries), func(ctx context.Context, i int) error {
		kept, err := g.keep(ctx, entries[i])
		missing[i] = !kept
		return err
	})
	if err != nil {
		return err
	}

	var runs []fileRun
	offset, longest := int64(0), max(minRun, (len(entries)+maxRuns-1)/maxRuns)
	for i, one := range entries {
		from := offset
		offset += one.Size
		last := len(runs) - 1
		switch {
		case !missing[i]:
		case last >= 0 && runs[last].first+runs[last].n == i && runs[last].n < longest && max(one.Size, entries[runs[last].first].Size) <= smallFile && runs[last].size+one.Size <= runBytes:
			runs[last].n++
			runs[last].size += one.Size
		default:
			runs = append(runs, fileRun{first: i, n: 1, from: from, size: one.Size})
		}
	}
	var mu sync.Mutex
	var left []int // what the runs have not brought
	err = forEachParallel(ctx, parallel, len(runs), func(ctx context.Context, r int) error {
		got, err := g.getRun(ctx, manifest, runs[r], entries)
		mu.Lock()
		defer mu.Unlock()
		for i := runs[r].first + got; i < runs[r].first+runs[r].n; i++ {
			left = append(left, i)
		}
		return err
	})
	if err != nil {
		return err
	}
	return forEachParallel(ctx, parallel, len(left), func(ctx context.Context, i int) error { return g.fetch(ctx, entries[left[i]]) })
}

// fileRun is files that follow each other in a manifest.
type fileRun struct {
	first, n int
	from     int64 // where the first begins
	size     int64 // of all of them
}

// getRun gets files that follow each other, and returns how many it brought:
// from the node, and what it does not have through it from others. An error is
// one of our own disk, or the end of the context: what the node does not send,
// it is asked for again.
func (g *folderGetter) getRun(ctx context.Context, manifest b3.Address, run fileRun, entries []Entry) (got int, err error) {
	if run.n == 1 {
		return 0, nil
	}
	if !g.absent.Load() {
		sent, failed, err := g.readRun(ctx, manifest, false, run, entries)
		if got += sent; failed == nil || err != nil {
			return got, err
		}
		if g.mayFetch && fault.KindOf(failed) == fault.NotFound {
			g.absent.Store(true)
		}
	}
	if got == run.n || !g.mayFetch || g.singly.Load() {
		return got, nil
	}
	for _, one := range entries[run.first : run.first+got] {
		run.from += one.Size
		run.size -= one.Size
	}
	run.first, run.n = run.first+got, run.n-got
	sent, failed, err := g.readRun(ctx, manifest, true, run, entries)
	switch fault.KindOf(failed) {
	case fault.NotFound, fault.MethodNotAllowed, fault.Unauthorized, fault.Forbidden:
		if sent == 0 {
			g.singly.Store(true)
		}
	}
	return got + sent, err
}

// readRun reads files that follow each other, and writes those that are right.
// Failed says why the node has sent no more.
func (g *folderGetter) readRun(ctx context.Context, manifest b3.Address, fetch bool, run fileRun, entries []Entry) (got int, failed, err error) {
	var in io.Reader = bytes.NewReader(nil) // of files that are empty
	if run.size > 0 {
		body, err := g.client.openFiles(ctx, manifest, fetch, run.from, run.size)
		if err != nil {
			return 0, err, nil
		}
		defer body.Close()
		in = bufio.NewReaderSize(body, 64<<10)
	}
	buffer := make([]byte, smallFile)
	for _, one := range entries[run.first : run.first+run.n] {
		data := buffer[:one.Size]
		if _, err := io.ReadFull(in, data); err != nil {
			return got, err, nil
		}
		if found := b3.Of(data); found != one.B3 {
			return got, &b3.Mismatch{Want: one.B3, Got: found}, nil
		}
		if err := g.writeError(one, g.write(one, bytes.NewReader(data))); err != nil {
			return got, nil, err
		}
		g.progress.add(one.Size)
		got++
	}
	return got, nil, nil
}
