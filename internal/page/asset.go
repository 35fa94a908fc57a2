package page

import (
	"bytes"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/ingress"
)

// index is the document of the page.
const index = "index.html"

// asset is one file. The names of all but the document have a hash or a
// version in them, so that browsers keep them for good.
type asset struct {
	// set at construction
	name      string
	mediaType string
	plain     []byte

	compressed func() compressed // at the first request
}

type compressed struct {
	bytes []byte // nil if compression does not help
	tag   string
}

// readAssets reads the files; nil without them.
func readAssets(from fs.FS) map[string]*asset {
	if from == nil {
		return nil
	}
	assets := map[string]*asset{}
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		one := &asset{name: name, mediaType: mediaType(name), plain: text}
		one.compressed = sync.OnceValue(one.compress)
		assets[name] = one
		return nil
	})
	if err != nil || assets[index] == nil {
		panic("page: the files in the binary cannot be read") // only a broken build has such
	}
	return assets
}

// mediaType does not depend on the machine, as that of package mime does.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// compress compresses the file and makes its tag.
func (a *asset) compress() compressed {
	out := compressed{tag: b3.Of(a.plain).String()[len("b3:"):][:16]}
	if strings.HasPrefix(a.mediaType, "font/") {
		return out
	}
	var buffer bytes.Buffer
	to, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err != nil {
		return out
	}
	if _, err := to.Write(a.plain); err != nil || to.Close() != nil || buffer.Len() >= len(a.plain) {
		return out
	}
	out.bytes = bytes.Clone(buffer.Bytes())
	return out
}

// serve answers with the file, compressed if the client takes that.
func (a *asset) serve(w http.ResponseWriter, r *http.Request) error {
	packed := a.compressed()
	content := ingress.Content{Size: int64(len(a.plain)), ETag: `"` + packed.tag + `"`, Type: a.mediaType, CacheControl: ingress.Immutable, Ready: true,
		Write: ingress.FromReaderAt(bytes.NewReader(a.plain))}
	if a.name == index {
		content.CacheControl = "no-cache"
	}
	if packed.bytes != nil {
		w.Header().Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header["Accept-Encoding"]) {
			content.Size, content.ETag, content.Encoding = int64(len(packed.bytes)), `"`+packed.tag+`-gzip"`, "gzip"
			content.Write = ingress.FromReaderAt(bytes.NewReader(packed.bytes))
		}
	}
	_, err := ingress.ServeContent(w, r, content)
	return fault.Wrap("page.file", err)
}

// acceptsGzip reports whether a client names gzip and does not refuse it.
func acceptsGzip(accept []string) bool {
	for _, line := range accept {
		for one := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(one, ";")
			weight := strings.TrimRight(strings.ReplaceAll(params, " ", ""), "0")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") && weight != "q=" && weight != "q=0." {
				return true
			}
		}
	}
	return false
}
