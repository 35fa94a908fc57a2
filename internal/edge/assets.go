package edge

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
)

// assetsPrefix is what the targets of assets begin with.
const assetsPrefix = "/edge/assets/"

// assetPattern is the route of assets.
const assetPattern = assetsPrefix + "{path...}"

const assetOp = "edge.asset"

// asset answers from a pack, from the folder of assets, with what has an address
// or a name, or from an origin, whichever the first element of the path names.
func (e *Edge) asset(w http.ResponseWriter, r *http.Request) error {
	first, rest, err := e.split(r)
	if err != nil {
		return err
	}
	if rest == "" {
		if served, err := e.servePack(w, r, first); served || err != nil {
			return err
		}
	}
	if served, err := e.serveFile(w, r, first, rest); served || err != nil {
		return err
	}
	if served, err := e.serveContent(w, r); served || err != nil {
		return err
	}
	return e.serveOrigin(w, r, first, rest)
}

// split takes the path apart, as the client wrote it: what was escaped stays
// escaped for the origin. What is refused here is refused for every source.
func (e *Edge) split(r *http.Request) (first, rest string, err error) {
	whole := strings.TrimPrefix(r.URL.EscapedPath(), assetsPrefix)
	if why := suspicious(whole); why != "" {
		return "", "", &fault.Error{Op: assetOp, Kind: fault.Malformed, Detail: "the path has " + why, Next: "Write the path plainly."}
	}
	first, rest, _ = strings.Cut(whole, "/")
	return first, rest, nil
}

// suspicious says what is wrong with a path: whatever one program takes for a
// step up, a separator or an end, and another one does not.
func suspicious(escaped string) string {
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
// themselves can ask for ranges of it.
func (e *Edge) servePack(w http.ResponseWriter, r *http.Request, name string) (served bool, err error) {
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
	ingress.Untrusted(w.Header())
	_, size, modified, etag := p.Content()
	return true, e.serve(w, r, ingress.Content{
		Size: size, ETag: etag, Modified: modified, Type: mediaType(name), CacheControl: e.cacheControl,
		Write: func(w io.Writer, off, n int64) error {
			if err := p.Intact(); err != nil {
				return err
			}
			return errors.Join(sending(file)(w, off, n), p.Intact()) // changed meanwhile: the connection is cut
		},
	})
}

// serveFile answers with a file of the folder of assets. The folder is a root
// that no path and no link leads out of.
func (e *Edge) serveFile(w http.ResponseWriter, r *http.Request, first, rest string) (served bool, err error) {
	if e.assets == nil || first == "" {
		return false, nil
	}
	name := strings.TrimPrefix(r.PathValue("path"), "/")
	if _, err := e.assets.Lstat(strings.SplitN(name, "/", 2)[0]); err != nil {
		return false, nil // no such name in the folder: it may be a host
	}
	file, info, err := e.openFile(name)
	if err != nil {
		return true, err
	}
	defer file.Close()
	ingress.Untrusted(w.Header())
	return true, e.serve(w, r, ingress.Content{
		Size: info.Size(), ETag: versionTag(info), Modified: info.ModTime(), Type: mediaType(info.Name()),
		CacheControl: e.cacheControl, Write: sending(file), Ready: true,
	})
}

// openFile opens a file of the folder; a folder stands for its index.html.
func (e *Edge) openFile(name string) (*os.File, fs.FileInfo, error) {
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	file, err := e.assets.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in the folder must not hold us
	if err != nil {
		return nil, nil, unopened(err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, nil, errors.Join(fault.Wrap(assetOp, err), file.Close())
	case info.IsDir():
		return nil, nil, errors.Join(&fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: "it is a folder", Next: "Ask for a file in it, or for its index.html with a slash at the end."}, file.Close())
	case !info.Mode().IsRegular():
		return nil, nil, errors.Join(&fault.Error{Op: assetOp, Kind: fault.Forbidden, Detail: "it is no ordinary file"}, file.Close())
	}
	return file, info, nil
}

// unopened says what a failure to open a file means to the one who asked.
func unopened(err error) error {
	failed := &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: "there is no such file"}
	if errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "escapes") {
		failed.Kind, failed.Detail = fault.Forbidden, "the file may not be read"
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ENAMETOOLONG) {
		failed.Kind, failed.Detail, failed.Err = fault.Internal, "the file cannot be opened", err
	}
	return failed
}

// sending is a Content's Write for a file. The kernel copies where it can.
func sending(file *os.File) func(io.Writer, int64, int64) error {
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

// versionTag is a strong validator of a file: what the file system says of it.
// Whoever writes to the file changes it.
func versionTag(info fs.FileInfo) string {
	about, _ := info.Sys().(*syscall.Stat_t) // always, on Linux
	version := b3.Of(fmt.Appendf(nil, "%d %d %d %d %d", about.Dev, about.Ino, about.Size, about.Mtim.Nano(), about.Ctim.Nano()))
	return fmt.Sprintf(`"f-%x"`, version[:16])
}

// mediaTypes are those that a map or a site needs, and that a system may not
// know.
var mediaTypes = map[string]string{
	".pmtiles": "application/vnd.pmtiles", ".mbtiles": "application/vnd.mapbox-vector-tile+sqlite3", ".geojson": "application/geo+json",
	".mvt": "application/vnd.mapbox-vector-tile", ".pbf": "application/x-protobuf", ".woff2": "font/woff2", ".md": "text/markdown; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".webmanifest": "application/manifest+json", ".map": "application/json",
}

// mediaType goes by the extension. Contents are never sniffed.
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

// serveOrigin answers from the cache of what origins sent, and has it filled
// if it must be.
func (e *Edge) serveOrigin(w http.ResponseWriter, r *http.Request, host, rest string) error {
	answer, err := e.cache.Get(r.Context(), fill.Request{
		Host: host, Path: "/" + rest, Query: r.URL.RawQuery, Method: r.Method, Header: withoutOurs(r.Header),
	})
	if err != nil {
		return fault.Wrap(assetOp, err)
	}
	defer answer.Close()
	return e.relay(w, r, answer)
}

// withoutOurs is a client's header without a capability of this node, which is
// nobody else's business.
func withoutOurs(header http.Header) http.Header {
	if !strings.HasPrefix(header.Get("Authorization"), "Bearer "+capability.Prefix) {
		return header
	}
	header = header.Clone()
	header.Del("Authorization")
	return header
}

// relay answers with what an origin said: a 200 with everything that can be
// asked of a content, anything else as it is.
func (e *Edge) relay(w http.ResponseWriter, r *http.Request, answer *fill.Answer) error {
	relayHeader(w.Header(), answer.Header)
	if answer.Status != http.StatusOK {
		return answer.WriteTo(w, r.Method)
	}
	return e.serve(w, r, ingress.Content{
		Size: answer.Size(), ETag: answer.Header.Get("Etag"), Modified: answer.Modified(), Type: answer.Type(), Write: answer.WriteRange,
	})
}

// notRelayed are headers by which an origin speaks for its own name. Under ours
// they would set our cookies, open our answers to other pages, or turn our
// clients elsewhere.
var notRelayed = []string{
	"Set-Cookie", "Set-Cookie2", "Strict-Transport-Security", "Public-Key-Pins", "Alt-Svc", "Clear-Site-Data", "Service-Worker-Allowed",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age", "Cross-Origin-Resource-Policy", "Nel", "Report-To", "Reporting-Endpoints",
	"X-Corr-Id", "Date", "Server", "Accept-Ranges",
}

// relayHeader sets what a client gets to see of an origin's header.
func relayHeader(to, from http.Header) {
	for name, values := range from {
		if !slices.Contains(notRelayed, name) {
			to[name] = values
		}
	}
	if to.Get("Content-Type") == "" {
		to.Set("Content-Type", octets) // and nobody guesses
	}
	ingress.Untrusted(to)
}
