package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/fault"
)

type inner struct {
	ID    string   `json:"id"`
	Count *int     `json:"count,omitempty"`
	Tags  []string `json:"tags,omitempty"`
}

type embedded struct {
	Common uint8 `json:"common"`
}

type document struct {
	embedded
	Box    string           `json:"box"`
	Wait   int              `json:"wait_s"`
	Ratio  float64          `json:"ratio"`
	Items  []inner          `json:"items"`
	Named  map[string]inner `json:"named"`
	Any    any              `json:"any"`
	Raw    json.RawMessage  `json:"raw"`
	Addr   *b3.Address      `json:"addr"`
	Plain  int
	Hidden int `json:"-"`
}

func TestDecodeJSON(t *testing.T) {
	const good = `{"box":"b","wait_s":3,"ratio":1.5,"items":[{"id":"x","count":1}],"named":{"k":{"id":"y"}},
		"any":{"deep":[1.5,{"x":null}]},"raw":{"a":1},"common":7,"Plain":1,"addr":null}`
	var d document
	if err := decodeJSON([]byte(good), &d); err != nil || d.Wait != 3 || d.Common != 7 || *d.Items[0].Count != 1 || d.Named["k"].ID != "y" || d.Ratio != 1.5 {
		t.Fatalf("%v %+v", err, d)
	}
	for name, c := range map[string]struct{ text, says string }{
		"nothing":              {"", "needed"},
		"space":                {" \n", "needed"},
		"unknown":              {`{"bxo":"b"}`, `"bxo" is not a known field`},
		"other case":           {`{"Box":"b"}`, `"Box" is not a known field`},
		"unknown inside":       {`{"items":[{"id":"x"},{"idd":"x"}]}`, `"items[1].idd" is not a known field`},
		"unknown in a map":     {`{"named":{"k":{"idd":1}}}`, `"named.k.idd" is not a known field`},
		"hidden":               {`{"Hidden":1}`, `"Hidden" is not a known field`},
		"twice":                {`{"box":"a","box":"b"}`, `"box" is there twice`},
		"twice, spelt oddly":   {`{"box":"a","\u0062ox":"b"}`, `"box" is there twice`},
		"twice, deep in any":   {`{"any":{"x":{"y":1,"y":2}}}`, `"any.x.y" is there twice`},
		"twice in raw":         {`{"raw":{"y":1,"y":2}}`, `"raw.y" is there twice`},
		"more":                 {`{"box":"a"}{}`, "data follows"},
		"more that is nothing": {`{"box":"a"} x`, "data follows"},
		"fraction":             {`{"wait_s":1.5}`, `"wait_s" must be an integer`},
		"fraction of zero":     {`{"wait_s":1.0}`, `"wait_s" must be an integer`},
		"exponent":             {`{"wait_s":1e3}`, `"wait_s" must be an integer`},
		"fraction by pointer":  {`{"items":[{"count":0.5}]}`, `"items[0].count" must be an integer`},
		"too large":            {`{"common":256}`, `common" must be an integer, not number`},
		"text for number":      {`{"wait_s":"3"}`, `"wait_s" must be an integer, not string`},
		"number for text":      {`{"box":3}`, `"box" must be a text, not number`},
		"object for list":      {`{"items":{}}`, `"items" must be a list, not object`},
		"list for object":      {`[]`, `the JSON value must be an object, not array`},
		"bool for number":      {`{"ratio":true}`, `"ratio" must be a number, not bool`},
		"list for map":         {`{"named":[]}`, `"named" must be an object, not array`},
		"own decoder":          {`{"addr":"b3:nonsense"}`, ""},
		"cut off":              {`{"box":"a"`, "is incomplete"},
		"cut off in a list":    {`{"items":[`, "is incomplete"},
		"cut off in a key":     {`{"box`, "incomplete"},
		"not JSON":             {`{box:1}`, "not JSON"},
		"comma at the end":     {`{"box":"a",}`, "not JSON"},
		"comma in a list":      {`{"items":[,]}`, "not JSON"},
		"not UTF-8":            {"{\"box\":\"\xff\"}", "UTF-8"},
		"too deep":             {`{"any":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "too deeply"},
		"a very long name":     {`{"` + strings.Repeat("é", 100) + `":1}`, "…"},
	} {
		var d document
		err := decodeJSON([]byte(c.text), &d)
		if fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.DetailOf(err), c.says) {
			t.Errorf("%s: %v, want something about %q", name, err, c.says)
		}
	}
	var n int
	if err := decodeJSON([]byte("7"), &n); err != nil || n != 7 {
		t.Errorf("%v %d", err, n)
	}
	var b bool
	if err := decodeJSON([]byte("7"), &b); !strings.Contains(fault.DetailOf(err), "true or false") {
		t.Error(err)
	}
	var ch struct{ C chan int }
	if err := decodeJSON([]byte(`{"C":1}`), &ch); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
}

func TestDecodeJSONReadsTheBody(t *testing.T) {
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"box":"x"}`))
	var d document
	if err := DecodeJSON(r, &d); err != nil || d.Box != "x" {
		t.Errorf("%v %+v", err, d)
	}
	r.Body = nil
	if err := DecodeJSON(r, &d); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), failing{fault.New("x", fault.BodyTooLarge, "too much")}))
	if err := DecodeJSON(r, &d); fault.KindOf(err) != fault.BodyTooLarge {
		t.Errorf("what is wrong with the body comes first: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestWriteJSON(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "max-age=5")
	if err := WriteJSON(w, 201, map[string]string{"a": "<b>"}); err != nil || w.Code != 201 || w.Body.String() != "{\"a\":\"<b>\"}\n" ||
		w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "max-age=5" || w.Header().Get("Content-Length") != "12" {
		t.Errorf("%v %d %s %v", err, w.Code, w.Body, w.Header())
	}
	if err := WriteJSON(httptest.NewRecorder(), 200, math.Inf(1)); fault.KindOf(err) != fault.Internal {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("our own documents can always be encoded")
		}
	}()
	mustWriteJSON(httptest.NewRecorder(), 200, "application/json", math.NaN())
}

// A handler that reads JSON, as a client sees it.
func TestJSONThroughTheChain(t *testing.T) {
	f := newFixture(t, []Route{control("POST", "/j", func(w http.ResponseWriter, r *http.Request) error {
		var d document
		if err := DecodeJSON(r, &d); err != nil {
			return err
		}
		return WriteJSON(w, 200, map[string]string{"box": d.Box})
	})}).listen()
	c := f.dial()
	if r := c.post("/j", `{"box":"a"}`); strings.TrimSpace(r.body) != `{"box":"a"}` {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if p := c.post("/j", `{"box":"a","x":1}`).wantRefusal(t, 400, "Malformed"); !strings.Contains(p.Detail, `"x"`) {
		t.Errorf("%+v", p)
	}
}

// FuzzDecodeJSON: what we accept, the standard library accepts with the same
// meaning; what its strict mode rejects, we reject.
func FuzzDecodeJSON(f *testing.F) {
	for _, text := range []string{`{"box":"b","wait_s":3}`, `{"items":[{"id":"x","count":1}],"any":[1,{"a":2}]}`, `{"box":"a","box":"b"}`,
		`{"wait_s":1.0}`, `[]`, `{}{}`, `{"raw":{"y":1}}`, `{"addr":"b3:00"}`, "{\"box\":\"\xff\"}", `{"named":{"":{}}}`, `null`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var ours, theirs document
		err := decodeJSON(text, &ours)
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		their := strict.Decode(&theirs)
		switch {
		case err == nil && their != nil:
			t.Fatalf("%q: taken, the standard library says %v", text, their)
		case err == nil && !reflect.DeepEqual(ours, theirs):
			t.Fatalf("%q: %+v, the standard library reads %+v", text, ours, theirs)
		case err != nil && fault.KindOf(err) != fault.Malformed && !errors.As(err, new(*fault.Error)):
			t.Fatalf("%q: %v", text, err)
		}
	})
}
