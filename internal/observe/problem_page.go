package observe

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
)

// A person who follows a link to an error sees a page, with the same words that
// a program reads in the document. What decides is Accept: a browser lists HTML
// by name, and programs do not.

// prefersPage reports whether a client lists HTML by name and prefers it to
// JSON. A program that accepts everything gets the document.
func prefersPage(accept []string) bool {
	page, document := 0.0, 0.0
	for _, line := range accept {
		for element := range strings.SplitSeq(line, ",") {
			kind, parameters, _ := strings.Cut(element, ";")
			weight := weightOf(parameters)
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/html", "application/xhtml+xml":
				page = max(page, weight)
			case "application/json", "application/problem+json":
				document = max(document, weight)
			}
		}
	}
	return page > document
}

// weightOf is the q of an element of Accept (RFC 9110, section 12.4.2).
func weightOf(parameters string) float64 {
	for one := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(one, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0
			}
			return weight
		}
	}
	return 1
}

// problemPagePolicy allows the page its own style and nothing else.
const problemPagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const problemPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<title>%[1]d %[2]s</title>
<style>
:root { color-scheme: light dark }
body { font: 1.05rem/1.5 system-ui, sans-serif; max-width: 38rem; margin: 15vh auto 0; padding: 0 1.5rem }
h1 { font-size: 1.5rem; margin: 0 }
small, code { opacity: .7; overflow-wrap: anywhere }
</style>
<h1>%[1]d %[2]s</h1>
<p>%[3]s</p>
<p>%[4]s</p>
<p><small>micronode · %[5]s · <code>%[6]s</code></small></p>
`

// writeProblemPage answers with the page of a problem.
func writeProblemPage(w http.ResponseWriter, p Problem) {
	var body bytes.Buffer
	fmt.Fprintf(&body, problemPage, p.Status, html.EscapeString(http.StatusText(p.Status)), html.EscapeString(p.Detail), html.EscapeString(p.Next), html.EscapeString(p.Code), html.EscapeString(p.CorrID))
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	header.Set("Content-Security-Policy", problemPagePolicy)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	w.Write(body.Bytes()) // if the client has left, no one reads the error
}
