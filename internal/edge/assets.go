package edge

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/disk"
	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
)

// assetsPrefix is what the targets of assets begin with.
const assetsPrefix = "/edge/assets/"

// assetPattern is the route of assets.
const assetPattern = assetsPrefix + "{path...}"

const assetOp = "edge.asset"

// handleAsset answers from a pack, from the folder of assets, with an object by
// address or name, or from an origin, whichever the first element of the path
// names.
func (e *Edge) handleAsset(w http.ResponseWriter, r *http.Request) error {
	escaped := strings.TrimPrefix(r.URL.EscapedPath(), assetsPrefix) // as the client wrote it: so the origin gets it
	if why := pathTrick(escaped); why != "" {
		return &fault.Error{Op: assetOp, Kind: fault.Malformed, Detail: "the path has " + why, Next: "Write the path without escapes and dot segments."}
	}
	first, rest, _ := strings.Cut(escaped, "/")
	if rest == "" {
		if served, err := e.servePack(w, r, first); served || err != nil {
			return err
		}
	}
	plain := r.PathValue("path")
	if e.assets != nil && first != "" {
		if served, err := e.serveFile(w, r, strings.TrimPrefix(plain, "/")); served || err != nil {
			return err
		}
	}
	if e.objects != nil && (strings.HasPrefix(plain, addressPrefix) || strings.HasPrefix(plain, namePrefix)) {
		return e.serveContent(w, r, plain)
	}
	return e.serveOrigin(w, r, first, rest)
}

// pathTrick names what is wrong with a path: anything that some programs read
// as a step up, a separator or an end, and others do not.
func pathTrick(escaped string) string {
	lower := strings.ToLower(escaped)
	for _, trick := range []struct{ text, name string }{
		{"%00", "a NUL"}, {"%2f", "an escaped slash"}, {"%5c", "a backslash"}, {`\`, "a backslash"},
	} {
		if strings.Contains(lower, trick.text) {
			return trick.name
		}
	}
	for element := range strings.SplitSeq(strings.ReplaceAll(lower, "%2e", "."), "/") {
		if element == "." || element == ".." {
			return "a dot segment"
		}
	}
	return ""
}

// servePack answers with a whole pack, so that clients that read packs
// themselves can request ranges of it.
func (e *Edge) servePack(w http.ResponseWriter, r *http.Request, escaped string) (served bool, err error) {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return false, nil // net/http would have refused it
	}
	p, err := e.packs.Open(name)
	if fault.KindOf(err) == fault.NotFound || err == nil && p.File() != name {
		if p != nil {
			p.Close()
		}
		return false, nil
	}
	if err != nil {
		return true, fault.Wrap(assetOp, err)
	}
	defer p.Close()
	file, err := p.Reopen()
	if err != nil {
		return true, fault.Wrap(assetOp, err)
	}
	defer file.Close()
	ingress.MarkUntrusted(w.Header())
	_, size, modified, etag := p.Content()
	return true, e.serve(w, r, ingress.Content{
		Size: size, ETag: etag, Modified: modified, Type: mediaType(name), CacheControl: e.cacheControl,
		Write: func(w io.Writer, off, n int64) error {
			if err := p.Intact(); err != nil {
				return err
			}
			return errors.Join(fileWriter(file)(w, off, n), p.Intact()) // changed meanwhile: the connection is cut
		},
	})
}

// serveFile answers with a file of the folder of assets. The folder is an
// [os.Root]: no path and no link leads out of it.
func (e *Edge) serveFile(w http.ResponseWriter, r *http.Request, name string) (served bool, err error) {
	if _, err := e.assets.Lstat(strings.SplitN(name, "/", 2)[0]); err != nil {
		return false, nil // no such name in the folder: it may be a host
	}
	file, info, err := e.openFile(name)
	if err != nil {
		return true, err
	}
	defer file.Close()
	ingress.MarkUntrusted(w.Header())
	return true, e.serve(w, r, ingress.Content{
		Size: info.Size(), ETag: fileETag(info), Modified: info.ModTime(), Type: mediaType(info.Name()),
		CacheControl: e.cacheControl, Write: fileWriter(file), Ready: true,
	})
}

// openFile opens a file of the folder; a path that ends in a slash means its
// index.html.
func (e *Edge) openFile(name string) (*os.File, fs.FileInfo, error) {
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	file, err := e.assets.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe in the folder must not block the open
	if err != nil {
		return nil, nil, openFault(err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, nil, errors.Join(fault.Wrap(assetOp, err), file.Close())
	case info.IsDir():
		return nil, nil, errors.Join(&fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: "it is a folder", Next: "Ask for a file in it, or for its index.html with a slash at the end."}, file.Close())
	case !info.Mode().IsRegular():
		return nil, nil, errors.Join(&fault.Error{Op: assetOp, Kind: fault.Forbidden, Detail: "it is not a regular file"}, file.Close())
	}
	return file, info, nil
}

// openFault maps a failure to open a file to the error for the client.
func openFault(err error) error {
	failed := &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: "there is no such file"}
	if errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "escapes") {
		failed.Kind, failed.Detail = fault.Forbidden, "the file may not be read"
	} else if !errors.Is(err, fs.ErrNotExist) && !fault.IsErrno(err, syscall.ENOTDIR) && !fault.IsErrno(err, syscall.ENAMETOOLONG) {
		failed.Kind, failed.Detail, failed.Err = fault.Internal, "the file cannot be opened", err
	}
	return failed
}

// fileWriter is a Content's Write for a file. The kernel copies where it can.
func fileWriter(file *os.File) func(io.Writer, int64, int64) error {
	return func(w io.Writer, off, n int64) error {
		if _, err := file.Seek(off, io.SeekStart); err != nil {
			return err
		}
		sent, err := io.Copy(w, &io.LimitedReader{R: file, N: n})
		if err == nil && sent < n {
			err = io.ErrUnexpectedEOF // the file became shorter
		}
		return err
	}
}

// fileETag is a strong validator of a file, made of its stat data. Every write
// to the file changes it.
func fileETag(info fs.FileInfo) string {
	stamp := disk.StampOf(info)
	version := b3.Of(fmt.Appendf(nil, "%d %d %d %d %d", stamp.Device, stamp.Inode, stamp.Size, stamp.Modified, stamp.Changed))
	return fmt.Sprintf(`"f-%x"`, version[:16])
}

// mediaTypes are types that a map or a site needs and that the system may not
// know.
var mediaTypes = map[string]string{
	".pmtiles": "application/vnd.pmtiles", ".mbtiles": "application/vnd.mapbox-vector-tile+sqlite3", ".geojson": "application/geo+json",
	".mvt": "application/vnd.mapbox-vector-tile", ".pbf": "application/x-protobuf", ".woff2": "font/woff2", ".md": "text/markdown; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".webmanifest": "application/manifest+json", ".map": "application/json",
}

// mediaType is decided by the extension. Contents are never sniffed.
func mediaType(name string) string {
	extension := strings.ToLower(path.Ext(name))
	if known, ok := mediaTypes[extension]; ok {
		return known
	}
	if known := mime.TypeByExtension(extension); known != "" {
		return known
	}
	return octets
}

// serveOrigin answers from the cache of origins' objects, and fills it on a
// miss: a 200 with support for ranges and conditions, any other status as it is.
// A body that is still arriving is streamed.
func (e *Edge) serveOrigin(w http.ResponseWriter, r *http.Request, host, rest string) error {
	answer, err := e.cache.Get(r.Context(), fill.Request{
		Host: host, Path: "/" + rest, Query: r.URL.RawQuery, Method: r.Method, Header: withoutCapability(r.Header), Client: ingress.ShareKey(r),
		Admit: func() error { return ingress.Spend(r.Context()) },
	})
	if err != nil {
		return fault.Wrap(assetOp, err)
	}
	defer answer.Close()
	relayHeader(w.Header(), answer.Header)
	if answer.Status != http.StatusOK {
		return answer.WriteTo(w, r.Method)
	}
	send := answer.WriteRange
	if answer.Streaming() {
		send = func(to io.Writer, from, length int64) error {
			return answer.Stream(to, from, length, func() { _ = http.NewResponseController(w).Flush() }) // if the client has disconnected, the next write fails
		}
	}
	return e.serve(w, r, ingress.Content{
		Size: answer.Size(), ETag: answer.Header.Get("Etag"), Modified: answer.Modified(), ResponseDate: answer.Date(),
		Type: answer.Header.Get("Content-Type"), Write: send,
	})
}

// withoutCapability is a client's header without capabilities of this node,
// which must not leak to origins. Everything that ingress would accept as a
// capability is removed, however many there are and however they are written.
func withoutCapability(header http.Header) http.Header {
	values := header["Authorization"]
	others := slices.DeleteFunc(slices.Clone(values), func(one string) bool {
		token, ok := ingress.BearerToken(one)
		return ok && strings.HasPrefix(token, capability.Prefix)
	})
	if len(others) == len(values) {
		return header
	}
	header = header.Clone()
	if header["Authorization"] = others; len(others) == 0 {
		delete(header, "Authorization")
	}
	return header
}

// relayHeader sets the part of an origin's header that a client sees. The cache
// has removed the rest (see fill.Withheld).
func relayHeader(to, from http.Header) {
	maps.Copy(to, from)
	if to.Get("Content-Type") == "" {
		to.Set("Content-Type", octets) // so that no client sniffs
	}
	ingress.MarkUntrusted(to)
}
