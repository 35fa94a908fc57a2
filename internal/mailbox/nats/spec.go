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

// What holds where a Spec says nothing.
const (
	defaultName    = "micronode"
	defaultTimeout = 5 * time.Second
)

// mostReplicas is how many copies JetStream keeps at most.
const mostReplicas = 5

// The settings, as errors name them.
const (
	setURL      = "mailbox.url"
	setToken    = "mailbox.token"
	setCreds    = "mailbox.creds_file"
	setCA       = "mailbox.ca_file"
	setCert     = "mailbox.cert_file"
	setKey      = "mailbox.key_file"
	setReplicas = "mailbox.replicas"
)

// Spec says which servers to use, and how.
type Spec struct {
	// URL names the servers of one cluster: nats+tls://host:port, and more after
	// commas. With nats nothing is encrypted, so they have to be on this machine.
	URL string

	// Name is what our streams and subjects begin with; micronode if empty. Nodes
	// that say the same share one mailbox.
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

	// Timeout is how long one call may take, with all that is tried again; 5
	// seconds if zero. A caller's deadline that is earlier wins.
	Timeout time.Duration

	Limits mailbox.Limits

	dialer nats.CustomDialer // of tests; nil for the network
}

// complete fills in what a Spec leaves open, and refuses what cannot be meant.
// It returns the servers as the client library wants them.
func (s *Spec) complete() (servers []string, secure bool, err error) {
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
	servers, secure, err = parse(s.URL)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	switch {
	case err != nil:
		return nil, false, err
	case s.Timeout < 0:
		return nil, false, wrong("Choose a time above zero.", "a negative time-out")
	case len(s.Name) > 32 || strings.Trim(s.Name, letters) != "":
		return nil, false, wrong("Use 32 letters, digits, - and _ at most.", "%q cannot be the name of a stream", s.Name)
	case s.Replicas < 0 || s.Replicas > mostReplicas:
		return nil, false, wrong("Set "+setReplicas+" to 1, 3 or 5.", "%d replicas", s.Replicas)
	case (s.CertFile == "") != (s.KeyFile == ""):
		return nil, false, wrong("Set both "+setCert+" and "+setKey+", or neither.", "a certificate and its key belong together")
	case s.Token != "" && s.CredsFile != "":
		return nil, false, wrong("Set "+setToken+" or "+setCreds+", and not both.", "two ways to say who we are")
	case !secure && (s.CAFile != "" || s.CertFile != ""):
		return nil, false, wrong("Use nats+tls in "+setURL+", or leave "+setCA+" and "+setCert+" out.", "certificates are of no use with nats://")
	}
	return servers, secure, nil
}

// parse reads the URL. Nothing of it is repeated in an error but its hosts: it
// may hold a password.
func parse(text string) (servers []string, secure bool, err error) {
	const good = "Write " + setURL + ` as "nats+tls://host:port", with more servers after commas.`
	for one := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return nil, false, wrong(good, "it cannot be read")
		}
		tls := u.Scheme == "nats+tls"
		switch {
		case u.User != nil:
			return nil, false, wrong("Take it out of the URL and set "+setToken+".", "credentials do not belong into a URL, which is shown and logged")
		case !tls && u.Scheme != "nats":
			return nil, false, wrong(good, "the scheme is %q", u.Scheme)
		case u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			return nil, false, wrong(good, "it does not name a server, and nothing else")
		case !tls && !config.OnThisMachine(u.Hostname()):
			return nil, false, wrong("Use nats+tls.", "nats:// sends all in the clear, so it is for this machine only")
		case len(servers) > 0 && tls != secure:
			return nil, false, wrong(good, "some servers are to be reached with TLS, and some without")
		}
		secure = tls
		server := "nats://" + u.Host
		if tls {
			server = "tls://" + u.Host
		}
		if slices.Contains(servers, server) {
			return nil, false, wrong("Name every server once.", "%s is named twice", u.Host)
		}
		servers = append(servers, server)
	}
	return servers, secure, nil
}

func wrong(next, format string, args ...any) error {
	err := fault.New(opOpen, fault.Malformed, format, args...)
	err.Next = next
	return err
}

// trust is whom to believe, and what to show.
func (s *Spec) trust() config.Trust {
	return config.Trust{CA: config.Named{Setting: setCA, File: s.CAFile}, Cert: config.Named{Setting: setCert, File: s.CertFile}, Key: config.Named{Setting: setKey, File: s.KeyFile}}
}
