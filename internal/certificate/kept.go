package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"time"

	"micronode/fault"
)

// prefix keeps the files of one authority apart from those of another: of a
// staging directory, for example.
func (s *Source) prefix() string {
	at, err := url.Parse(s.spec.Directory)
	if err != nil {
		return ""
	}
	return at.Hostname() + "_"
}

// loadCertificate reads the certificate of a name that was kept. One that has
// expired, or is for another name, counts as not found.
func (s *Source) loadCertificate(name string) (*tls.Certificate, error) {
	if s.spec.Load == nil {
		return nil, fault.New(opKept, fault.NotFound, "nothing is kept")
	}
	data, err := s.spec.Load(s.prefix() + name + ".pem")
	if err != nil {
		return nil, err
	}
	kept, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, &fault.Error{Op: opKept, Kind: fault.Malformed, Detail: "the certificate of " + name + " that was kept is damaged", Err: err,
			Next: "Remove its file from the folder certificates; the node obtains another."}
	}
	if kept.Leaf.VerifyHostname(name) != nil || !time.Now().Before(kept.Leaf.NotAfter) {
		return nil, fault.New(opKept, fault.NotFound, "the certificate of %s that was kept is of no use", name)
	}
	return &kept, nil
}

// saveCertificate keeps a certificate with its chain and its key in one file, so
// that they always belong together.
func (s *Source) saveCertificate(name string, c *tls.Certificate) error {
	if s.spec.Save == nil {
		return nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return fault.WrapKind(opKept, fault.Internal, err)
	}
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: key}) // a buffer takes everything
	for _, one := range c.Certificate {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: one})
	}
	return fault.Wrap(opKept, s.spec.Save(s.prefix()+name+".pem", out.Bytes()))
}

// accountKey loads the key of the account at the authority, or makes one.
func (s *Source) accountKey() (crypto.Signer, error) {
	name := s.prefix() + "account.pem"
	if s.spec.Load != nil {
		data, err := s.spec.Load(name)
		if err == nil {
			return parseAccountKey(data)
		}
		if fault.KindOf(err) != fault.NotFound {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.WrapKind(opKept, fault.Internal, err)
	}
	if s.spec.Save == nil {
		return key, nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fault.WrapKind(opKept, fault.Internal, err)
	}
	return key, fault.Wrap(opKept, s.spec.Save(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

func parseAccountKey(data []byte) (crypto.Signer, error) {
	damaged := &fault.Error{Op: opKept, Kind: fault.Malformed, Detail: "the key of the account at the authority is damaged",
		Next: "Remove the file that ends in account.pem from the folder certificates; the node makes another account."}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, damaged
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		damaged.Err = err
		return nil, damaged
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, damaged
	}
	return signer, nil
}
