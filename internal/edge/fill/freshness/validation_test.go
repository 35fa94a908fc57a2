package freshness

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"micronode/fault"
)

func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		resp Response
		want http.Header
	}{
		"§4.3.1 none":             {ok(), fields()},
		"§4.3.1 ETag":             {ok("ETag", `"a"`), fields("If-None-Match", `"a"`)},
		"§4.3.1 weak ETag":        {ok("ETag", `W/"a"`), fields("If-None-Match", `W/"a"`)},
		"§4.3.1 Last-Modified":    {ok("Last-Modified", at(-9)), fields("If-Modified-Since", at(-9))},
		"§4.3.1 its very text":    {ok("Last-Modified", "Thursday, 18-Aug-05 02:01:18 GMT"), fields("If-Modified-Since", "Thursday, 18-Aug-05 02:01:18 GMT")},
		"§4.3.1 both":             {ok("ETag", `"a"`, "Last-Modified", at(-9)), fields("If-None-Match", `"a"`, "If-Modified-Since", at(-9))},
		"§4.3.1 broken":           {ok("ETag", `a`, "Last-Modified", "0"), fields()},
		"§4.3.1 two ETags":        {ok("ETag", `"a"`, "ETag", `"b"`), fields()},
		"§4.3.1 Date is not used": {ok("Date", at(0)), fields()},
	} {
		if got := Conditions(c.resp); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSelected(t *testing.T) {
	stored := func(pairs ...[]string) []Response {
		var all []Response
		for _, p := range pairs {
			all = append(all, ok(p...))
		}
		return all
	}
	a, b, weak := []string{"ETag", `"a"`}, []string{"ETag", `"b"`}, []string{"ETag", `W/"a"`}
	newWeak := []string{"ETag", `W/"a"`, "Date", at(5)}
	lm, other := []string{"Last-Modified", at(-9)}, []string{"Last-Modified", at(-8)}
	newLM := []string{"Last-Modified", at(-9), "Date", at(5)}
	for name, c := range map[string]struct {
		stored []Response
		h      []string
		want   []int
	}{
		"§4.3.4 strong: all that have it":     {stored(a, b, a), a, []int{0, 2}},
		"§4.3.4 strong: none":                 {stored(b, b), a, nil},
		"§4.3.4 strong is not weak":           {stored(weak), a, nil},
		"§4.3.4 strong, though dates agree":   {stored(append(b, lm...)), append(a, lm...), nil},
		"§4.3.4 strong, no ETag stored":       {stored(lm), append(a, lm...), nil},
		"§4.3.4 weak: the newest":             {stored(weak, newWeak, weak, b), weak, []int{1}},
		"§4.3.4 weak: strong will do":         {stored(b, a), weak, []int{1}},
		"§4.3.4 weak: none":                   {stored(b), weak, nil},
		"§4.3.4 Last-Modified: the newest":    {stored(lm, newLM, other), lm, []int{1}},
		"§4.3.4 Last-Modified: another form":  {stored([]string{"Last-Modified", "Sun Nov 15 11:59:51 2026"}), lm, []int{0}},
		"§4.3.4 Last-Modified: none":          {stored(other), lm, nil},
		"§4.3.4 Last-Modified: nothing there": {stored(a), lm, nil},
		"§4.3.4 no validator: the only one":   {stored(a), nil, []int{0}},
		"§4.3.4 no validator on either side":  {stored(nil), nil, []int{0}},
		"§4.3.4 no validator: one of two":     {stored(nil, nil), nil, nil},
		"§4.3.4 no validator: of none":        {nil, nil, nil},
		"§4.3.4 broken date is none":          {stored(lm), []string{"Last-Modified", "0"}, []int{0}},
		"§8.8.3 broken ETag":                  {stored([]string{"ETag", "a"}), []string{"ETag", "a"}, nil},
		"§8.8.3 two ETags":                    {stored(a), append(a, a...), nil},
	} {
		if got := Selected(c.stored, status(304, c.h...)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestUpdate(t *testing.T) {
	stored := ok("ETag", `"a"`, "Date", at(-3600), "Age", "5000", "Cache-Control", "max-age=60", "Content-Type", "text/plain",
		"Content-Length", "5", "Content-Encoding", "br", "X-Old", "1", "X-Both", "1", "X-Both", "2", "Warning", "110 - x", "Content-Digest", "x")
	for name, c := range map[string]struct {
		h    []string
		want http.Header // these, and those with no lines are absent
	}{
		"§3.2 replaced":              {[]string{"X-Both", "3"}, http.Header{"X-Both": {"3"}}},
		"§3.2 added":                 {[]string{"X-New", "3"}, http.Header{"X-New": {"3"}}},
		"§3.2 kept":                  {nil, http.Header{"X-Old": {"1"}, "X-Both": {"1", "2"}, "Content-Type": {"text/plain"}}},
		"§3.2 Content-Type":          {[]string{"Content-Type", "text/html"}, http.Header{"Content-Type": {"text/html"}}},
		"§3.2 Cache-Control":         {[]string{"Cache-Control", "max-age=9"}, http.Header{"Cache-Control": {"max-age=9"}}},
		"§3.2 not Content-Length":    {[]string{"Content-Length", "0"}, http.Header{"Content-Length": {"5"}}},
		"§3.2 not Content-Encoding":  {[]string{"Content-Encoding", "gzip"}, http.Header{"Content-Encoding": {"br"}}},
		"§3.2 not Content-Range":     {[]string{"Content-Range", "bytes 0-1/2"}, http.Header{"Content-Range": nil}},
		"§3.2 not Content-MD5":       {[]string{"Content-MD5", "x"}, http.Header{"Content-Md5": nil}},
		"§3.2 not Content-Digest":    {[]string{"Content-Digest", "y"}, http.Header{"Content-Digest": {"x"}}},
		"§3.1 not hop by hop":        {[]string{"Connection", "x-new", "X-New", "1", "Keep-Alive", "1"}, http.Header{"X-New": nil, "Keep-Alive": nil, "Connection": nil}},
		"§3.1 not private fields":    {[]string{"Cache-Control", `private="x-old, set-cookie"`, "Set-Cookie", "a"}, http.Header{"X-Old": nil, "Set-Cookie": nil}},
		"§4.2.3 the old Age goes":    {nil, http.Header{"Age": nil, "Warning": nil}},
		"§4.2.3 the new Age comes":   {[]string{"Age", "3"}, http.Header{"Age": {"3"}}},
		"RFC 9110 §6.6.1 no Date":    {nil, http.Header{"Date": {at(100)}}},
		"RFC 9110 §6.6.1 Date bad":   {[]string{"Date", "x"}, http.Header{"Date": {at(100)}}},
		"§3.2 the new Date":          {[]string{"Date", at(99)}, http.Header{"Date": {at(99)}}},
		"§3.2 a strong ETag, weaker": {[]string{"ETag", `W/"a"`}, http.Header{"Etag": {`W/"a"`}}},
	} {
		notModified := status(304, c.h...)
		notModified.RequestTime, notModified.ResponseTime = later(98), later(100)
		before := fmt.Sprint(stored.Header, notModified.Header)
		got, err := Update(stored, notModified)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for field, want := range c.want {
			if lines := got.Header[field]; !reflect.DeepEqual(lines, want) && len(lines)+len(want) > 0 {
				t.Errorf("%s: %s is %q, want %q", name, field, lines, want)
			}
		}
		if got.Status != 200 || got.RequestTime != later(98) || got.ResponseTime != later(100) {
			t.Errorf("%s: %+v", name, got)
		}
		if after := fmt.Sprint(stored.Header, notModified.Header); after != before {
			t.Errorf("%s: the headers given were changed", name)
		}
	}
}

// A response with the Age and Date of long ago would stay stale for ever if
// these survived a validation.
func TestValidationMakesFresh(t *testing.T) {
	stored := ok("ETag", `"a"`, "Cache-Control", "max-age=60", "Age", "5000", "Date", at(-9999))
	notModified := status(304)
	notModified.RequestTime, notModified.ResponseTime = later(99), later(100)
	updated, err := Update(stored, notModified)
	if err != nil {
		t.Fatal(err)
	}
	if j := Judge(get(), updated, later(101), Policy{}); j.Verdict != Fresh || j.Age != 2*time.Second {
		t.Errorf("%+v", j)
	}
}

func TestUpdateRefuses(t *testing.T) {
	for name, notModified := range map[string]Response{
		"another ETag":  status(304, "ETag", `"b"`),
		"a broken ETag": status(304, "ETag", `a`),
		"not a 304":     status(200, "ETag", `"a"`),
	} {
		got, err := Update(ok("ETag", `"a"`), notModified)
		if !errors.Is(err, ErrValidator) || got.Status != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if fault.KindOf(err) != fault.IntegrityFail || fault.NextOf(err) == "" {
			t.Errorf("%s: kind %v", name, fault.KindOf(err))
		}
	}
}
