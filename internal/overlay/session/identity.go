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

// identity is the key of this node, in the certificate that TLS requires. Nothing
// in it but the key is checked.
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
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: id.String()},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, fault.Wrap("overlay.identity", err)
	}
	groups := []tls.CurveID{tls.X25519MLKEM768, tls.X25519}
	if pq == pqRequired {
		groups = groups[:1]
	}
	return &identity{id: id, groups: groups, certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// config is the part that dialer and listener share. Every connection proves both
// keys again, so nothing is resumed. Records have the full size from the start:
// what we send is collected before it is written.
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

// serverConfig is the TLS config of the listener. If the dialer does not offer our
// protocol, that is recorded in the batchConn, because TLS reports it to the
// dialer only.
func (i *identity) serverConfig() *tls.Config {
	c := i.config()
	c.ClientAuth = tls.RequireAnyClientCert
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if raw, ours := hello.Conn.(*batchConn); ours {
			raw.wrongALPN = !slices.Contains(hello.SupportedProtos, alpn)
		}
		return nil, nil
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := i.verify(state)
		return err
	}
	return c
}

// clientConfig is the TLS config for dialling one peer. Any other peer is refused
// before anything is sent to it.
func (i *identity) clientConfig(peer oap.PeerID) *tls.Config {
	c := i.config()
	c.InsecureSkipVerify = true // names, dates and issuers mean nothing here: the key is the name, and it is checked below
	c.VerifyConnection = func(state tls.ConnectionState) error {
		found, err := i.verify(state)
		if err == nil && found != peer {
			return wrongPeer(peer, found)
		}
		return err
	}
	return c
}

// verify returns the ID of the peer. TLS has checked that the peer owns the key
// in its certificate.
func (i *identity) verify(state tls.ConnectionState) (oap.PeerID, error) {
	if state.NegotiatedProtocol != alpn {
		return oap.PeerID{}, protocolMismatch(state.NegotiatedProtocol)
	}
	id, err := peerOf(state)
	if err == nil && id == i.id {
		return id, selfError()
	}
	return id, err
}

// peerOf returns the ID of the key in the first certificate.
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
