package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"

	"micronode/fault"
	"micronode/internal/flow"
)

// Files is where TLS finds its keys.
type Files struct {
	Cert     string
	Key      string
	ClientCA string // with it, clients must show a certificate of one of these authorities
}

// Set reports whether there is anything to load.
func (f Files) Set() bool { return f.Cert != "" || f.Key != "" || f.ClientCA != "" }

// LoadTLS reads the files and makes a config of them: TLS 1.2 or better, HTTP/2
// and HTTP/1.1. It changes nothing, so a reload can be verified with it before
// a Keyring is told.
func LoadTLS(files Files) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, badKeys(files.Cert+" and "+files.Key, "Set http.cert_file and http.key_file to a certificate and its key, in PEM.", err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if files.ClientCA != "" {
		text, err := os.ReadFile(files.ClientCA)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New("there is no certificate in it")
		}
		if err != nil {
			return nil, badKeys(files.ClientCA, "Set http.client_ca to a file with certificates of authorities, in PEM.", err)
		}
		config.ClientCAs, config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return config, nil
}

func badKeys(what, next string, err error) error {
	wrong := &fault.Error{Op: "tls.load", Kind: fault.Malformed, Detail: "cannot use " + what, Next: next, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		wrong.Kind = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		wrong.Kind = fault.Forbidden
	}
	return wrong
}

// Keyring holds the TLS config in force. A new one is used by the next
// handshake; connections that are open keep what they have.
type Keyring struct{ current *flow.Snapshot[*tls.Config] }

// NewKeyring makes a keyring with its first config.
func NewKeyring(inventory *flow.Inventory, service string, first *tls.Config) *Keyring {
	return &Keyring{flow.NewSnapshot(inventory, flow.SnapshotSpec{
		Service: service, Name: "tls", From: "config reload", To: "handshakes",
	}, first)}
}

// Store puts a config in force.
func (k *Keyring) Store(config *tls.Config) { k.current.Store(config) }

// config is what net/http gets: it asks for the one in force at every
// handshake.
func (k *Keyring) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.current.Load(), nil },
	}
}

// Exposure is what decides whether a listener may be reached from outside.
type Exposure struct {
	Setting string // http.addr or admin.addr, for the error
	Addr    string
	Files   Files
	Tokens  bool // capabilities are demanded; false for a playground that asks for nothing
}

// Validate refuses a listener that strangers could reach and that would take
// them for friends, or that would let others read along.
func (e Exposure) Validate() error {
	const op = "http.exposure"
	host, _, err := net.SplitHostPort(e.Addr)
	switch {
	case err == nil && isLoopback(host):
		return nil
	case e.Files.Cert == "" || e.Files.Key == "":
		wrong := fault.New(op, fault.RejectPolicy, "%s is %s, which others can reach, and there is no TLS", e.Setting, e.Addr)
		wrong.Next = "Listen on 127.0.0.1, or set http.cert_file and http.key_file."
		return wrong
	case e.Files.ClientCA == "" && !e.Tokens:
		wrong := fault.New(op, fault.RejectPolicy, "%s is %s, which others can reach, and nobody is asked who they are", e.Setting, e.Addr)
		wrong.Next = "Listen on 127.0.0.1, demand client certificates with http.client_ca, or leave --open out so that capabilities are asked for."
		return wrong
	}
	return nil
}
