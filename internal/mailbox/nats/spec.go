package nats

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/mailbox"
)

const opOpen = "mailbox.nats.open"

// The defaults of a Spec.
const (
	defaultName    = "micronode"
	defaultTimeout = 5 * time.Second
)

// maxReplicas is how many copies JetStream keeps at most.
const maxReplicas = 5

// The settings, as errors name them.
const (
	settingURL      = "mailbox.url"
	settingToken    = "mailbox.token"
	settingCreds    = "mailbox.creds_file"
	settingCA       = "mailbox.ca_file"
	settingCert     = "mailbox.cert_file"
	settingKey      = "mailbox.key_file"
	settingReplicas = "mailbox.replicas"
)

// Spec says which servers to use, and how.
type Spec struct {
	// URL names the servers of one cluster: nats+tls://host:port, and more after
	// commas. With nats nothing is encrypted, so they have to be on this machine.
	URL string

	// Name is the prefix of the streams and subjects; micronode if empty. Nodes
	// with the same name share one mailbox.
	Name string

	// Token is for servers that ask for one, and CredsFile names a file with a
	// JWT and its key.
	Token     string
	CredsFile string

	// CAFile names a file with certificates of authorities to trust instead of
	// the system's.
	CAFile string

	// CertFile and KeyFile name the certificate to show, and its key.
	CertFile string
	KeyFile  string

	// Replicas is on how many servers everything is kept; one if zero. What is
	// kept on more already stays so.
	Replicas int

	// Timeout is how long one call may take, with all retries; 5 seconds if
	// zero. A caller's deadline that is earlier wins.
	Timeout time.Duration

	Limits mailbox.Limits

	dialer nats.CustomDialer // of tests; nil for the network
}

// normalize fills in the defaults, and refuses settings out of range. It
// returns the servers as the client library wants them.
func (s *Spec) normalize() (servers []string, secure bool, err error) {
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.Name == "" {
		s.Name = defaultName
	}
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.dialer == nil {
		s.dialer = &net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive}
	}
	servers, secure, err = parseServers(s.URL)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	switch {
	case err != nil:
		return nil, false, err
	case s.Timeout < 0:
		return nil, false, malformed("Choose a time above zero.", "a negative time-out")
	case len(s.Name) > 32 || strings.Trim(s.Name, letters) != "":
		return nil, false, malformed("Use 32 letters, digits, - and _ at most.", "%q cannot be the name of a stream", s.Name)
	case s.Replicas < 0 || s.Replicas > maxReplicas:
		return nil, false, malformed("Set "+settingReplicas+" to 1, 3 or 5.", "%d replicas", s.Replicas)
	case (s.CertFile == "") != (s.KeyFile == ""):
		return nil, false, malformed("Set both "+settingCert+" and "+settingKey+", or neither.", "a certificate and its key belong together")
	case s.Token != "" && s.CredsFile != "":
		return nil, false, malformed("Set "+settingToken+" or "+settingCreds+", and not both.", "there are two kinds of credentials")
	case !secure && (s.CAFile != "" || s.CertFile != ""):
		return nil, false, malformed("Use nats+tls in "+settingURL+", or leave "+settingCA+" and "+settingCert+" out.", "certificates have no effect with nats://")
	}
	return servers, secure, nil
}

// parseServers parses the URL. Errors repeat nothing of it but its hosts: it
// may hold a password.
func parseServers(text string) (servers []string, secure bool, err error) {
	const good = "Write " + settingURL + ` as "nats+tls://host:port", with more servers after commas.`
	for one := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return nil, false, malformed(good, "it cannot be read")
		}
		tls := u.Scheme == "nats+tls"
		switch {
		case u.User != nil:
			return nil, false, malformed("Take it out of the URL and set "+settingToken+".", "credentials in a URL would be shown and logged")
		case !tls && u.Scheme != "nats":
			return nil, false, malformed(good, "the scheme is %q", u.Scheme)
		case u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			return nil, false, malformed(good, "it is not the address of a server")
		case !tls && !config.IsLoopbackHost(u.Hostname()):
			return nil, false, malformed("Use nats+tls.", "nats:// is not encrypted, and allowed on this machine only")
		case len(servers) > 0 && tls != secure:
			return nil, false, malformed(good, "some servers use TLS, and some do not")
		}
		secure = tls
		server := "nats://" + u.Host
		if tls {
			server = "tls://" + u.Host
		}
		if slices.Contains(servers, server) {
			return nil, false, malformed("Name every server once.", "%s is named twice", u.Host)
		}
		servers = append(servers, server)
	}
	return servers, secure, nil
}

func malformed(next, format string, args ...any) error {
	return fault.New(opOpen, fault.Malformed, format, args...).Advise(next)
}

// trust returns the authorities to trust, and the certificate to show.
func (s *Spec) trust() config.TLSFiles {
	return config.TLSFiles{CA: config.FileSetting{Setting: settingCA, File: s.CAFile}, Cert: config.FileSetting{Setting: settingCert, File: s.CertFile}, Key: config.FileSetting{Setting: settingKey, File: s.KeyFile}}
}
