package observe

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"micronode/fault"
)

// A browser sees a page, and a program reads the document as before.
func TestAProblemIsAPageForPeople(t *testing.T) {
	const chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for accept, page := range map[string]bool{
		chromium: true, "text/html": true, "TEXT/HTML;level=1": true, "application/json;q=0.5, text/html": true,
		"": false, "*/*": false, "application/json": false, "text/html, application/json": false, "text/html;q=0": false, "text/html;q=x": false,
		"application/problem+json, text/html;q=0.9": false, "image/png,*/*;q=0.8": false,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/x", nil), httptest.NewRecorder()
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		WriteProblem(w, r, fault.New("test", fault.NotFound, "no <b>such</b> thing").Advise("Ask for another & go on."))
		body := w.Body.String()
		if w.Code != 404 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %d %v", accept, w.Code, w.Header())
		}
		if !page {
			var p Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code != "NotFound" || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%q: %v %s", accept, err, body)
			}
			continue
		}
		for _, want := range []string{"404 Not Found", "no &lt;b&gt;such&lt;/b&gt; thing", "another &amp; go on", "NotFound", w.Header().Get("X-Corr-Id")} {
			if want == "" || !strings.Contains(body, want) {
				t.Errorf("%q: %q is not in %s", accept, want, body)
			}
		}
		if w.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%q: %v", accept, w.Header())
		}
	}
}
