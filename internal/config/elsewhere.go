package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"

	"micronode/fault"
)

// OnThisMachine reports whether a host in a URL can be no other machine. What
// goes there needs no encryption.
func OnThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Trust says whom to believe among servers elsewhere and what to show them: PEM
// files, each with the setting that names it.
type Trust struct {
	CA   Named // authorities, instead of the system's
	Cert Named // what we show; with Key, or not at all
	Key  Named
}

// Named is a file and the setting that names it.
type Named struct{ Setting, File string }

// TLS reads the files.
func (t Trust) TLS(op string) (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA.File != "" {
		pem, err := os.ReadFile(t.CA.File)
		if err != nil {
			return nil, unusable(op, t.CA.Setting, err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the file of authorities holds no certificate",
				Next: "Put certificates in PEM form into the file that " + t.CA.Setting + " names."}
		}
	}
	if t.Cert.File != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert.File, t.Key.File)
		if err != nil {
			return nil, unusable(op, t.Cert.Setting+" and "+t.Key.Setting, err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return trust, nil
}

func unusable(op, setting string, err error) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "a file that " + setting + " names cannot be used", Next: "Check " + setting + ".", Err: err}
}
