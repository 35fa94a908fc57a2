package mbtiles

import "bytes"

// Encoding is the HTTP content coding of a tile, detected by its first bytes:
// "gzip" or "". MBTiles files usually hold compressed vector tiles, and nothing
// in the file says so.
func Encoding(data []byte) string {
	if len(data) > 2 && data[0] == 0x1f && data[1] == 0x8b {
		return "gzip"
	}
	return ""
}

var formats = []struct{ format, start string }{
	{"png", "\x89PNG\r\n\x1a\n"},
	{"jpg", "\xff\xd8\xff"},
	{"gif", "GIF8"},
	{"pbf", "\x1f\x8b"}, // compressed: only vector tiles are
	{"pbf", "\x1a"},     // a layer, the only field of a vector tile
}

// sniff is the format of a tile, detected by its first bytes; "" if unknown.
func sniff(data []byte) string {
	if len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "webp"
	}
	for _, known := range formats {
		if bytes.HasPrefix(data, []byte(known.start)) {
			return known.format
		}
	}
	return ""
}
