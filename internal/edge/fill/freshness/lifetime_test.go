package freshness

import (
	"testing"
	"time"
)

func TestLifetime(t *testing.T) {
	policy := Policy{Heuristic: time.Hour, Negative: 2 * time.Second}
	for name, c := range map[string]struct {
		resp Response
		want time.Duration
	}{
		"§4.2.1 s-maxage first":             {ok("Cache-Control", "max-age=1, s-maxage=9", "Expires", at(5)), 9 * time.Second},
		"§4.2.1 s-maxage, though shorter":   {ok("Cache-Control", "max-age=9, s-maxage=1"), time.Second},
		"§4.2.1 s-maxage, broken":           {ok("Cache-Control", "max-age=9, s-maxage=x"), 0},
		"§4.2.1 max-age second":             {ok("Cache-Control", "max-age=9", "Expires", at(5), "Date", at(0)), 9 * time.Second},
		"§4.2.1 max-age, past Expires":      {ok("Cache-Control", "max-age=9", "Expires", at(-5)), 9 * time.Second},
		"§4.2.1 max-age=0, future Expires":  {ok("Cache-Control", "max-age=0", "Expires", at(5)), 0},
		"§4.2.1 max-age, broken":            {ok("Cache-Control", "max-age=x", "Expires", at(5), "Last-Modified", at(-9999)), 0},
		"§1.2.2 max-age, huge":              {ok("Cache-Control", "max-age=99999999999999999999"), (1 << 31) * time.Second},
		"§5.3 Expires less Date":            {ok("Date", at(-10), "Expires", at(50)), time.Minute},
		"§5.3 Date in the future":           {ok("Date", at(100), "Expires", at(160)), time.Minute},
		"§5.3 Expires before Date":          {ok("Date", at(400), "Expires", at(300)), 0},
		"§5.3 Expires is Date":              {ok("Date", at(0), "Expires", at(0)), 0},
		"§5.3 Expires without Date":         {ok("Expires", at(60)), time.Minute},
		"§5.3 Expires, Date broken":         {ok("Expires", at(60), "Date", "foo"), time.Minute},
		"§5.3 Expires: 0":                   {ok("Expires", "0", "Last-Modified", at(-9999)), 0},
		"§5.3 Expires: -1":                  {ok("Expires", "-1"), 0},
		"§5.3 Expires, empty":               {ok("Expires", ""), 0},
		"§5.3 two: the earlier":             {ok("Expires", at(60), "Expires", at(30)), 30 * time.Second},
		"§5.3 two, one broken":              {ok("Expires", at(60), "Expires", "x"), 0},
		"§5.3 RFC 850":                      {ok("Date", at(0), "Expires", "Sunday, 15-Nov-26 12:01:00 GMT"), time.Minute},
		"§5.3 in a thousand years":          {ok("Date", at(0), "Expires", "Thu, 15 Nov 3026 12:00:00 GMT"), forever},
		"§4.2.2 a tenth":                    {ok("Date", at(0), "Last-Modified", at(-6000)), 10 * time.Minute},
		"§4.2.2 a tenth, by when it came":   {ok("Last-Modified", at(-6000)), 10 * time.Minute},
		"§4.2.2 at most the policy":         {ok("Date", at(0), "Last-Modified", at(-600000)), time.Hour},
		"§4.2.2 modified in the future":     {ok("Date", at(0), "Last-Modified", at(10)), 0},
		"§4.2.2 Last-Modified broken":       {ok("Date", at(0), "Last-Modified", "x"), 0},
		"§4.2.2 nothing to guess from":      {ok(), 0},
		"§4.2.2 203":                        {status(203, "Last-Modified", at(-6000)), 10 * time.Minute},
		"§4.2.2 301":                        {status(301, "Last-Modified", at(-6000)), 10 * time.Minute},
		"§4.2.2 not for 302":                {status(302, "Last-Modified", at(-6000)), 0},
		"§4.2.2 302, public":                {status(302, "Last-Modified", at(-6000), "Cache-Control", "public"), 10 * time.Minute},
		"§4.2.2 not for 206":                {status(206, "Last-Modified", at(-6000)), 0},
		"§4.2.2 not for 403":                {status(403, "Last-Modified", at(-6000)), 0},
		"§4.2.2 404 by policy":              {status(404, "Last-Modified", at(-6000)), 2 * time.Second},
		"§4.2.2 410 by policy":              {status(410), 2 * time.Second},
		"§4.2.2 503, public, by policy":     {status(503, "Cache-Control", "public"), 2 * time.Second},
		"§4.2.1 404 with its own":           {status(404, "Cache-Control", "max-age=9"), 9 * time.Second},
		"§4.2.1 404 with an Expires":        {status(404, "Expires", at(-1)), 0},
		"§5.1 Age broken":                   {ok("Cache-Control", "max-age=9", "Age", "x"), 0},
		"§5.1 Age negative":                 {ok("Cache-Control", "max-age=9", "Age", "-1"), 0},
		"§5.1 Age twice":                    {ok("Cache-Control", "max-age=9", "Age", "0", "Age", "0"), 0},
		"§5.1 Age in a list":                {ok("Cache-Control", "max-age=9", "Age", "0, 0"), 0},
		"§5.1 Age":                          {ok("Cache-Control", "max-age=9", "Age", " 1 "), 9 * time.Second},
		"§5.2.2.4 no-cache is not about it": {ok("Cache-Control", "no-cache, max-age=9"), 9 * time.Second},
	} {
		if got := Lifetime(c.resp, policy); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for name, resp := range map[string]Response{"content": ok("Last-Modified", at(-6000)), "an error": status(404)} {
		if got := Lifetime(resp, Policy{}); got != 0 {
			t.Errorf("the empty policy guesses %v for %s", got, name)
		}
		if got := Lifetime(resp, Policy{Heuristic: -1, Negative: -1}); got != 0 {
			t.Errorf("a negative policy guesses %v for %s", got, name)
		}
	}
}

func TestAge(t *testing.T) {
	slow := func(r Response, seconds int) Response {
		r.RequestTime = later(-seconds)
		return r
	}
	for name, c := range map[string]struct {
		resp Response
		now  int
		want time.Duration
	}{
		"§4.2.3 just came":                  {ok("Date", at(0)), 0, 0},
		"§4.2.3 resident":                   {ok("Date", at(0)), 90, 90 * time.Second},
		"§4.2.3 apparent":                   {ok("Date", at(-30)), 0, 30 * time.Second},
		"§4.2.3 apparent and resident":      {ok("Date", at(-30)), 5, 35 * time.Second},
		"§4.2.3 Age":                        {ok("Date", at(0), "Age", "7"), 5, 12 * time.Second},
		"§4.2.3 Age less than apparent":     {ok("Date", at(-30), "Age", "7"), 0, 30 * time.Second},
		"§4.2.3 Age more than apparent":     {ok("Date", at(-30), "Age", "70"), 0, 70 * time.Second},
		"§4.2.3 delay":                      {slow(ok("Date", at(0), "Age", "7"), 3), 0, 10 * time.Second},
		"§4.2.3 delay without Age":          {slow(ok("Date", at(0)), 3), 1, 4 * time.Second},
		"§4.2.3 delay, not on top of Date":  {slow(ok("Date", at(-30), "Age", "1"), 3), 0, 30 * time.Second},
		"§4.2.3 Date in the future":         {ok("Date", at(3600)), 5, 5 * time.Second},
		"RFC 9110 §6.6.1 no Date":           {ok(), 5, 5 * time.Second},
		"RFC 9110 §6.6.1 Date broken":       {ok("Date", "yesterday"), 5, 5 * time.Second},
		"a clock set back":                  {ok("Date", at(0), "Age", "7"), -600, 7 * time.Second},
		"a delay that is negative":          {slow(ok("Date", at(0)), -9), 0, 0},
		"§5.1 Age broken":                   {ok("Date", at(0), "Age", "abc"), 1, time.Second},
		"§5.1 Age negative":                 {ok("Date", at(0), "Age", "-7"), 1, time.Second},
		"§5.1 Age with a fraction":          {ok("Date", at(0), "Age", "7.0"), 1, time.Second},
		"§5.1 Age with a parameter":         {ok("Date", at(0), "Age", "7;a=b"), 1, time.Second},
		"§5.1 Age empty":                    {ok("Date", at(0), "Age", ""), 1, time.Second},
		"§5.1 a list: the first":            {ok("Date", at(0), "Age", "7, 0"), 0, 7 * time.Second},
		"§5.1 two lines: the first":         {ok("Date", at(0), "Age", "0", "Age", "7"), 0, 0},
		"§5.1 a list, first broken":         {ok("Date", at(0), "Age", "x, 7"), 0, 0},
		"§1.2.2 Age, huge":                  {ok("Date", at(0), "Age", "999999999999999999999"), 1, (1<<31 + 1) * time.Second},
		"Date at the beginning of counting": {ok("Date", "Mon, 01 Jan 0001 00:00:00 GMT"), 9, forever},
	} {
		if got := Age(c.resp, later(c.now)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := Age(Response{ResponseTime: noon, Header: fields("Age", "5")}, later(1)); got != 6*time.Second {
		t.Errorf("without a request time: %v", got)
	}
	if got := Age(Response{}, noon); got != forever {
		t.Errorf("without any time: %v", got)
	}
}
