package client

import (
	"net/http"
	"path"
	"strings"
)

// sniffLen is how many bytes of a file are examined.
const sniffLen = 512

// contentType is the type of a file: by its name, or else by its first bytes.
// All types are in this program, because the same folder must become the same
// manifest on every machine, and the lists of the systems differ.
func contentType(name string, begin []byte) string {
	if known, ok := contentTypes[strings.ToLower(path.Ext(name))]; ok {
		return known
	}
	return http.DetectContentType(begin)
}

// contentTypes maps extensions of files to media types. The list can only
// grow: a changed row changes the addresses of folders.
var contentTypes = map[string]string{
	".7z":          "application/x-7z-compressed",
	".aac":         "audio/aac",
	".avif":        "image/avif",
	".bin":         "application/octet-stream",
	".bmp":         "image/bmp",
	".br":          "application/x-brotli",
	".bz2":         "application/x-bzip2",
	".cbor":        "application/cbor",
	".css":         "text/css; charset=utf-8",
	".csv":         "text/csv; charset=utf-8",
	".epub":        "application/epub+zip",
	".flac":        "audio/flac",
	".geojson":     "application/geo+json",
	".gif":         "image/gif",
	".gpx":         "application/gpx+xml",
	".gz":          "application/gzip",
	".htm":         "text/html; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".ico":         "image/vnd.microsoft.icon",
	".ics":         "text/calendar; charset=utf-8",
	".jpeg":        "image/jpeg",
	".jpg":         "image/jpeg",
	".js":          "text/javascript; charset=utf-8",
	".json":        "application/json",
	".jsonld":      "application/ld+json",
	".m4a":         "audio/mp4",
	".map":         "application/json",
	".mbtiles":     "application/vnd.sqlite3",
	".md":          "text/markdown; charset=utf-8",
	".mjs":         "text/javascript; charset=utf-8",
	".mp3":         "audio/mpeg",
	".mp4":         "video/mp4",
	".ndjson":      "application/x-ndjson",
	".oga":         "audio/ogg",
	".ogg":         "audio/ogg",
	".ogv":         "video/ogg",
	".opus":        "audio/ogg",
	".otf":         "font/otf",
	".pbf":         "application/x-protobuf",
	".pdf":         "application/pdf",
	".pmtiles":     "application/vnd.pmtiles",
	".png":         "image/png",
	".sh":          "text/x-shellscript; charset=utf-8",
	".svg":         "image/svg+xml",
	".tar":         "application/x-tar",
	".tif":         "image/tiff",
	".tiff":        "image/tiff",
	".toml":        "application/toml",
	".ttf":         "font/ttf",
	".txt":         "text/plain; charset=utf-8",
	".wasm":        "application/wasm",
	".wav":         "audio/wav",
	".webm":        "video/webm",
	".webmanifest": "application/manifest+json",
	".webp":        "image/webp",
	".woff":        "font/woff",
	".woff2":       "font/woff2",
	".xml":         "application/xml",
	".xz":          "application/x-xz",
	".yaml":        "application/yaml",
	".yml":         "application/yaml",
	".zip":         "application/zip",
	".zst":         "application/zstd",
}
