package page

import (
	"net/http"
	"net/url"
	"strings"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

const service = "gateway"

// Root is the path of the page.
const Root = "/ui/"

// Page is the files of the page, and the links that open it for the node's own
// user.
type Page struct {
	// set at construction
	assets map[string]*asset // by name; nil if the page was left out of the binary
	Links  *Links
}

// New makes the page.
func New() *Page { return &Page{assets: readAssets(files()), Links: newLinks()} }

// Built reports whether the page is in this binary.
func (p *Page) Built() bool { return p.assets != nil }

// Routes lists the routes of the page; there are none without its files.
func (p *Page) Routes() []ingress.Route {
	if !p.Built() {
		return nil
	}
	open := func(pattern string, handler ingress.Handler, docs ingress.Docs) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler, Open: true, Class: ingress.Control, Docs: docs}
	}
	html := []ingress.Response{{Status: http.StatusOK, Type: "text/html", Doc: "A file of the page, in its own media type. Every state of the page has a path, and is the same document."},
		{Status: http.StatusNotModified, Doc: "The file has not changed."}}
	to := []ingress.Response{{Status: http.StatusFound, Type: "*/*", Doc: "To " + Root}}
	return []ingress.Route{
		open("/{$}", handleRoot, ingress.Docs{Summary: "Send browsers to the page", Responses: to, Kinds: []fault.Kind{fault.NotFound}}),
		open("/ui", handleRedirect, ingress.Docs{Summary: "Send to the page", Responses: to}),
		open(Root+"{path...}", p.handleFile, ingress.Docs{Summary: "The page of the node", Responses: html, Kinds: []fault.Kind{fault.NotFound}}),
		{Service: service, Methods: []string{http.MethodPost}, Pattern: "/ui/session", Handler: p.handleSession, Open: true, Class: ingress.Control, BodyCap: 1 << 10,
			Docs: ingress.Docs{Summary: "Exchange the code of a link for its capability",
				Description: "The code is that of a link of `micronode ui`. It works once.",
				Request:     client.PageCode{}, Responses: []ingress.Response{{Status: http.StatusOK, Body: client.PageSession{}}}, Kinds: []fault.Kind{fault.Forbidden, fault.RejectPolicy}}},
	}
}

// handleRoot sends a browser to the page. Programs get a problem document.
func handleRoot(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Vary", "Accept")
	if !acceptsHTML(r.Header["Accept"]) {
		return fault.New("page.root", fault.NotFound, "only the page for browsers is here").Advise("GET /openapi.json lists the paths.")
	}
	return handleRedirect(w, r)
}

// acceptsHTML reports whether a client names HTML, as browsers do. A star is
// not enough: programs send it.
func acceptsHTML(accept []string) bool {
	for _, line := range accept {
		for one := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(one, ";")
			if strings.EqualFold(strings.TrimSpace(media), "text/html") && !strings.HasPrefix(strings.ReplaceAll(params, " ", "")+";", "q=0;") {
				return true
			}
		}
	}
	return false
}

func handleRedirect(w http.ResponseWriter, _ *http.Request) error {
	header := w.Header()
	header.Set("Location", Root)
	header.Set("Cache-Control", "no-store") // what is at / may change with the binary
	w.WriteHeader(http.StatusFound)
	return nil
}

// policy is the Content-Security-Policy of the page: its own files and its own
// node, and nothing that is inline. A frame of another page cannot hold it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; worker-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// setHeaders sets what tells a browser to keep other pages out.
func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// handleFile answers with a file of the page. A path without a file is a state
// of the page, unless it looks like a file.
func (p *Page) handleFile(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("path")
	found := p.assets[name]
	if found == nil && strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ".") {
		return fault.New("page.file", fault.NotFound, "the page has no file of this name").Advise("Open " + Root + ", or reload the page: the node may have been replaced by another version.")
	}
	if found == nil {
		found = p.assets[index]
	}
	setHeaders(w.Header())
	return found.serve(w, r)
}

// handleSession exchanges a code for a capability.
func (p *Page) handleSession(w http.ResponseWriter, r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return fault.New("page.session", fault.RejectPolicy, "a page of another origin asked for the capability").Advise("Open the link of `micronode ui` by itself.")
	}
	var request client.PageCode
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	session, err := p.Links.redeem(request.Code)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, session)
}

// LinkTo is the URL that opens the page of a gateway with a code. The code is
// in the fragment, which browsers send to nobody.
func LinkTo(gateway, code string) string {
	return gateway + Root + "#link=" + url.QueryEscape(code)
}
