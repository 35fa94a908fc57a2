package etcd

import (
	"net"
	"slices"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/config"
)

const opOpen = "registry.etcd.open"

// What holds where a Spec says nothing.
const (
	defaultTimeout = 5 * time.Second
	defaultPort    = "2379"
	defaultPrefix  = "/micronode/registry/"
)

// The settings, as errors name them.
const (
	setURL      = "registry.storage.url"
	setUsername = "registry.storage.username"
	setPassword = "registry.storage.password"
	setCA       = "registry.storage.ca_file"
	setCert     = "registry.storage.cert_file"
	setKey      = "registry.storage.key_file"
	setTimeout  = "registry.storage.timeout"
)

// Spec says which cluster to use and how.
type Spec struct {
	// URL names the members and what our keys begin with:
	// etcd+https://host:port,host:port/prefix. With etcd+http nothing is
	// encrypted, so the members have to be on this machine.
	URL string

	// Username and Password are for a cluster that asks for them.
	Username string
	Password string

	// CAFile names a file with certificates of authorities to trust instead of
	// the system's.
	CAFile string

	// CertFile and KeyFile name the certificate to show, and its key.
	CertFile string
	KeyFile  string

	// Timeout is how long one call may take, with all that is tried again; 5
	// seconds if zero. A caller's deadline that is earlier wins.
	Timeout time.Duration
}

// location is what a URL says.
type location struct {
	secure    bool
	endpoints []string // host:port
	prefix    string   // begins and ends with a slash
}

// complete fills in what a Spec leaves open, and refuses what cannot be meant.
func (s *Spec) complete() (location, error) {
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	at, err := parse(s.URL)
	switch {
	case err != nil:
		return location{}, err
	case s.Timeout < 0:
		return location{}, wrong("Leave "+setTimeout+" out, or write a time above zero.", "a negative time-out")
	case (s.Username == "") != (s.Password == ""):
		return location{}, wrong("Set both "+setUsername+" and "+setPassword+", or neither.", "a user name and a password belong together")
	case (s.CertFile == "") != (s.KeyFile == ""):
		return location{}, wrong("Set both "+setCert+" and "+setKey+", or neither.", "a certificate and its key belong together")
	case !at.secure && (s.CAFile != "" || s.CertFile != ""):
		return location{}, wrong("Use etcd+https in "+setURL+", or leave "+setCA+" and "+setCert+" out.", "certificates are of no use with etcd+http")
	}
	return at, nil
}

// parse reads the URL of a cluster. It names several hosts, which net/url does
// not know.
func parse(text string) (location, error) {
	const good = "Write " + setURL + ` as "etcd+https://host:port,host:port/prefix".`
	scheme, rest, _ := strings.Cut(text, "://")
	hosts, prefix, _ := strings.Cut(rest, "/")
	at := location{secure: scheme == "etcd+https", prefix: defaultPrefix}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		at.prefix = "/" + prefix + "/"
	}
	switch {
	case strings.Contains(hosts, "@"):
		return location{}, wrong("Take them out of the URL and set "+setUsername+" and "+setPassword+".", "credentials do not belong into a URL, which is shown and logged")
	case !at.secure && scheme != "etcd+http":
		return location{}, wrong(good, "the scheme is %q", scheme)
	case strings.ContainsAny(rest, "?#% \t\r\n"):
		return location{}, wrong(good, "the URL needs hosts and a prefix, and nothing else")
	case strings.Contains(at.prefix, "//") || strings.Contains(at.prefix, "/./") || strings.Contains(at.prefix, "/../"):
		return location{}, wrong(good, "the prefix %q has an empty or dotted part", prefix)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		endpoint, err := endpointOf(host)
		switch {
		case err != nil:
			return location{}, wrong(good, "%q is not host:port", host)
		case !at.secure && !loopback(endpoint):
			return location{}, wrong("Use etcd+https.", "etcd+http sends all in the clear, so it is for this machine only")
		case slices.Contains(at.endpoints, endpoint):
			return location{}, wrong("Name every member once.", "%s is named twice", endpoint)
		}
		at.endpoints = append(at.endpoints, endpoint)
	}
	return at, nil
}

// endpointOf completes a host with etcd's port.
func endpointOf(host string) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port, err = net.SplitHostPort(host + ":" + defaultPort)
	}
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", fault.New(opOpen, fault.Malformed, "no host")
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return "", fault.New(opOpen, fault.Malformed, "no port")
	}
	return net.JoinHostPort(name, port), nil
}

func loopback(endpoint string) bool {
	host, _, _ := net.SplitHostPort(endpoint)
	return config.OnThisMachine(host)
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
