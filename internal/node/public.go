package node

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/certificate"
	"micronode/internal/config"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// certificatesFolder is where the certificates of --domain are kept.
const certificatesFolder = "certificates"

// checkDomains rejects certificates that could not be kept: each start would
// ask the authority for another one, which allows only a few a week.
func (n *Node) checkDomains(c Config) error {
	if len(c.HTTP.ACME.Domains) == 0 || n.options.Persist != "" || !c.HTTP.ACME.IsProduction() {
		return nil
	}
	return &fault.Error{Op: "node.domain", Kind: fault.RejectPolicy, Detail: "a node in RAM cannot keep its certificates, and the authority gives a name only a few a week",
		Next: "Name a folder with --persist DIR, or try it out with --domain-staging."}
}

// ownHosts are the names under which the gateway may be asked on loopback,
// besides its address: of the settings, of its certificates, and of its URL.
func ownHosts(c Config) []string {
	hosts := slices.Concat(c.HTTP.Hosts, c.HTTP.ACME.Domains)
	if at, err := url.Parse(c.HTTP.PublicURL); err == nil && at.Hostname() != "" {
		hosts = append(hosts, at.Hostname())
	}
	return hosts
}

// setPublicDefaults sets what --domain implies where nothing else is set.
func setPublicDefaults(loaded *config.Loaded[Config]) {
	if c := &loaded.Value; len(c.HTTP.ACME.Domains) > 0 && loaded.Origin("http.addr").Layer == config.LayerDefault {
		c.HTTP.Addr = ":443"
	}
}

// openCertificates makes the source of certificates, and TLS from it.
func (n *Node) openCertificates(c Config) error {
	spec := certificate.Spec{Names: c.HTTP.ACME.Domains, Directory: c.HTTP.ACME.Directory, Email: c.HTTP.ACME.Email, PlainHTTP: c.HTTP.ACME.PlainAddr != "", OnChange: n.onCertificates}
	if file := c.HTTP.ACME.CAFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return &fault.Error{Op: "node.domain", Kind: fault.Malformed, Detail: "cannot read http.acme.ca_file", Err: err}
		}
		if spec.Roots = x509.NewCertPool(); !spec.Roots.AppendCertsFromPEM(text) {
			return &fault.Error{Op: "node.domain", Kind: fault.Malformed, Detail: "there is no certificate in http.acme.ca_file"}
		}
	}
	if n.folder != nil {
		if err := os.MkdirAll(n.folder.join(certificatesFolder), 0o700); err != nil {
			return folderError(n.folder.Path(), err)
		}
		spec.Load = func(name string) ([]byte, error) {
			data, err := os.ReadFile(n.folder.join(certificatesFolder, name))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fault.New("node.domain", fault.NotFound, "%s is not kept", name)
			}
			return data, fault.WrapKind("node.domain", fault.Internal, err)
		}
		spec.Save = func(name string, data []byte) error { return n.folder.write(certificatesFolder+"/"+name, data) }
	}
	var err error
	if n.certificates, err = certificate.New(spec); err != nil {
		return err
	}
	n.certificateState = n.readiness.Dependency("gateway", "certificate", observe.ForReads)
	n.onCertificates(n.certificates.States())
	n.tlsSource = ingress.NewTLSConfigSource(n.inventory, service, n.certificates.TLS(ingress.BaseTLS()))
	return nil
}

// onCertificates shows in status, readiness and the log how the certificates
// fare. Without one the node is degraded: what is there is served meanwhile.
// The log has a line for each that changed.
func (n *Node) onCertificates(states []certificate.State) {
	before := map[string]client.Certificate{}
	if list := n.certificateList.Load(); list != nil {
		for _, one := range *list {
			before[one.Name] = one
		}
	}
	var list []client.Certificate
	var failed []string
	for _, one := range states {
		shown := client.Certificate{Name: one.Name, Issuer: one.Issuer}
		if !one.Expires.IsZero() {
			shown.Expires = one.Expires.UTC().Format("2006-01-02T15:04:05Z")
		}
		if one.Err != nil {
			shown.Reason, shown.Next = fault.DetailOf(one.Err), fault.NextOf(one.Err)
			failed = append(failed, shown.Reason)
		}
		switch was := before[one.Name]; {
		case one.Err != nil && shown.Reason != was.Reason && !one.Next.IsZero():
			n.logAsync(slog.LevelWarn, "certificate", "name", one.Name, "err", one.Err, "next_attempt", one.Next)
		case one.Err == nil && shown.Expires != was.Expires:
			n.logAsync(slog.LevelInfo, "certificate", "name", one.Name, "issuer", shown.Issuer, "expires", shown.Expires)
		}
		list = append(list, shown)
	}
	n.certificateList.Store(&list)
	if len(failed) == 0 {
		n.certificateState.Up()
		return
	}
	i := slices.IndexFunc(list, func(one client.Certificate) bool { return one.Reason != "" })
	n.certificateState.Degraded(strings.Join(failed, "; "), list[i].Next)
}

// openPlain opens the listener without TLS of --domain. It shows proofs to the
// authority and sends everybody else to HTTPS.
func (n *Node) openPlain(ctx context.Context, c Config) error {
	if n.certificates == nil || c.HTTP.ACME.PlainAddr == "" {
		return nil
	}
	table, err := ingress.NewTable(n.plainRoutes(c)...)
	if err != nil {
		return err
	}
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "plain", Table: table, Times: c.HTTP, Limits: c.Limits, Authorise: n.authorise, Inventory: n.inventory, Metrics: n.metrics, Logger: n.log, Refusals: &n.refusals,
	})
	if err != nil {
		return err
	}
	n.plain, err = server.Listen(ctx, ingress.ListenOptions{Name: "plain", Addr: c.HTTP.ACME.PlainAddr, Hosts: c.HTTP.ACME.Domains})
	return err
}

// plainRoutes are the routes of that listener.
func (n *Node) plainRoutes(c Config) []ingress.Route {
	proof := func(w http.ResponseWriter, r *http.Request) error {
		text, ok := n.certificates.Token(r.PathValue("token"))
		if !ok {
			return fault.New("node.domain", fault.NotFound, "no proof with this token is asked for")
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, err := w.Write([]byte(text))
		return err
	}
	redirect := func(w http.ResponseWriter, r *http.Request) error {
		host := hostOf(r.Host)
		if !slices.Contains(c.HTTP.ACME.Domains, host) {
			return fault.New("node.domain", fault.NotFound, "this node does not serve that host").Advise("Ask for one of its names.")
		}
		w.Header().Set("Location", domainURL(host, n.http)+r.URL.RequestURI())
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
	get := func(pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: "gateway", Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler, Class: ingress.Control, Open: true, Cheap: true, Docs: ingress.Docs{Summary: summary}}
	}
	return []ingress.Route{
		get("/.well-known/acme-challenge/{token}", "Prove a name to the authority of its certificate", proof),
		get("/{path...}", "Continue with HTTPS", redirect),
	}
}

// hostOf is the name in a Host value, in lower case.
func hostOf(hostport string) string {
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = name
	}
	return strings.ToLower(strings.TrimSuffix(hostport, "."))
}

// domainURL is the URL of a name of this node.
func domainURL(name string, on *ingress.Listener) string {
	if _, port, err := net.SplitHostPort(on.Addr().String()); err == nil && port != "443" {
		name = net.JoinHostPort(name, port)
	}
	return "https://" + name
}

// addPublic adds the services of what is in front of the public.
func (n *Node) addPublic(add func(stage, name string, serve, drain func(context.Context) error) error) error {
	var all []error
	if n.certificates != nil {
		all = append(all, add(stageIntake, "certificates", n.certificates.Serve, nil))
	}
	if n.plain != nil {
		all = append(all, add(stageIntake, "plain", n.plain.Serve, n.plain.Drain))
	}
	for i, one := range n.lan {
		all = append(all, add(stageIntake, "lan "+strconv.Itoa(i+1), one.Serve, one.Drain))
	}
	return errors.Join(all...)
}

// publicURLs are the URLs under which others see the gateway, best first.
func (n *Node) publicURLs() (domains, lan []string) {
	if base := strings.TrimRight(n.config.Current().Value.HTTP.PublicURL, "/"); base != "" {
		domains = append(domains, base)
	}
	if n.certificates != nil {
		for _, one := range n.certificates.Names() {
			domains = append(domains, domainURL(one, n.http))
		}
	}
	for _, one := range n.lan {
		lan = append(lan, "http://"+one.Addr().String())
	}
	return domains, lan
}
