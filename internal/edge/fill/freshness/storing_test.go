package freshness

import (
	"strings"
	"testing"
)

func TestStorable(t *testing.T) {
	explicit := []string{"Cache-Control", "max-age=60"}
	with := func(pairs ...string) []string { return append(append([]string{}, explicit...), pairs...) }
	for name, c := range map[string]struct {
		req  Request
		resp Response
		want string // a part of the reason; empty: it may be stored
	}{
		"§3 a plain 200":                     {get(), ok(), ""},
		"§3 no method is GET":                {Request{}, ok(), ""},
		"§3 HEAD":                            {Request{Method: "HEAD"}, ok(explicit...), "only answers to GET"},
		"§3 POST":                            {Request{Method: "POST"}, ok(explicit...), "only answers to GET"},
		"§3 get in small letters":            {Request{Method: "get"}, ok(explicit...), "only answers to GET"},
		"§3 not final":                       {get(), status(103, explicit...), "not a final one"},
		"§3 no status":                       {get(), status(0, explicit...), "not a final one"},
		"§3.3 a part":                        {get(), status(206, explicit...), "a part"},
		"§3.3 a public part":                 {get(), status(206, "Cache-Control", "public, max-age=60, must-understand"), "a part"},
		"§3 304":                             {get(), status(304, explicit...), "updates"},
		"412":                                {get(), status(412, explicit...), "conditions"},
		"416":                                {get(), status(416, explicit...), "range"},
		"417":                                {get(), status(417, explicit...), "expectations"},
		"407":                                {get(), status(407, explicit...), "proxy"},
		"RFC 6585 428":                       {get(), status(428, explicit...), "RFC 6585"},
		"RFC 6585 429":                       {get(), status(429, explicit...), "RFC 6585"},
		"RFC 6585 431":                       {get(), status(431, explicit...), "RFC 6585"},
		"RFC 6585 511":                       {get(), status(511, explicit...), "RFC 6585"},
		"§5.2.1.5 request no-store":          {get("Cache-Control", "no-store"), ok(explicit...), "the request says no-store"},
		"§5.2.1.4 request no-cache":          {get("Cache-Control", "no-cache"), ok(explicit...), ""},
		"§5.2.2.5 no-store":                  {get(), ok("Cache-Control", "no-store"), "the response says no-store"},
		"§5.2.2.5 no-store and max-age":      {get(), ok("Cache-Control", "max-age=60", "Cache-Control", "no-store"), "the response says no-store"},
		"§5.2.2.4 no-cache":                  {get(), ok("Cache-Control", "no-cache"), ""},
		"§5.2.2.7 private":                   {get(), ok("Cache-Control", "private, max-age=60"), "private"},
		"§5.2.2.7 private beats s-maxage":    {get(), ok("Cache-Control", "private, s-maxage=60, public"), "private"},
		"§5.2.2.7 private, a field":          {get(), ok("Cache-Control", `private="set-cookie", max-age=60`), ""},
		"§5.2.2.7 private, Vary":             {get(), ok("Cache-Control", `private="vary", max-age=60`), "private that it needs"},
		"§5.2.2.7 private, not a field":      {get(), ok("Cache-Control", `private="a b", max-age=60`), "private"},
		"§7.6.1 Connection names Vary":       {get(), ok(with("Connection", "close, vary")...), "ties"},
		"§7.6.1 Connection names another":    {get(), ok(with("Connection", "close, x-a")...), ""},
		"§5.2.2.3 known status":              {get(), ok("Cache-Control", "must-understand, no-store"), ""},
		"§5.2.2.3 known, not heuristic":      {get(), status(302, "Cache-Control", "must-understand, no-store, max-age=9"), ""},
		"§5.2.2.3 unknown status":            {get(), status(599, "Cache-Control", "must-understand, max-age=60"), "must-understand"},
		"§5.2.2.3 unknown, without":          {get(), status(599, explicit...), ""},
		"§5.2.2.3 does not lift private":     {get(), ok("Cache-Control", "must-understand, no-store, private"), "private"},
		"§3.5 Authorization":                 {get("Authorization", "x"), ok(explicit...), "Authorization"},
		"§3.5 Authorization, Expires":        {get("Authorization", "x"), ok("Expires", at(60)), "Authorization"},
		"§3.5 Authorization, empty":          {get("Authorization", ""), ok(explicit...), "Authorization"},
		"§3.5 Authorization, public":         {get("Authorization", "x"), ok(with("Cache-Control", "public")...), ""},
		"§3.5 Authorization, s-maxage":       {get("Authorization", "x"), ok("Cache-Control", "s-maxage=60"), ""},
		"§3.5 Authorization, s-maxage bad":   {get("Authorization", "x"), ok("Cache-Control", "s-maxage=x"), "Authorization"},
		"§3.5 Authorization, must-":          {get("Authorization", "x"), ok(with("Cache-Control", "must-revalidate")...), ""},
		"§3.5 Authorization, proxy-":         {get("Authorization", "x"), ok(with("Cache-Control", "proxy-revalidate")...), "Authorization"},
		"§4.1 Vary: *":                       {get(), ok(with("Vary", "Accept, *")...), "varies on everything"},
		"§4.1 Vary: Accept":                  {get(), ok(with("Vary", "Accept")...), ""},
		"§3 201":                             {get(), status(201), "neither"},
		"§3 201, max-age":                    {get(), status(201, explicit...), ""},
		"§3 302":                             {get(), status(302), "neither"},
		"§3 302, Expires":                    {get(), status(302, "Expires", "0"), ""},
		"§3 403":                             {get(), status(403), "neither"},
		"§3 500":                             {get(), status(500), "neither"},
		"§3 503, max-age":                    {get(), status(503, explicit...), ""},
		"§3 599, public":                     {get(), status(599, "Cache-Control", "public"), ""},
		"§3 599, s-maxage":                   {get(), status(599, "Cache-Control", "s-maxage=1"), ""},
		"§7.3 Set-Cookie":                    {get("Cookie", "a=b"), ok(with("Set-Cookie", "a=b")...), ""},
		"§5.4 Pragma in the response":        {get(), ok("Pragma", "no-cache"), ""},
		"§5.2.2.6 no-transform is not about": {get(), ok("Cache-Control", "no-transform"), ""},
	} {
		got, reason := Storable(c.req, c.resp)
		if got != (c.want == "") || !strings.Contains(reason, c.want) || got != (reason == "") {
			t.Errorf("%s: %v, %q; want %q", name, got, reason, c.want)
		}
	}
}

// RFC 9110 §15.1: these statuses, and no others, are cacheable by default.
func TestWhichStatusesAreCacheableByThemselves(t *testing.T) {
	want := map[int]bool{200: true, 203: true, 204: true, 300: true, 301: true, 308: true, 404: true, 405: true, 410: true, 414: true, 451: true, 501: true}
	for code := range 1000 {
		if got, _ := Storable(get(), status(code)); got != want[code] {
			t.Errorf("%d: %v", code, got)
		}
	}
}
