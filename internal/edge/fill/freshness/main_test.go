package freshness

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is when everything in these tests happens.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// at is a date so many seconds from noon, as a field value.
func at(seconds int) string { return FormatDate(noon.Add(time.Duration(seconds) * time.Second)) }

// fields makes a header of names and values, in turn. A name may repeat.
func fields(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// ok is a 200 that was received at noon, without delay.
func ok(pairs ...string) Response { return status(200, pairs...) }

func status(code int, pairs ...string) Response {
	return Response{Status: code, Header: fields(pairs...), RequestTime: noon, ResponseTime: noon}
}

// get is a GET with these fields.
func get(pairs ...string) Request { return Request{Method: "GET", Header: fields(pairs...)} }

// later is so many seconds after noon.
func later(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
