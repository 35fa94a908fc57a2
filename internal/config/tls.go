package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"

	"micronode/fault"
)

// IsLoopbackHost reports whether a host in a URL is certainly this machine.
// Traffic to it needs no encryption.
func IsLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// TLSFiles are the trusted authorities for servers elsewhere and the client
// certificate: PEM files, each with the setting that names it.
type TLSFiles struct {
	CA   FileSetting // authorities, instead of the system's
	Cert FileSetting // the client certificate; with Key, or not at all
	Key  FileSetting
}

// FileSetting is a file and the setting that names it.
type FileSetting struct{ Setting, File string }

// TLS reads the files.
func (t TLSFiles) TLS(op string) (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA.File != "" {
		pem, err := os.ReadFile(t.CA.File)
		if err != nil {
			return nil, badFile(op, t.CA.Setting, err)
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
			return nil, badFile(op, t.Cert.Setting+" and "+t.Key.Setting, err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return trust, nil
}

func badFile(op, setting string, err error) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "a file that " + setting + " names cannot be used", Next: "Check " + setting + ".", Err: err}
}
