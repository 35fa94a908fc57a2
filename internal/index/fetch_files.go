package index

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/store"
)

// The files of a folder that are not here come from whoever has its manifest:
// many small ones in one exchange. Each is verified and stored before it is
// passed on. A provider of an earlier version knows none of that.

const (
	filesPattern     = "/fetch/{b3}/files"
	maxFilesRequests = 8 // folders that are fetched at a time: each holds its manifest

	maxRunFiles = 1024    // files that are fetched in one exchange
	maxRunBytes = 4 << 20 // bytes of them
	maxRunFile  = 1 << 20 // bytes of one; a larger one is fetched in parts, from all who have it
)

func (x *Index) filesRoute(address []ingress.Param) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: filesPattern, Handler: x.handleReadFiles, Class: ingress.Transfer,
		Scope: "object:put", Concurrency: maxFilesRequests, Deadline: fetchStartTimeout,
		Docs: ingress.Docs{Summary: "Read the files of a folder, and fetch those that are not here", Params: address, Content: true,
			Description: "The object is a manifest. The answer is its files, one after the other in its order, or a range of that. What is missing comes from providers of the folder, many small files together, verified, and is cached. NotFound if none of them sends files together: then fetch each by itself.",
			Responses:   []ingress.Response{{Status: http.StatusOK, Type: "application/octet-stream", Doc: "The bytes of all files."}},
			Kinds:       []fault.Kind{fault.Malformed, fault.NotFound, fault.IntegrityFail, fault.UpstreamFailed, fault.StoreFull, fault.Timeout, fault.Busy}},
	}
}

func (x *Index) handleReadFiles(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap(opFetch, err)
	}
	if _, _, err := x.Fetch(r.Context(), address); err != nil {
		return err
	}
	files, err := store.OpenFiles(r.Context(), x.spec.Store, address)
	if err != nil {
		return err
	}
	f := &filesFetch{index: x, allowed: x.newAllowance(), manifest: address, files: files}
	f.ctx = f.allowed.withContext(r.Context())
	content := files.Content(address)
	content.Write = f.writeRange
	ingress.MarkUntrusted(w.Header())
	_, err = ingress.ServeContent(w, r, content)
	return err
}

// filesFetch is a folder whose files are fetched while they are read. It belongs
// to one task.
type filesFetch struct {
	// set at construction
	index    *Index
	ctx      context.Context // of the request, which is why it is kept
	allowed  *allowance
	manifest b3.Address
	files    *store.Files

	sources []fetchSource // those that may send files together
	asked   bool          // whether sources was looked for
	buffer  []byte        // of one file
}

// writeRange writes a part of the files, and fetches those that are missing. The
// error is NotFound as soon as nobody sends files together.
func (f *filesFetch) writeRange(w io.Writer, from, length int64) error {
	for end := from + length; from < end; {
		i := f.files.Find(from)
		if f.isHere(i) {
			to := min(end, f.files.End(i))
			if err := f.files.WriteRange(w, from, to-from); err != nil {
				return err
			}
			from = to
			continue
		}
		next, err := f.writeMissing(w, i, from, end)
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// isHere reports whether a file is stored. One without bytes is nothing to fetch.
func (f *filesFetch) isHere(i int) bool {
	one := f.files.Entry(i)
	if one.Size == 0 {
		return true
	}
	_, err := f.index.spec.Store.Stat(f.ctx, one.B3)
	return err == nil
}

// writeMissing writes files from one on that is missing: as many as a source
// sends together, or else that one alone. It returns where it has ended.
func (f *filesFetch) writeMissing(w io.Writer, i int, from, end int64) (int64, error) {
	if f.files.Entry(i).Size <= maxRunFile {
		if err := f.findSources(); err != nil {
			return from, err
		}
		if next, err := f.writeTogether(w, i, from, end); err != nil || next > from {
			return next, err
		}
		if len(f.sources) == 0 {
			return from, &fault.Error{Op: opFetch, Kind: fault.NotFound, Detail: "no provider of the folder sends files together", Next: "Fetch each file by itself."}
		}
	}
	handle, err := f.index.OpenOrFetch(f.ctx, f.files.Entry(i).B3)
	if err != nil {
		return from, err
	}
	defer func() { _ = handle.Close() }() // it was only read
	if size := f.files.Entry(i).Size; handle.Size() != size {
		return from, fault.New(opFetch, fault.Malformed, "the manifest says that %s has %d bytes, but it has %d", f.files.Entry(i).B3, size, handle.Size())
	}
	begin, to := f.files.Begin(i), min(end, f.files.End(i))
	_, err = handle.WriteRange(w, from-begin, to-from)
	return to, err
}

// findSources finds the providers of the folder, once.
func (f *filesFetch) findSources() error {
	if f.asked {
		return nil
	}
	f.asked = true
	ranked, _, err := f.index.findProviders(f.ctx, f.manifest)
	if err != nil {
		return err
	}
	f.sources = slices.DeleteFunc(f.index.fetchSources(f.ctx, f.allowed, f.manifest, ranked), func(s fetchSource) bool { return s.part == nil })
	return nil
}

// writeTogether asks one source after the other for the files that are missing
// from one on, until one of them sends some. A source that lies, or that knows
// nothing of files, is not asked again. The error is of the reader, or of the
// store.
func (f *filesFetch) writeTogether(w io.Writer, i int, from, end int64) (next int64, err error) {
	last := i + 1 // of the files that are asked for, exclusive
	for size := f.files.Entry(i).Size; last < f.files.Len() && last-i < maxRunFiles && f.files.Begin(last) < end; last++ {
		one := f.files.Entry(last)
		if size += one.Size; one.Size > maxRunFile || size > maxRunBytes || one.Size > 0 && f.isHere(last) {
			break
		}
	}
	for k := 0; k < len(f.sources); {
		source := f.sources[k]
		next, refused, err := f.writeRun(w, source, i, last, from, end)
		if err != nil {
			return next, err
		}
		switch fault.KindOf(refused) {
		case fault.IntegrityFail:
			f.index.recordOffence(source, offenceIn(refused)+" a file of "+f.manifest.String())
			f.sources = slices.Delete(f.sources, k, k+1)
		case fault.Malformed, fault.NoRoute:
			f.sources = slices.Delete(f.sources, k, k+1)
		default:
			k++
		}
		if next > from {
			return next, nil
		}
	}
	return from, flow.Ended(f.ctx, opFetch)
}

// writeRun gets files that follow each other from one source, verifies, stores
// and writes them. It returns where it has ended, why the source has sent no
// more, and the error of the reader or of the store.
func (f *filesFetch) writeRun(w io.Writer, source fetchSource, i, last int, from, end int64) (next int64, refused, err error) {
	x := f.index
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	begin := f.files.Begin(i)
	body, refused := source.part(ctx, oap.Files, begin, f.files.End(last-1)-begin)
	if refused != nil {
		return from, refused, nil
	}
	defer func() { _ = body.Close() }() // what it sent is verified
	first := i
	defer func() {
		if i > first {
			x.audit(Event{Type: Fetched, Key: f.manifest.String(), Detail: strconv.Itoa(i-first) + " of its files " + source.label})
		}
	}()
	for ; i < last; i++ {
		one := f.files.Entry(i)
		if int64(len(f.buffer)) < one.Size {
			f.buffer = make([]byte, max(one.Size, 64<<10))
		}
		data := f.buffer[:one.Size]
		n, refused := io.ReadFull(body, data)
		if refused == nil && b3.Of(data) != one.B3 {
			refused = &b3.Mismatch{Want: one.B3, Got: b3.Of(data)}
		}
		if refused != nil {
			x.metrics.wasted.Add(float64(n))
			return from, fault.Wrap(opFetch, refused), nil
		}
		_, created, err := x.spec.Store.Put(ctx, bytes.NewReader(data), store.PutOptions{Want: one.B3, Size: one.Size, Class: store.Cached})
		if err != nil {
			return from, nil, err
		}
		if created {
			x.added(one.B3)
		}
		begin := f.files.Begin(i)
		to := min(end, begin+one.Size)
		if _, err := w.Write(data[from-begin : to-begin]); err != nil {
			return from, nil, fault.Wrap(opFetch, err)
		}
		from = to
	}
	return from, nil, nil
}
