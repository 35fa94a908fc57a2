package session

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
)

// alpn is the name of the protocol inside TLS.
const alpn = "ron/oap1"

// identity is who this node is to others: its key, in the certificate that TLS
// wants around it. Nobody looks at anything in it but the key.
type identity struct {
	id          oap.PeerID
	certificate tls.Certificate
	groups      []tls.CurveID
}

// newIdentity makes the one certificate of the process.
func newIdentity(key ed25519.PrivateKey, pq string) (*identity, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, &fault.Error{Op: "overlay.identity", Kind: fault.Malformed, Detail: "the node has no Ed25519 key",
			Next: "Make one with `micronode identity new`, and name it with --identity."}
	}
	public := key.Public().(ed25519.PublicKey)
	id := oap.PeerIDOf(public)
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: id.String()},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, public, key)
	if err != nil {
		return nil, fault.Wrap("overlay.identity", err)
	}
	groups := []tls.CurveID{tls.X25519MLKEM768, tls.X25519}
	if pq == required {
		groups = groups[:1]
	}
	return &identity{id: id, groups: groups, certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// config is what both sides have in common. Every connection proves both keys
// anew, so nothing is resumed. Records are as large as they can be from the
// start: what we send is collected before it is written.
func (i *identity) config() *tls.Config {
	return &tls.Config{
		Certificates:                []tls.Certificate{i.certificate},
		NextProtos:                  []string{alpn},
		MinVersion:                  tls.VersionTLS13,
		CurvePreferences:            i.groups,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

// listening is TLS for whoever calls us. That the caller does not offer our
// protocol is noted on the wire, because TLS tells nobody but the caller.
func (i *identity) listening() *tls.Config {
	c := i.config()
	c.ClientAuth = tls.RequireAnyClientCert
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if w, ours := hello.Conn.(*wire); ours {
			w.foreign = !slices.Contains(hello.SupportedProtos, alpn)
		}
		return nil, nil
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := i.verify(state)
		return err
	}
	return c
}

// calling is TLS for a call of one peer. Nobody else will do, and nothing was
// said before that is known.
func (i *identity) calling(peer oap.PeerID) *tls.Config {
	c := i.config()
	c.InsecureSkipVerify = true // names, dates and issuers say nothing here: the key is the name, and it is checked below
	c.VerifyConnection = func(state tls.ConnectionState) error {
		found, err := i.verify(state)
		if err == nil && found != peer {
			return wrongPeer(peer, found)
		}
		return err
	}
	return c
}

// verify finds out who is at the other end. TLS has checked that they own the
// key that they show.
func (i *identity) verify(state tls.ConnectionState) (oap.PeerID, error) {
	if state.NegotiatedProtocol != alpn {
		return oap.PeerID{}, wrongProtocol(state.NegotiatedProtocol)
	}
	id, err := peerOf(state)
	if err == nil && id == i.id {
		return id, ourselves()
	}
	return id, err
}

// peerOf is the ID of the key in the first certificate.
func peerOf(state tls.ConnectionState) (oap.PeerID, error) {
	if len(state.PeerCertificates) == 0 {
		return oap.PeerID{}, wrongKey("none")
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return oap.PeerID{}, wrongKey(state.PeerCertificates[0].PublicKeyAlgorithm.String())
	}
	return oap.PeerIDOf(public), nil
}
