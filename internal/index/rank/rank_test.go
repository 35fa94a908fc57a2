package rank_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"micronode/internal/index/rank"
	"micronode/internal/index/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.UnixMilli(1_800_000_000_000).UTC()

// rankOne ranks a single provider.
func rankOne(p record.Provider, f rank.Facts, h rank.History) rank.Ranked {
	f.History = func(record.Provider) rank.History { return h }
	if f.Now.IsZero() {
		f.Now = noon
	}
	return rank.Order([]record.Provider{p}, f)[0]
}

// dialableProvider is a provider that can be dialled.
func dialableProvider(id string) record.Provider {
	return record.Provider{ID: id, Overlay: []string{id + ".example:9000"}, Source: record.DHT}
}

// The weights and the curves of the package's own description.
func TestScores(t *testing.T) {
	fresh := dialableProvider("a")
	fresh.Seen, fresh.Region = noon, "eu-west"
	hourOld := dialableProvider("a")
	hourOld.Seen = noon.Add(-time.Hour)
	nowhere := record.Provider{ID: "a", Other: []string{"/unix/x"}}
	perfect := rank.History{Latency: time.Nanosecond, Successes: 1e12, Breaker: "closed"}
	for what, c := range map[string]struct {
		got  rank.Ranked
		want rank.Ranked
	}{
		"perfect":                {rankOne(fresh, rank.Facts{WantedRegion: "eu-west"}, perfect), rank.Ranked{Score: 1, Class: "best", Latency: "local"}},
		"nothing known":          {rankOne(dialableProvider("a"), rank.Facts{}, rank.History{}), rank.Ranked{Score: .0625 + .1 + .1 + .1 + .1 + .0005, Class: "fair", Latency: "unknown"}},
		"one hour old":           {rankOne(hourOld, rank.Facts{}, rank.History{}), rank.Ranked{Score: .125 + .1 + .1 + .1 + .1, Class: "good", Latency: "unknown"}},
		"at 50 ms":               {rankOne(fresh, rank.Facts{}, rank.History{Latency: 50 * time.Millisecond}), rank.Ranked{Score: .25 + .125 + .1 + .1 + .1, Class: "good", Latency: "medium"}},
		"at 10 ms":               {rankOne(fresh, rank.Facts{}, rank.History{Latency: 10 * time.Millisecond}), rank.Ranked{Score: .758, Class: "best", Latency: "near"}},
		"at 200 ms":              {rankOne(fresh, rank.Facts{}, rank.History{Latency: 200 * time.Millisecond}), rank.Ranked{Score: .6, Class: "good", Latency: "far"}},
		"half the region":        {rankOne(fresh, rank.Facts{WantedRegion: "eu-north"}, rank.History{}), rank.Ranked{Score: .25 + .1 + .1 + .1 + .1, Class: "good", Latency: "unknown"}},
		"the wrong region":       {rankOne(fresh, rank.Facts{WantedRegion: "us"}, rank.History{}), rank.Ranked{Score: .25 + .1 + 0 + .1 + .1, Class: "good", Latency: "unknown"}},
		"a region in a larger":   {rankOne(fresh, rank.Facts{WantedRegion: "EU"}, rank.History{}), rank.Ranked{Score: .25 + .1 + .2 + .1 + .1, Class: "best", Latency: "unknown"}},
		"our own region":         {rankOne(fresh, rank.Facts{OwnRegion: "eu-west"}, rank.History{}), rank.Ranked{Score: .25 + .1 + .2 + .1 + .1, Class: "best", Latency: "unknown"}},
		"no region":              {rankOne(hourOld, rank.Facts{OwnRegion: "eu-west"}, rank.History{}), rank.Ranked{Score: .125 + .1 + .05 + .1 + .1, Class: "fair", Latency: "unknown"}},
		"three of four failed":   {rankOne(fresh, rank.Facts{}, rank.History{Failures: 2}), rank.Ranked{Score: .25 + .1 + .1 + .05 + .1, Class: "good", Latency: "unknown"}},
		"half open":              {rankOne(fresh, rank.Facts{}, rank.History{Breaker: "half-open"}), rank.Ranked{Score: .25 + .1 + .1 + .1 + .05, Class: "good", Latency: "unknown"}},
		"open":                   {rankOne(fresh, rank.Facts{}, rank.History{Breaker: "open"}), rank.Ranked{Score: .275, Class: "fair", Latency: "unknown"}},
		"out of reach":           {rankOne(nowhere, rank.Facts{}, rank.History{}), rank.Ranked{Score: .231, Class: "poor", Latency: "unknown"}},
		"connected all the same": {rankOne(nowhere, rank.Facts{}, rank.History{Connected: true}), rank.Ranked{Score: .65, Class: "good", Latency: "unknown"}},
		"ourselves":              {rankOne(record.Provider{ID: "a", Source: record.Local}, rank.Facts{}, rank.History{Failures: 9, Latency: time.Hour}), rank.Ranked{Score: .9, Class: "best", Latency: "local"}},
		"from the future":        {rankOne(record.Provider{ID: "a", Overlay: []string{"x:1"}, Seen: noon.Add(time.Hour)}, rank.Facts{}, rank.History{}), rank.Ranked{Score: .65, Class: "good", Latency: "unknown"}},
		"impossible history":     {rankOne(fresh, rank.Facts{}, rank.History{Latency: -1, Successes: math.NaN(), Failures: math.Inf(-1), Breaker: "?"}), rank.Ranked{Score: .65, Class: "good", Latency: "unknown"}},
		"endless failures":       {rankOne(fresh, rank.Facts{}, rank.History{Failures: math.Inf(1)}), rank.Ranked{Score: .55, Class: "good", Latency: "unknown"}},
	} {
		if math.Abs(c.got.Score-c.want.Score) > 1e-9 || c.got.Class != c.want.Class || c.got.Latency != c.want.Latency {
			t.Errorf("%s: %v %s %s, want %v %s %s", what, c.got.Score, c.got.Class, c.got.Latency, c.want.Score, c.want.Class, c.want.Latency)
		}
	}
}

func TestMergesWhatIsOneNode(t *testing.T) {
	liar := record.Provider{ID: "a", Source: record.Delegated, Region: "moon", Seen: noon}
	for i := range 100 {
		liar.Overlay = append(liar.Overlay, fmt.Sprintf("192.0.2.%d:1", i))
	}
	truth := record.Provider{ID: "a", Source: record.Peer, Seen: noon.Add(-time.Hour), Overlay: []string{"z.example:9000"}, HTTP: []string{"https://z.example:443", "https://z.example:443"}}
	region := record.Provider{ID: "a", Source: record.DHT, Region: "eu", Other: []string{"/unix/x"}}

	got := rank.Order([]record.Provider{liar, region, truth}, rank.Facts{Now: noon})
	if len(got) != 1 {
		t.Fatalf("one node became %d", len(got))
	}
	p := got[0].Provider
	if p.Source != record.Peer || p.Region != "eu" || !p.Seen.Equal(noon) {
		t.Errorf("%+v", p)
	}
	if len(p.Overlay) != record.MaxAddrs || p.Overlay[0] != "z.example:9000" {
		t.Errorf("the liar's addresses drown the real one: %q", p.Overlay)
	}
	if !slices.Equal(p.HTTP, []string{"https://z.example:443"}) || !slices.Equal(p.Other, []string{"/unix/x"}) {
		t.Errorf("%q %q", p.HTTP, p.Other)
	}
}

// Of two that differ in one thing only, the same one takes precedence in any
// input order.
func TestLikeSourcesAreHeardInOneOrder(t *testing.T) {
	base := record.Provider{ID: "a", Source: record.DHT, Seen: noon, Region: "eu", Overlay: []string{"x:1"}, HTTP: []string{"http://x:1"}, Other: []string{"/unix/x"}}
	for what, change := range map[string]func(*record.Provider){
		"region":         func(p *record.Provider) { p.Region = "us" },
		"seen":           func(p *record.Provider) { p.Seen, p.Region = noon.Add(-1), "us" },
		"unknown source": func(p *record.Provider) { p.Source, p.Region = "new", "us" },
		"overlay":        func(p *record.Provider) { p.Overlay = []string{"y:1"} },
		"http":           func(p *record.Provider) { p.HTTP = []string{"http://y:1"} },
		"other":          func(p *record.Provider) { p.Other = []string{"/unix/y"} },
	} {
		other := base
		change(&other)
		one, two := rank.Order([]record.Provider{base, other}, rank.Facts{Now: noon}), rank.Order([]record.Provider{other, base}, rank.Facts{Now: noon})
		if !reflect.DeepEqual(one, two) {
			t.Errorf("%s: %+v or %+v", what, one, two)
		}
	}
	strange, stranger := base, base
	strange.Source, stranger.Source, stranger.Region = "new", "newer", "us"
	if one, two := rank.Order([]record.Provider{strange, stranger}, rank.Facts{}), rank.Order([]record.Provider{stranger, strange}, rank.Facts{}); !reflect.DeepEqual(one, two) {
		t.Errorf("two sources that nobody knows: %+v or %+v", one, two)
	}
}

func TestNodesWithoutAnIDStayApart(t *testing.T) {
	a := record.Provider{HTTP: []string{"https://a.example:443"}}
	b := record.Provider{HTTP: []string{"https://b.example:443"}}
	if got := rank.Order([]record.Provider{b, a, b, a}, rank.Facts{}); len(got) != 2 || got[0].Provider.HTTP[0] != a.HTTP[0] || got[1].Provider.HTTP[0] != b.HTTP[0] {
		t.Errorf("%+v", got)
	}
	if got := rank.Order(nil, rank.Facts{}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestUsable(t *testing.T) {
	for _, c := range []struct {
		p    record.Provider
		want bool
	}{
		{record.Provider{ID: "a", Overlay: []string{"x:1"}}, true},
		{record.Provider{ID: "a", HTTP: []string{"http://x:1"}}, true},
		{record.Provider{ID: "a", Source: record.Local}, true},
		{record.Provider{ID: "a", Source: record.Peer}, false},
		{record.Provider{ID: "a", Other: []string{"/unix/x"}}, false},
	} {
		if got := rank.Usable(c.p); got != c.want {
			t.Errorf("%+v: %v", c.p, got)
		}
	}
}

// The input is not changed, even if it is shared.
func TestLeavesItsInputAlone(t *testing.T) {
	shared := make([]string, 1, 8)
	shared[0] = "a.example:1"
	in := []record.Provider{{ID: "b"}, {ID: "a", Overlay: shared}, {ID: "a", Overlay: []string{"b.example:1"}}}
	out := rank.Order(in, rank.Facts{})
	if in[0].ID != "b" || len(in[1].Overlay) != 1 || shared[:2][1] != "" {
		t.Errorf("%+v", in)
	}
	out[0].Provider.Overlay[0] = "changed"
	if shared[0] != "a.example:1" {
		t.Error("a list is shared")
	}
}

// anyProvider draws from few values, so that nodes coincide.
func anyProvider(t *rapid.T) record.Provider {
	some := func(label string, from ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(from), 0, 3).Draw(t, label)
	}
	p := record.Provider{
		ID:      rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "id"),
		Overlay: some("overlay", "x:1", "y:1", "z:1"),
		HTTP:    some("http", "http://x:1", "http://y:1"),
		Other:   some("other", "/unix/x", "/unix/y"),
		Region:  rapid.SampledFrom([]string{"", "eu", "eu-west", "us"}).Draw(t, "region"),
		Source:  rapid.SampledFrom([]record.Source{record.Local, record.Peer, record.DHT, record.Delegated, record.Cache, record.Registry, "new"}).Draw(t, "source"),
	}
	if age := rapid.IntRange(-2, 5).Draw(t, "age"); age < 5 {
		p.Seen = noon.Add(-time.Duration(age) * time.Hour)
	}
	return p
}

func anyHistory(t *rapid.T) rank.History {
	return rank.History{
		Latency:   time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "latency")),
		Successes: rapid.Float64Range(0, 100).Draw(t, "successes"),
		Failures:  rapid.Float64Range(0, 100).Draw(t, "failures"),
		Breaker:   rapid.SampledFrom([]string{"", "closed", "half-open", "open"}).Draw(t, "breaker"),
		Connected: rapid.Bool().Draw(t, "connected"),
	}
}

func anyFacts(t *rapid.T) rank.Facts {
	regions := rapid.SampledFrom([]string{"", "eu", "eu-west", "us-east-1"})
	return rank.Facts{WantedRegion: regions.Draw(t, "wanted"), OwnRegion: regions.Draw(t, "own"), Now: noon}
}

// The order of the input does not matter.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := make([]record.Provider, rapid.IntRange(0, 8).Draw(t, "n"))
		for i := range in {
			in[i] = anyProvider(t)
		}
		known := map[string]rank.History{"a": anyHistory(t), "b": anyHistory(t)}
		f := anyFacts(t)
		asked := 0
		f.History = func(p record.Provider) rank.History { asked++; return known[p.ID] }

		want := rank.Order(in, f)
		if asked != len(want) {
			t.Fatalf("asked %d times about %d providers", asked, len(want))
		}
		if got := rank.Order(rapid.Permutation(in).Draw(t, "mixed"), f); !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v, want\n%+v", got, want)
		}
		checkOrder(t, want)
	})
}

func checkOrder(t *rapid.T, ranked []rank.Ranked) {
	seen := map[string]bool{}
	for i, r := range ranked {
		if r.Score < 0 || r.Score > 1 || math.Round(r.Score*1000)/1000 != r.Score {
			t.Fatalf("a score of %v", r.Score)
		}
		if r.Provider.ID != "" && seen[r.Provider.ID] {
			t.Fatalf("%q is there twice", r.Provider.ID)
		}
		seen[r.Provider.ID] = true
		if i == 0 {
			continue
		}
		if last := ranked[i-1]; last.Score < r.Score || last.Score == r.Score && last.Provider.ID > r.Provider.ID {
			t.Fatalf("%+v stands before %+v", last, r)
		}
	}
}

// Each component is monotonic.
func TestBetterIsNeverWorse(t *testing.T) {
	ladder := map[string]int{"open": 0, "half-open": 1, "closed": 2, "": 2}
	rapid.Check(t, func(t *rapid.T) {
		p, h, f := anyProvider(t), anyHistory(t), anyFacts(t)
		worse := rankOne(p, f, h)
		better, with := p, h
		switch rapid.SampledFrom([]string{"fresher", "nearer", "region", "success", "failure", "breaker", "connected", "reachable"}).Draw(t, "what") {
		case "fresher":
			if p.Seen.IsZero() {
				better.Seen = noon.Add(-3 * time.Hour) // unknown counts as that old
			}
			better.Seen = better.Seen.Add(time.Duration(rapid.Int64Range(0, 1e14).Draw(t, "later")))
		case "nearer":
			if h.Latency == 0 {
				with.Latency = 75 * time.Millisecond // unknown counts as that far
			}
			with.Latency = max(1, with.Latency-time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "less")))
		case "region":
			if better.Region = f.WantedRegion; better.Region == "" {
				better.Region = f.OwnRegion
			}
		case "success":
			with.Successes += rapid.Float64Range(0, 100).Draw(t, "more")
		case "failure":
			with.Failures -= rapid.Float64Range(0, h.Failures).Draw(t, "fewer")
		case "breaker":
			if to := rapid.SampledFrom([]string{"", "closed", "half-open"}).Draw(t, "to"); ladder[to] >= ladder[h.Breaker] {
				with.Breaker = to
			}
		case "connected":
			with.Connected = true
		case "reachable":
			better.HTTP = append(slices.Clone(p.HTTP), "https://a.example:443")
		}
		if got := rankOne(better, f, with); got.Score < worse.Score {
			t.Fatalf("%+v %+v has %v,\nbut %+v %+v has %v", p, h, worse.Score, better, with, got.Score)
		}
	})
}

func BenchmarkOrder(b *testing.B) {
	in := make([]record.Provider, 32)
	for i := range in {
		in[i] = dialableProvider(fmt.Sprintf("peer-%02d", i*7%32))
		in[i].Seen = noon.Add(-time.Duration(i) * time.Minute)
	}
	f := rank.Facts{WantedRegion: "eu", Now: noon}
	b.ReportAllocs()
	for b.Loop() {
		rank.Order(in, f)
	}
}
