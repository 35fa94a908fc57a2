package delegated

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

const rsaPeerID = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"

func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		provider record.Provider
		want     Record
		no       bool
	}{
		"a node of ours": {
			provider: WithLibp2pID(record.Provider{ID: peerOf(1), Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{"http://[2001:db8::1]:80"}}, keyOf(1)),
			want:     Record{Schema: "peer", ID: idOf(1), Addrs: []string{"/ip4/192.0.2.1/tcp/9500/tls", "/ip6/2001:db8::1/tcp/80/http"}, Protocols: []string{Gateway}},
		},
		"one that nobody has introduced":    {provider: record.Provider{ID: peerOf(1), HTTP: []string{"http://192.0.2.1:80"}}, no: true},
		"one that is introduced as another": {provider: WithLibp2pID(record.Provider{ID: peerOf(1)}, keyOf(2)), no: true},
		"a stranger": {
			provider: record.Provider{ID: rsaPeerID, Other: []string{"/ip4/192.0.2.1/udp/4001/quic-v1", "/ip4/192.0.2.1/udp/4001/quic-v1", "/bad/thing", "/ip4/192.0.2.1/tcp/4001/p2p/" + rsaPeerID + "/p2p-circuit"}},
			want:     Record{Schema: "peer", ID: rsaPeerID, Addrs: []string{"/ip4/192.0.2.1/udp/4001/quic-v1", "/ip4/192.0.2.1/tcp/4001/p2p/" + rsaPeerID + "/p2p-circuit"}, Protocols: []string{}},
		},
		"a gateway with a path": {
			provider: record.Provider{ID: idOf(1), HTTP: []string{"https://a.example/deep"}},
			want:     Record{Schema: "peer", ID: idOf(1), Addrs: []string{}, Protocols: []string{}},
		},
		"a stranger without a name":  {provider: record.Provider{ID: "somebody"}, no: true},
		"half an ID":                 {provider: record.Provider{ID: rsaPeerID[:40]}, no: true},
		"an ID with a wrong letter":  {provider: record.Provider{ID: rsaPeerID[:40] + "0" + rsaPeerID[41:]}, no: true},
		"an ID that is far too long": {provider: record.Provider{ID: "1" + strings.Repeat("2", 200)}, no: true},
	} {
		got, ok := RecordOf(c.provider)
		if ok == c.no || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

// What one side writes, the other reads.
func TestRoundTrip(t *testing.T) {
	want := WithLibp2pID(record.Provider{ID: peerOf(1), Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{"https://a.example:443"},
		Other: []string{"/ip4/192.0.2.1/udp/1/quic-v1"}, Source: record.Delegated}, keyOf(1))
	rec, _ := RecordOf(want)
	if rec.usable(); !reflect.DeepEqual(rec.provider(), want) {
		t.Errorf("%+v", rec.provider())
	}
}

func TestMultiaddrs(t *testing.T) {
	for _, good := range []string{"/ip4/192.0.2.1/tcp/4001", "/ip6/::1/udp/1/quic-v1/webtransport", "/dns4/a.example/tcp/443/tls/sni/b.example/ws", "/dnsaddr/a.example",
		"/ip4/192.0.2.1/tcp/1/p2p/" + rsaPeerID, "/dns/a.example/https"} {
		if !wellFormed(good) {
			t.Error(good)
		}
	}
	for _, bad := range []string{"", "/", "//", "ip4/192.0.2.1", "/ip4", "/ip4/", "/ip4/1.2.3/tcp/1", "/ip4/::1/tcp/1", "/ip6/1.2.3.4/tcp/1", "/ip6/fe80::1%a/tcp/1", "/ip4/1.2.3.4/tcp/65536",
		"/ip4/1.2.3.4/tcp/01", "/ip4/1.2.3.4/tcp/1/", "/ip4/1.2.3.4/tcp/1//tls", "/ip4/1.2.3.4/udp/1/quic-v1/certhash/x", "/p2p/x", "/unix/etc", "/dns//tcp/1", "/dns/a b/tcp/1"} {
		if wellFormed(bad) {
			t.Error(bad)
		}
	}
}

func TestForms(t *testing.T) {
	for accept, want := range map[string]Encoding{
		"":                                       JSON,
		"*/*":                                    JSON,
		"application/json":                       JSON,
		"application/*;q=0.1":                    JSON,
		"application/x-ndjson":                   NDJSON,
		"application/x-ndjson,application/json":  NDJSON,
		"application/json, application/x-ndjson": NDJSON,
		"application/json, application/x-ndjson;q=0.5":    JSON,
		"application/x-ndjson;q=0, */*":                   JSON,
		"application/x-ndjson;q=nonsense":                 NDJSON,
		"text/html, ;;;, application/x-ndjson":            NDJSON,
		"text/html":                                       0,
		"application/json;q=0":                            0,
		strings.Repeat("text/html,", 99) + "*/*":          0,
		"text/html,application/xhtml+xml,*/*;q=0.8":       JSON,
		"application/vnd.ipld.raw, application/x-ndjson2": 0,
	} {
		header := http.Header{}
		if accept != "" {
			header.Set("Accept", accept)
		}
		got, err := NegotiateEncoding(header)
		if got != want || (err == nil) != (want != 0) || err != nil && fault.KindOf(err) != fault.Malformed {
			t.Errorf("%q: %d, %v; want %d", accept, got, err, want)
		}
	}
}

func TestFilters(t *testing.T) {
	tcp, quic := "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/udp/1/quic-v1"
	both := Record{ID: "a", Addrs: []string{tcp, quic}, Protocols: []string{"Transport-Bitswap"}}
	silent := Record{ID: "b", Addrs: []string{}, Protocols: []string{}}
	for query, want := range map[string][2][]string{
		"":                                   {{tcp, quic}, {}},
		"filter-protocols=transport-bitswap": {{tcp, quic}, nil},
		"filter-protocols=unknown":           {nil, {}},
		"filter-protocols=unknown,transport-bitswap": {{tcp, quic}, {}},
		"filter-protocols=,other":                    {nil, nil},
		"filter-addrs=tcp":                           {{tcp}, nil},
		"filter-addrs=TCP, unknown":                  {{tcp}, {}},
		"filter-addrs=!tcp":                          {{quic}, nil},
		"filter-addrs=ip4,!quic-v1":                  {{tcp}, nil},
		"filter-addrs=!ip4":                          {nil, nil},
		"filter-addrs=unknown":                       {nil, {}},
		"filter-addrs=!tcp,unknown":                  {nil, {}},
	} {
		values, err := url.ParseQuery(query)
		testkit.Must(t, err)
		f := ParseFilter(values)
		for i, r := range []Record{both, silent} {
			got, ok := f.Apply(r)
			if ok != (want[i] != nil) || ok && !reflect.DeepEqual(got.Addrs, want[i]) {
				t.Errorf("%q: %s becomes %v, %t; want %v", query, r.ID, got.Addrs, ok, want[i])
			}
		}
	}
	if len(both.Addrs) != 2 || both.Addrs[0] != tcp {
		t.Error("a filter changes the record it is given")
	}
}

var now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func TestDocuments(t *testing.T) {
	w := httptest.NewRecorder()
	page := NewRecordWriter(w, JSON, Filter{}, now)
	empty := page.Document()
	if string(empty.Text) != `{"Providers":[]}`+"\n" || !strings.Contains(empty.CacheControl, "max-age=15,") || w.Header().Get("Vary") != "Accept" {
		t.Errorf("%+v, %v", empty, w.Header())
	}
	for n := range 2 * maxProviders {
		if err := page.Add(Record{Schema: "peer", ID: idOf(n / 2), Addrs: []string{"/ip4/192.0.2.1/tcp/1/http?a&b"}, Protocols: []string{}}); err != nil {
			t.Fatal(err)
		}
	}
	if !page.Full() || page.Started() {
		t.Error("a full page is not full, or a document has begun")
	}
	_ = page.Add(Record{ID: "late"})
	d := page.Document()
	var back Response
	if err := json.Unmarshal(d.Text, &back); err != nil || len(back.Providers) != maxProviders || back.Providers[99].ID != idOf(99) {
		t.Errorf("%d records, %v", len(back.Providers), err)
	}
	if !strings.Contains(d.CacheControl, "max-age=300,") || d.ETag != `"`+b3.Of(d.Text).String()+`"` || d.ETag == empty.ETag || d.Type != "application/json" {
		t.Errorf("%s, %s, %s", d.CacheControl, d.ETag, d.Type)
	}
	if !strings.Contains(string(d.Text), "http?a&b") {
		t.Error("text is written as if it were for HTML")
	}
	var part strings.Builder
	if err := d.Write(&part, 1, 11); err != nil || part.String() != `"Providers"` {
		t.Errorf("%q, %v", part.String(), err)
	}
}

func TestStreams(t *testing.T) {
	w := httptest.NewRecorder()
	page := NewRecordWriter(w, NDJSON, ParseFilter(url.Values{"filter-protocols": {Gateway}}), now)
	_ = page.Add(Record{Schema: "peer", ID: "unwanted"})
	if w.Flushed || page.Started() {
		t.Error("a stream begins with a record that nobody wants")
	}
	r := Record{Schema: "peer", ID: idOf(1), Addrs: []string{}, Protocols: []string{Gateway}}
	if err := page.Add(r); err != nil || !w.Flushed || w.Body.String() != string(encode(r)) {
		t.Errorf("%v, flushed: %t, %q", err, w.Flushed, w.Body)
	}
	_ = page.Add(r)
	page.EndStream()
	want := http.Header{"Content-Type": {"application/x-ndjson"}, "Vary": {"Accept"}, "Cache-Control": {cacheControlFound}, "Last-Modified": {"Sun, 15 Nov 2026 12:00:00 GMT"},
		"X-Content-Type-Options": {"nosniff"}, "X-Accel-Buffering": {"no"}}
	if strings.Count(w.Body.String(), "\n") != 1 || w.Code != 200 || !reflect.DeepEqual(w.Header(), want) {
		t.Errorf("%d %v\n%s", w.Code, w.Header(), w.Body)
	}

	w = httptest.NewRecorder()
	NewRecordWriter(w, NDJSON, Filter{}, now).EndStream()
	if w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("Cache-Control") != cacheControlEmpty || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d %v\n%s", w.Code, w.Header(), w.Body)
	}
}

// brokenWriter is a client that has left.
type brokenWriter struct {
	http.ResponseWriter
	flushes bool
}

func (b brokenWriter) Write(p []byte) (int, error) {
	if b.flushes {
		return len(p), nil
	}
	return 0, errors.New("gone")
}

func (b brokenWriter) FlushError() error { return errors.New("gone") }

func TestClientsThatLeave(t *testing.T) {
	for _, flushes := range []bool{false, true} {
		page := NewRecordWriter(brokenWriter{httptest.NewRecorder(), flushes}, NDJSON, Filter{}, now)
		if err := page.Add(Record{ID: "a"}); fault.KindOf(err) != fault.BrokenPipe {
			t.Error(err)
		}
	}
}

func TestCIDs(t *testing.T) {
	a := b3.Of([]byte("hello"))
	raw := append([]byte{1, 0x55, 0x1e, 0x20}, a[:]...)
	ours := CID{Address: a, Ours: true}
	for text, want := range map[string]CID{
		a.CID():                            ours,
		"B" + strings.ToUpper(a.CID()[1:]): ours,
		"f" + hexOf(raw):                   ours,
		"z" + base58Of(raw):                ours,
		"k" + base36Of(raw):                ours,
		"bafkqaaa":                         {Empty: true},
		"bafkqaaik":                        {}, // identity, with content
		rsaPeerID:                          {}, // the same text is a CID of version 0
		"bafkreidcd7frenco2m6ch7mny63wztgztv3q6fctaffgowkro6kljre5ei": {},
		"bafyqaaa": {}, // dag-pb
	} {
		got, err := ParseCID(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "b", "docs", "b3:" + hexOf(a[:]), a.CID()[:40], a.CID() + "aa", a.CID() + "\n", "bafkr\n" + a.CID()[5:], "k-1", "k+1", "kü", "z0", "f0", "Qm", rsaPeerID[:40], "B!", "x" + a.CID(),
		"b" + strings.Repeat("a", 300), "bafk", "bba", "f0255", "f01551e21" + hexOf(a[:])} {
		if got, err := ParseCID(text); fault.KindOf(err) != fault.Malformed || got != (CID{}) || fault.NextOf(err) == "" {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
