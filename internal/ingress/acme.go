package ingress

import (
	"net"
	"net/url"
	"strings"

	"micronode/internal/config"
)

// The directories of Let's Encrypt. The certificates of the second are not
// trusted by browsers, and its rate limits are wide: it is for trying out.
const (
	acmeProduction = "https://acme-v02.api.letsencrypt.org/directory"
	ACMEStaging    = "https://acme-staging-v02.api.letsencrypt.org/directory"
)

// ACME is the section [http.acme].
type ACME struct {
	Domains   []string `toml:"domains" doc:"Names of this node for which certificates are obtained by ACME, kept in the folder of --persist and renewed. The gateway then listens on port 443 with TLS, unless http.addr is set. Using it accepts the terms of the authority." restart:"true"`
	Directory string   `toml:"directory" doc:"The ACME directory of the authority." restart:"true"`
	Email     string   `toml:"email" doc:"Where the authority writes to about these certificates. Empty: nowhere." restart:"true"`
	CAFile    string   `toml:"ca_file" doc:"PEM file with the authorities that the directory's own certificate is verified with. Empty: those of the system." restart:"true"`
	PlainAddr string   `toml:"plain_addr" doc:"The listen address without TLS, which proves the names to the authority (HTTP-01) and redirects everything else to HTTPS. Empty: none." restart:"true"`
}

// DefaultACME is the section's built-in default.
func DefaultACME() ACME {
	return ACME{Domains: []string{}, Directory: acmeProduction, PlainAddr: ":80"}
}

// Validate checks the section by itself.
func (c ACME) Validate() error {
	for _, name := range c.Domains {
		if err := checkDomain(name); err != nil {
			return err
		}
	}
	if at, err := url.Parse(c.Directory); err != nil || at.Scheme != "https" || at.Host == "" {
		return config.Invalid("directory", "Write the URL of an ACME directory, like "+acmeProduction+".", "%q is not an HTTPS URL", c.Directory)
	}
	if c.Email != "" && (!strings.Contains(c.Email, "@") || strings.ContainsAny(c.Email, " ,:")) {
		return config.Invalid("email", "Write one address, or leave it empty.", "%q is not an address", c.Email)
	}
	if _, _, err := net.SplitHostPort(c.PlainAddr); c.PlainAddr != "" && err != nil {
		return config.Invalid("plain_addr", "Write host:port, like :80, or leave it empty.", "%q is not host:port", c.PlainAddr)
	}
	return nil
}

// IsProduction reports whether the authority is one whose certificates browsers
// trust, and which allows only a few a week for a name.
func (c ACME) IsProduction() bool { return c.Directory == acmeProduction }

// checkDomain returns what is wrong with a name for which a certificate is to
// be obtained.
func checkDomain(name string) error {
	const next = "Write the name that leads to this node in DNS, like maps.example.org."
	switch {
	case strings.HasPrefix(name, "*."):
		return config.Invalid("domains", "Obtain it with a client that can change your DNS, and set http.cert_file and http.key_file.", "%q is a wildcard, which only DNS can prove", name)
	case net.ParseIP(name) != nil || !strings.Contains(name, ".") || len(name) > 253:
		return config.Invalid("domains", next, "%q is not a name in DNS", name)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, func(r rune) bool {
			return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-')
		}) {
			return config.Invalid("domains", next+" In lower case, and an internationalised name as xn--….", "%q is not a name in DNS", name)
		}
	}
	return nil
}
