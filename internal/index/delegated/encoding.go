package delegated

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"micronode/fault"
)

// Encoding is the encoding of a list of records.
type Encoding uint8

const (
	JSON   Encoding = iota + 1 // one document
	NDJSON                     // one record per line
)

// Type is the media type of the encoding.
func (e Encoding) Type() string {
	if e == NDJSON {
		return "application/x-ndjson"
	}
	return "application/json"
}

// maxAccept limits how many media types of a request are read.
const maxAccept = 32

// NegotiateEncoding selects the encoding of an answer. Only clients that name
// NDJSON get a stream: a wildcard means JSON. If both are equally acceptable,
// the answer is streamed.
func NegotiateEncoding(header http.Header) (Encoding, error) {
	given := header.Values("Accept")
	if len(given) == 0 {
		return JSON, nil
	}
	var document, streamed float64
	for i, one := range strings.SplitN(strings.Join(given, ","), ",", maxAccept+1) {
		kind, parameters, err := mime.ParseMediaType(one)
		if err != nil || i == maxAccept {
			continue
		}
		switch kind {
		case JSON.Type(), "application/*", "*/*":
			document = max(document, quality(parameters))
		case NDJSON.Type():
			streamed = max(streamed, quality(parameters))
		}
	}
	switch {
	case streamed > 0 && streamed >= document:
		return NDJSON, nil
	case document > 0:
		return JSON, nil
	default:
		return 0, fault.New("index.routing", fault.Malformed, "the request accepts none of the supported formats").
			Advise("Send Accept: application/json, or application/x-ndjson for a stream.")
	}
}

// quality is the quality value of a media type, from 0 to 1.
func quality(parameters map[string]string) float64 {
	q, err := strconv.ParseFloat(parameters["q"], 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 1
	}
	return q
}
