package edge

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// A folder is a site: a page for each directory, a page for what is not there,
// and files of their types. What is below an address never changes; what is
// below a name is asked for again each time, so that a new version is seen at
// once.

// sitePattern is the route of sites. The hosts of sites lead to it too.
const sitePattern = ingress.SitePrefix + "{path...}"

const siteOp = "edge.site"

// siteRevalidate is the Cache-Control of what is below a name: a browser keeps
// it, and asks each time whether it is still right.
const siteRevalidate = "no-cache"

// The pages that a site may have for itself.
const (
	indexPage    = "index.html"
	notFoundPage = "404.html"
)

// siteRequest is one request of a site.
type siteRequest struct {
	root     string // name:docs or b3:…
	version  string // of a name, as its path says it, without b3:
	rest     string // the path in the site, decoded
	named    bool
	ownHost  bool // the site has an origin of its own
	folder   client.Manifest
	fetch    fetcher
	redirect string // set by find: the path that is meant
}

// handleSite answers with a file of a site.
func (e *Edge) handleSite(w http.ResponseWriter, r *http.Request) error {
	escaped := strings.TrimPrefix(r.URL.EscapedPath(), ingress.SitePrefix)
	if why := pathTrick(escaped); why != "" {
		return &fault.Error{Op: siteOp, Kind: fault.Malformed, Detail: "the path has " + why, Next: "Write the path without escapes and dot segments."}
	}
	root, rest, slash := strings.Cut(r.PathValue("path"), "/")
	s := &siteRequest{root: root, rest: rest, named: strings.HasPrefix(root, namePrefix), ownHost: ingress.BySiteHost(r), fetch: e.fetcherFor(r)}
	if s.named && !s.ownHost {
		s.root, s.version, _ = strings.Cut(root, versionMark)
	}
	switch {
	case e.objects == nil || !s.named && !strings.HasPrefix(root, addressPrefix):
		return &fault.Error{Op: siteOp, Kind: fault.NotFound, Detail: "a site is the name or the address of a folder", Next: "Ask for " + ingress.SitePrefix + "name:docs/, or for " + ingress.SitePrefix + "b3:…/."}
	case !slash:
		return e.redirectSite(w, r, s, "/")
	}

	// A browser is sent from the path to the host, where the site has an origin
	// of its own.
	if host := e.localSiteHost(r, s); host != "" {
		w.Header().Set("Cache-Control", siteRevalidate)
		http.Redirect(w, r, (&url.URL{Scheme: "http", Host: host, Path: "/" + s.rest, RawQuery: r.URL.RawQuery}).String(), http.StatusFound)
		return nil
	}

	address, err := e.siteVersion(w, r, s)
	if err != nil {
		return e.countRefusal(err)
	}
	if s.named && !s.ownHost && r.Header.Get("Sec-Fetch-Mode") == "navigate" && s.version != address.String()[len(addressPrefix):] {
		s.version = address.String()[len(addressPrefix):]
		return e.redirectSite(w, r, s, "/"+s.rest)
	}
	if s.folder, err = e.folders.get(address, func() (client.Manifest, error) { return e.manifest(r.Context(), s.fetch, address) }); err != nil {
		return e.countRefusal(err)
	}
	if rest == "_headers" || rest == "_redirects" {
		return &fault.Error{Op: siteOp, Kind: fault.RejectPolicy, Detail: rest + " has no effect here, so it is not served", Next: "Headers are those of this node; a redirect can be a page. See docs/public.md."}
	}
	entry, status := s.find()
	switch {
	case s.redirect != "":
		return e.redirectSite(w, r, s, s.redirect)
	case status == http.StatusNotFound && entry == nil:
		return e.countRefusal(&fault.Error{Op: siteOp, Kind: fault.NotFound, Detail: "the site has no such page", Next: "Begin at its first page. A file 404.html in its folder is shown instead of this."})
	}
	return e.serveSiteFile(w, r, s, *entry, status)
}

// localSiteHost is the host to which a browser is sent that came by the path, or
// nothing: only on this machine, and only for a page.
func (e *Edge) localSiteHost(r *http.Request, s *siteRequest) string {
	at, err := url.Parse(ingress.BaseURL(r))
	if err != nil || s.ownHost || at.Scheme != "http" || at.Path != "" || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return ""
	}
	switch at.Hostname() {
	case "localhost", "127.0.0.1", "::1":
	default:
		return ""
	}
	host := e.siteHosts.Load().Host(s.root)
	if host != "" && at.Port() != "" {
		host += ":" + at.Port()
	}
	return host
}

// siteVersion finds the version of a site that a request is for: the newest one
// for a page, and for what the page loads the one that the page is of. On a
// host a cookie says which that is. A page without an origin of its own has no
// cookies, so its path says it: a browser is redirected to the newest one
// whenever it opens a page.
func (e *Edge) siteVersion(w http.ResponseWriter, r *http.Request, s *siteRequest) (b3.Address, error) {
	if !s.named {
		return b3.Parse(s.root)
	}
	now, err := e.objects.ResolveManifest(r.Context(), s.root)
	if err != nil {
		return now, err
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	if !s.ownHost {
		if mode == "navigate" {
			e.versions.add(s.root, now)
		} else if pinned, known := e.versions.find(s.root, s.version); known {
			return pinned, nil
		}
		return now, nil
	}
	if mode != "" && mode != "navigate" {
		if cookie, err := r.Cookie(versionCookie); err == nil {
			if pinned, known := e.versions.find(s.root, cookie.Value); known {
				return pinned, nil
			}
		}
		return now, nil
	}
	e.versions.add(s.root, now)
	http.SetCookie(w, &http.Cookie{Name: versionCookie, Value: now.String()[len(addressPrefix):], Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return now, nil
}

// versionMark stands between a name and its version in the path of a site. A
// name has no @.
const versionMark = "@" + addressPrefix

// versionCookie is how a browser remembers which version a page is of, so that
// no page mixes two. It grants nothing.
const versionCookie = "micronode_site_version"

// find finds the file that a path means: itself, the index of a directory, a
// page without its extension, or the page for what is not there. A directory
// without the slash at its end is a redirect, so that relative links in its
// page are right.
func (s *siteRequest) find() (entry *client.Entry, status int) {
	at := s.rest
	if at == "" || strings.HasSuffix(at, "/") {
		at += indexPage
	}
	for _, name := range []string{at, at + ".html"} {
		if entry := s.entry(name); entry != nil {
			return entry, http.StatusOK
		}
	}
	inside := s.rest + "/"
	i, _ := slices.BinarySearchFunc(s.folder.Entries, inside, func(entry client.Entry, path string) int { return strings.Compare(entry.Path, path) })
	if !strings.HasSuffix(s.rest, "/") && i < len(s.folder.Entries) && strings.HasPrefix(s.folder.Entries[i].Path, inside) {
		s.redirect = "/" + inside
		return nil, http.StatusFound
	}
	return s.entry(notFoundPage), http.StatusNotFound
}

// entry is the file with a path, or nil.
func (s *siteRequest) entry(path string) *client.Entry {
	i, ok := slices.BinarySearchFunc(s.folder.Entries, path, func(entry client.Entry, path string) int { return strings.Compare(entry.Path, path) })
	if !ok {
		return nil
	}
	return &s.folder.Entries[i]
}

// redirectSite sends a client to another path of the site.
func (e *Edge) redirectSite(w http.ResponseWriter, r *http.Request, s *siteRequest, to string) error {
	target := (&url.URL{Path: to, RawQuery: r.URL.RawQuery}).String()
	if !s.ownHost {
		root := s.root
		if s.version != "" {
			root += versionMark + s.version
		}
		target = ingress.Location(r, ingress.SitePrefix+url.PathEscape(root)+target)
	}
	w.Header().Set("Location", target)
	w.Header().Set("Cache-Control", siteRevalidate)
	w.WriteHeader(http.StatusFound)
	return nil
}

// siteCodings are the codings in which a site may have its files beside them,
// best first.
var siteCodings = []struct{ coding, extension string }{{"br", ".br"}, {"zstd", ".zst"}, {"gzip", ".gz"}}

// serveSiteFile answers with a file, in a coding that the client accepts.
func (e *Edge) serveSiteFile(w http.ResponseWriter, r *http.Request, s *siteRequest, entry client.Entry, status int) error {
	kind, coding, header := mediaType(entry.Path), "", w.Header()
	if kind == octets && entry.Type != "" {
		kind = entry.Type
	}
	for _, one := range siteCodings {
		sibling := s.entry(entry.Path + one.extension)
		if sibling == nil {
			continue
		}
		header.Set("Vary", "Accept-Encoding")
		if coding == "" && accepts(r.Header.Values("Accept-Encoding"), one.coding) {
			entry, coding = *sibling, one.coding
			break
		}
	}
	handle, err := e.openObject(r.Context(), s.fetch, entry.B3)
	if err != nil {
		return e.countRefusal(err)
	}
	defer handle.Close()
	if s.ownHost {
		header["Origin-Agent-Cluster"] = []string{"?1"} // not even pages of a host above it
	} else {
		ingress.MarkSandboxed(header)
	}
	content := store.Content(handle)
	content.Type, content.Encoding = kind, coding
	if s.named {
		content.CacheControl = siteRevalidate
	}
	if status == http.StatusOK {
		return e.serve(w, r, content)
	}
	content.CacheControl = siteRevalidate
	content.Header(header)
	header.Del("Etag")
	header.Del("Accept-Ranges")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	return content.Write(w, 0, content.Size)
}

// siteVersions remembers which versions of sites were shown lately: a few of
// each of a few. What a cookie names counts only if it is among them.
type siteVersions struct {
	mu     sync.Mutex //lockblock:leaf a map of short lists
	byName map[string][]b3.Address
	names  []string // in the order in which they came
}

const (
	maxVersionedSites = 1024
	maxSiteVersions   = 8
)

func (v *siteVersions) add(name string, version b3.Address) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.byName[name]
	if slices.Contains(known, version) {
		return
	}
	if v.byName == nil {
		v.byName = map[string][]b3.Address{}
	}
	if known == nil {
		if v.names = append(v.names, name); len(v.names) > maxVersionedSites {
			delete(v.byName, v.names[0])
			v.names = v.names[1:]
		}
	}
	if len(known) == maxSiteVersions {
		known = known[1:]
	}
	v.byName[name] = append(slices.Clone(known), version)
}

func (v *siteVersions) find(name, text string) (b3.Address, bool) {
	version, err := b3.Parse(addressPrefix + text)
	if err != nil {
		return version, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return version, slices.Contains(v.byName[name], version)
}

// folderCache keeps the manifests of the sites that are asked for: to read one
// for each file would cost more than the file.
type folderCache struct {
	mu      sync.Mutex //lockblock:leaf a map; manifests are read without it
	byRoot  map[b3.Address]client.Manifest
	order   []b3.Address
	entries int
}

const (
	maxFolders       = 64
	maxFolderEntries = 4 * client.MaxEntries
)

// get returns a manifest, reading it if it is not kept.
func (f *folderCache) get(root b3.Address, read func() (client.Manifest, error)) (client.Manifest, error) {
	f.mu.Lock()
	known, ok := f.byRoot[root]
	f.mu.Unlock()
	if ok {
		return known, nil
	}
	found, err := read()
	if err != nil {
		return found, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.byRoot[root]; ok {
		return found, nil
	}
	if f.byRoot == nil {
		f.byRoot = map[b3.Address]client.Manifest{}
	}
	f.byRoot[root], f.order, f.entries = found, append(f.order, root), f.entries+len(found.Entries)
	for len(f.order) > 1 && (len(f.order) > maxFolders || f.entries > maxFolderEntries) {
		f.entries -= len(f.byRoot[f.order[0]].Entries)
		delete(f.byRoot, f.order[0])
		f.order = f.order[1:]
	}
	return found, nil
}

// siteRoute is the route of sites.
func (e *Edge) siteRoute() ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: sitePattern, Handler: e.handleSite, Cheap: true, Public: ingress.PublicSites, Class: ingress.Transfer,
		Docs: ingress.Docs{Summary: "Show a folder as a site", Content: true,
			Description: "The first element of the path is a name (name:docs) or an address (b3:…) of a folder; the rest is a page of it. The hosts of sites lead here too.",
			Params:      []ingress.Param{{Name: "path", In: "path", Type: "string", Required: true, Doc: "The site, and a path in it."}},
			Responses: []ingress.Response{{Status: http.StatusOK, Type: anyMediaType, Doc: "The file."},
				{Status: http.StatusFound, Doc: "Where the page is: a directory with the slash at its end, or the site's own host."}},
			Kinds: []fault.Kind{fault.NotFound, fault.RejectPolicy, fault.IntegrityFail, fault.NotReady, fault.UpstreamFailed}},
	}
}
