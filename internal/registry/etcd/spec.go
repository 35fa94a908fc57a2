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

// Defaults of a Spec.
const (
	defaultTimeout = 5 * time.Second
	defaultPort    = "2379"
	defaultPrefix  = "/micronode/registry/"
)

// The settings, as errors name them.
const (
	settingURL      = "registry.storage.url"
	settingUsername = "registry.storage.username"
	settingPassword = "registry.storage.password"
	settingCA       = "registry.storage.ca_file"
	settingCert     = "registry.storage.cert_file"
	settingKey      = "registry.storage.key_file"
	settingTimeout  = "registry.storage.timeout"
)

// Spec configures the connection to a cluster.
type Spec struct {
	// URL names the members and the prefix of our keys:
	// etcd+https://host:port,host:port/prefix. With etcd+http nothing is
	// encrypted, so the members have to be on this machine.
	URL string

	// Username and Password are for a cluster that requires them.
	Username string
	Password string

	// CAFile names a file with certificates of authorities to trust instead of
	// the system's.
	CAFile string

	// CertFile and KeyFile name the client certificate, and its key.
	CertFile string
	KeyFile  string

	// Timeout is how long one call may take, with all its retries; 5 seconds if
	// zero. A caller's deadline that is earlier wins.
	Timeout time.Duration
}

// clusterURL is a parsed URL.
type clusterURL struct {
	secure    bool
	endpoints []string // host:port
	prefix    string   // begins and ends with a slash
}

// parse fills in defaults, and rejects invalid settings.
func (s *Spec) parse() (clusterURL, error) {
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	at, err := parseURL(s.URL)
	switch {
	case err != nil:
		return clusterURL{}, err
	case s.Timeout < 0:
		return clusterURL{}, specError("Leave "+settingTimeout+" out, or write a time above zero.", "a negative time-out")
	case (s.Username == "") != (s.Password == ""):
		return clusterURL{}, specError("Set both "+settingUsername+" and "+settingPassword+", or neither.", "a user name and a password belong together")
	case (s.CertFile == "") != (s.KeyFile == ""):
		return clusterURL{}, specError("Set both "+settingCert+" and "+settingKey+", or neither.", "a certificate and its key belong together")
	case !at.secure && (s.CAFile != "" || s.CertFile != ""):
		return clusterURL{}, specError("Use etcd+https in "+settingURL+", or leave "+settingCA+" and "+settingCert+" out.", "certificates have no effect with etcd+http")
	}
	return at, nil
}

// parseURL reads the URL of a cluster. It names several hosts, which net/url
// does not support.
func parseURL(text string) (clusterURL, error) {
	const good = "Write " + settingURL + ` as "etcd+https://host:port,host:port/prefix".`
	scheme, rest, _ := strings.Cut(text, "://")
	hosts, prefix, _ := strings.Cut(rest, "/")
	at := clusterURL{secure: scheme == "etcd+https", prefix: defaultPrefix}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		at.prefix = "/" + prefix + "/"
	}
	switch {
	case strings.Contains(hosts, "@"):
		return clusterURL{}, specError("Take them out of the URL and set "+settingUsername+" and "+settingPassword+".", "credentials in a URL would be shown and logged")
	case !at.secure && scheme != "etcd+http":
		return clusterURL{}, specError(good, "the scheme is %q", scheme)
	case strings.ContainsAny(rest, "?#% \t\r\n"):
		return clusterURL{}, specError(good, "the URL needs hosts and a prefix, and nothing else")
	case strings.Contains(at.prefix, "//") || strings.Contains(at.prefix, "/./") || strings.Contains(at.prefix, "/../"):
		return clusterURL{}, specError(good, "the prefix %q has an empty or dotted part", prefix)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		endpoint, err := endpointOf(host)
		switch {
		case err != nil:
			return clusterURL{}, specError(good, "%q is not host:port", host)
		case !at.secure && !isLoopback(endpoint):
			return clusterURL{}, specError("Use etcd+https.", "etcd+http is not encrypted, and allowed on this machine only")
		case slices.Contains(at.endpoints, endpoint):
			return clusterURL{}, specError("Name every member once.", "%s is named twice", endpoint)
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

func isLoopback(endpoint string) bool {
	host, _, _ := net.SplitHostPort(endpoint)
	return config.IsLoopbackHost(host)
}

func specError(next, format string, args ...any) error {
	return fault.New(opOpen, fault.Malformed, format, args...).Advise(next)
}

// trust returns which authorities to trust, and which certificate to present.
func (s *Spec) trust() config.TLSFiles {
	return config.TLSFiles{CA: config.FileSetting{Setting: settingCA, File: s.CAFile}, Cert: config.FileSetting{Setting: settingCert, File: s.CertFile}, Key: config.FileSetting{Setting: settingKey, File: s.KeyFile}}
}
