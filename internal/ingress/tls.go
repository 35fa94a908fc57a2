package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"micronode/fault"
	"micronode/internal/flow"
)

// TLSFiles are the files of keys and certificates.
type TLSFiles struct {
	Cert     string
	Key      string
	ClientCA string // with it, clients must show a certificate of one of these authorities
}

// IsSet reports whether there is anything to load.
func (f TLSFiles) IsSet() bool { return f.Cert != "" || f.Key != "" || f.ClientCA != "" }

// suites are those of TLS 1.2 that are offered: forward secret and authenticated
// encryption. The CBC suites that Go still has by default are not among them;
// those of TLS 1.3 cannot be chosen and need not be.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// LoadTLS reads the files and makes a config of them: TLS 1.2 or better, HTTP/2
// and HTTP/1.1, and for TLS 1.2 only AEAD suites with forward secrecy. It has
// no side effects, so a reload can be verified with it before a TLSConfigSource
// stores it.
func LoadTLS(files TLSFiles) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, tlsFileError(files.Cert+" and "+files.Key, "Set http.cert_file and http.key_file to a certificate and its key, in PEM.", err)
	}
	config := BaseTLS()
	config.Certificates = []tls.Certificate{pair}
	if files.ClientCA != "" {
		text, err := os.ReadFile(files.ClientCA)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New("there is no certificate in it")
		}
		if err != nil {
			return nil, tlsFileError(files.ClientCA, "Set http.client_ca to a file with certificates of authorities, in PEM.", err)
		}
		config.ClientCAs, config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// BaseTLS is a config without certificates.
func BaseTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: suites, NextProtos: []string{"h2", "http/1.1"}}
}

func tlsFileError(what, next string, err error) error {
	wrong := &fault.Error{Op: "tls.load", Kind: fault.Malformed, Detail: "cannot use " + what, Next: next, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		wrong.Kind = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		wrong.Kind = fault.Forbidden
	}
	return wrong
}

// TLSConfigSource holds the TLS config in force. A new one is used by the next
// handshake; open connections keep theirs.
type TLSConfigSource struct{ current *flow.Snapshot[*tls.Config] }

// NewTLSConfigSource makes a source with its first config.
func NewTLSConfigSource(inventory *flow.Inventory, service string, first *tls.Config) *TLSConfigSource {
	return &TLSConfigSource{flow.NewSnapshot(inventory, flow.SnapshotSpec{
		Service: service, Name: "tls", From: "config reload", To: "handshakes",
	}, first)}
}

// Store puts a config in force.
func (t *TLSConfigSource) Store(config *tls.Config) { t.current.Store(config) }

// Leaf is the certificate in force; nil if it cannot be parsed.
func (t *TLSConfigSource) Leaf() *x509.Certificate {
	pair := t.current.Load().Certificates
	if len(pair) == 0 {
		return nil
	}
	if pair[0].Leaf != nil {
		return pair[0].Leaf
	}
	leaf, err := x509.ParseCertificate(pair[0].Certificate[0])
	if err != nil {
		return nil
	}
	return leaf
}

// config is what net/http gets: it looks up the one in force at every
// handshake.
func (t *TLSConfigSource) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		CipherSuites:       suites,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current.Load(), nil },
	}
}

// Exposure is what decides whether a listener may be reached from outside.
type Exposure struct {
	Setting string // http.addr or admin.addr, for the error
	Addr    string
	Files   TLSFiles
	ACME    bool     // certificates are obtained, instead of being in files
	Tokens  bool     // capabilities are required; false for a playground without credentials
	Proxies []string // the only ones that may connect without TLS: see ListenOptions.ProxiesOnly
}

// IsPlain reports whether the listener has no TLS and is not on loopback.
func (e Exposure) IsPlain() bool {
	host, _, err := net.SplitHostPort(e.Addr)
	return (err != nil || !isLoopback(host)) && !e.ACME && (e.Files.Cert == "" || e.Files.Key == "")
}

// Validate rejects a listener that is reachable from outside and that would
// trust every client, or that would send in clear text.
func (e Exposure) Validate() error {
	const op = "http.exposure"
	host, _, err := net.SplitHostPort(e.Addr)
	switch {
	case err == nil && isLoopback(host):
		return nil
	case e.IsPlain() && e.trustsEverybody():
		return fault.New(op, fault.RejectPolicy, "%s is %s, which is not loopback, without TLS, and http.trusted_proxies lists every address there is", e.Setting, e.Addr).
			Advise("Listen on 127.0.0.1, or list only the addresses of the proxies, or the network that only they and the node are in.")
	case e.IsPlain() && len(e.Proxies) == 0:
		return fault.New(op, fault.RejectPolicy, "%s is %s, which is not loopback, and there is no TLS", e.Setting, e.Addr).
			Advise("Listen on 127.0.0.1, set http.cert_file and http.key_file, or obtain a certificate with --domain. For reads in a private network, use --lan. Behind a proxy that has TLS, list its address in http.trusted_proxies: only it may then connect to the gateway.")
	case e.Files.ClientCA == "" && !e.Tokens:
		return fault.New(op, fault.RejectPolicy, "%s is %s, which is not loopback, and the listener asks for no credentials", e.Setting, e.Addr).
			Advise("Listen on 127.0.0.1, require client certificates with http.client_ca, or leave out --open so that capabilities are required.")
	}
	return nil
}

// trustsEverybody reports whether a network among the proxies is all addresses.
func (e Exposure) trustsEverybody() bool {
	list, _ := parseProxies(e.Proxies) // validated before
	return slices.ContainsFunc(list, func(one netip.Prefix) bool { return one.Bits() == 0 })
}
