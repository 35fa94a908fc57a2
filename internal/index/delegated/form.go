package delegated

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"micronode/fault"
)

// Form is how a list of records is written.
type Form uint8

const (
	JSON   Form = iota + 1 // one document
	NDJSON                 // one record a line
)

// Type is the media type of the form.
func (f Form) Type() string {
	if f == NDJSON {
		return "application/x-ndjson"
	}
	return "application/json"
}

// mostAccept bounds how many media types of a request are looked at.
const mostAccept = 32

// FormOf reads which form a request wants. The streamed one is for those who
// name it: who takes anything gets a document. Both are all the same to those
// who name both, and then it is streamed.
func FormOf(header http.Header) (Form, error) {
	given := header.Values("Accept")
	if len(given) == 0 {
		return JSON, nil
	}
	var document, streamed float64
	for i, one := range strings.SplitN(strings.Join(given, ","), ",", mostAccept+1) {
		kind, parameters, err := mime.ParseMediaType(one)
		if err != nil || i == mostAccept {
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
		err := fault.New("index.routing", fault.Malformed, "the request accepts none of the forms that there are")
		err.Next = "Send Accept: application/json, or application/x-ndjson for a stream."
		return 0, err
	}
}

// quality is how much a media type is wanted, from 0 to 1.
func quality(parameters map[string]string) float64 {
	q, err := strconv.ParseFloat(parameters["q"], 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 1
	}
	return q
}
