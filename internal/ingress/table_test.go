package ingress

import (
	"strings"
	"testing"
	"time"

	"micronode/fault"
)

func TestTableRefusesWhatIsWrong(t *testing.T) {
	good := Route{Service: "edge", Methods: []string{"GET"}, Pattern: "/edge/{name}", Class: Control, Handler: respondWith("")}
	change := func(f func(*Route)) []Route {
		r := good
		f(&r)
		return []Route{r}
	}
	for name, c := range map[string]struct {
		routes []Route
		says   string
	}{
		"no service":            {change(func(r *Route) { r.Service = "" }), "no Service"},
		"no handler":            {change(func(r *Route) { r.Handler = nil }), "no Handler"},
		"no slash":              {change(func(r *Route) { r.Pattern = "GET /x" }), "begin with a slash"},
		"no method":             {change(func(r *Route) { r.Methods = nil }), "no Methods"},
		"no class":              {change(func(r *Route) { r.Class = 0 }), "Class"},
		"unknown class":         {change(func(r *Route) { r.Class = 9 }), "Class"},
		"negative cap":          {change(func(r *Route) { r.BodyCap = -1 }), "below zero"},
		"stream with deadline":  {change(func(r *Route) { r.Class, r.Deadline = Stream, time.Second }), "heartbeat"},
		"open with scope":       {change(func(r *Route) { r.Open, r.Scope = true, "admin" }), "one of them"},
		"no such topic":         {change(func(r *Route) { r.Topic = "topic" }), "no wildcard"},
		"method made up":        {change(func(r *Route) { r.Methods = []string{"BREW"} }), "not a method"},
		"connect":               {change(func(r *Route) { r.Methods = []string{"CONNECT"} }), "not a method"},
		"write without a scope": {change(func(r *Route) { r.Methods = []string{"PUT"} }), "needs a Scope"},
		"twice":                 {[]Route{good, good}, "belongs to edge already"},
		"bad pattern":           {change(func(r *Route) { r.Pattern = "/{" }), "/{"},
		"conflict":              {append(change(func(r *Route) { r.Pattern = "/{a}/b" }), change(func(r *Route) { r.Pattern = "/a/{b}" })...), "conflict"},
	} {
		_, err := NewTable(c.routes...)
		if err == nil || !strings.Contains(err.Error(), c.says) || fault.KindOf(err) != fault.Internal || fault.NextOf(err) == "" {
			t.Errorf("%s: %v, want something about %q", name, err, c.says)
		}
	}
}

func TestTableKeepsWhatDocumentsNeed(t *testing.T) {
	routes := []Route{
		{Service: "edge", Methods: []string{"GET", "HEAD"}, Pattern: "/a", Class: Transfer, Handler: respondWith(""), Docs: Docs{Summary: "bytes"}},
		{Service: "feed", Methods: []string{"POST"}, Pattern: "/a", Class: Control, Scope: "feed:post", Handler: respondWith("")},
		{Service: "node", Methods: []string{"POST"}, Pattern: "/b", Class: Stream, Open: true, Handler: respondWith("")},
	}
	table, err := NewTable(routes...)
	if err != nil {
		t.Fatal(err)
	}
	got := table.Routes()
	if len(got) != 3 || got[0].Docs.Summary != "bytes" || got[1].Scope != "feed:post" {
		t.Errorf("%+v", got)
	}
	got[0].Pattern = "/changed"
	if table.Routes()[0].Pattern != "/a" {
		t.Error("the table must not change when somebody changes a copy")
	}
	for class, want := range map[Class]string{Control: "control", Transfer: "transfer", Stream: "stream", 0: "unknown"} {
		if class.String() != want {
			t.Errorf("%d is %q", class, class)
		}
	}
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/", respondWith(""))})
	for name, change := range map[string]func(*Options){
		"table":     func(o *Options) { o.Table = nil },
		"authorise": func(o *Options) { o.Authorise = nil },
		"times":     func(o *Options) { o.Times.Deadline = 0 },
		"limits":    func(o *Options) { o.Limits.Inflight = 0 },
	} {
		o := f.options
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: a server without it", name)
		}
	}
}
