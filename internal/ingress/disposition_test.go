package ingress

import (
	"mime"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestDisposition(t *testing.T) {
	for _, c := range []struct{ query, otherwise, want, name string }{
		{"", "", "", ""},
		{"", "cid.bin", `inline; filename="cid.bin"`, "cid.bin"},
		{"download=true", "", "attachment", ""},
		{"download=1&filename=", "", "", ""},
		{"filename=cat.jpg", "cid.bin", `inline; filename="cat.jpg"`, "cat.jpg"},
		{"filename=cat.jpg&download=true", "", `attachment; filename="cat.jpg"`, "cat.jpg"},
		{"filename=K%C3%B6ln+50%25.pdf", "", `inline; filename="K_ln 50_.pdf"; filename*=UTF-8''K%C3%B6ln%2050%25.pdf`, "Köln 50%.pdf"},
		{"filename=a%22b%3B.txt", "", `inline; filename="a_b;.txt"; filename*=UTF-8''a%22b%3B.txt`, `a"b;.txt`},
		{"filename=..%2F..%2Fetc%2Fpasswd", "", `inline; filename="passwd"`, "passwd"},
		{"filename=C%3A%5Cboot.ini", "", `inline; filename="boot.ini"`, "boot.ini"},
		{"filename=a%0D%0ASet-Cookie%3A+x%3Dy", "", `inline; filename="aSet-Cookie: x=y"`, "aSet-Cookie: x=y"},
		{"filename=..", "cid.bin", `inline; filename="cid.bin"`, "cid.bin"},
		{"filename=%FF%FE", "", "", ""},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		Disposition(header, query, c.otherwise, false)
		got := header.Get("Content-Disposition")
		if got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.query, c.otherwise, got, c.want)
		}
		if _, params, err := mime.ParseMediaType(got); got != "" && (err != nil || params["filename"] != c.name) {
			t.Errorf("%s reads as %q, %v", got, params["filename"], err)
		}
	}
	header := http.Header{}
	Disposition(header, url.Values{"filename": {strings.Repeat("ö", 200)}}, "", false)
	if _, params, _ := mime.ParseMediaType(header.Get("Content-Disposition")); params["filename"] != strings.Repeat("ö", 127) {
		t.Errorf("%d bytes of a name", len(params["filename"]))
	}
}
