package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/acme"

	"micronode/fault"
)

const (
	opObtain = "certificate.obtain"
	opKept   = "certificate.kept"
)

// authority is the other side of the exchange. It is used by one attempt at a
// time.
type authority struct {
	spec   Spec
	source *Source
	client *acme.Client // nil before the first attempt has registered the account
}

// obtain proves a name and has a certificate issued: an order, its proofs, and
// the certificate of a new key.
func (a *authority) obtain(ctx context.Context, name string, kind challengeKind) (*tls.Certificate, error) {
	client, err := a.account(ctx)
	if err != nil {
		return nil, explain(ctx, name, err)
	}
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(name))
	if err != nil {
		return nil, explain(ctx, name, err)
	}
	for _, at := range order.AuthzURLs {
		if err := a.prove(ctx, client, name, at, kind); err != nil {
			return nil, explain(ctx, name, err)
		}
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		return nil, explain(ctx, name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.WrapKind(opObtain, fault.Internal, err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{name}}, key)
	if err != nil {
		return nil, fault.WrapKind(opObtain, fault.Internal, err)
	}
	chain, _, err := client.CreateCertFromOrder(ctx, order, request, true)
	if err != nil {
		return nil, explain(ctx, name, err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err == nil {
		err = leaf.VerifyHostname(name)
	}
	if public, ok := publicKeyOf(leaf); err == nil && (!ok || !public.Equal(key.Public())) {
		err = errors.New("it is for another key")
	}
	if err != nil {
		return nil, &fault.Error{Op: opObtain, Kind: fault.IntegrityFail, Detail: "the authority has sent a certificate that is not the one for " + name, Err: err}
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

func publicKeyOf(leaf *x509.Certificate) (*ecdsa.PublicKey, bool) {
	if leaf == nil {
		return nil, false
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	return key, ok
}

// account is a client whose account the authority knows.
func (a *authority) account(ctx context.Context) (*acme.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	key, err := a.source.accountKey()
	if err != nil {
		return nil, err
	}
	client := &acme.Client{Key: key, DirectoryURL: a.spec.Directory, UserAgent: "micronode", HTTPClient: &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: a.spec.Roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 5 * time.Second,
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, // a few requests in two months
		},
	}}
	var contact []string
	if a.spec.Email != "" {
		contact = []string{"mailto:" + a.spec.Email}
	}
	if _, err := client.Register(ctx, &acme.Account{Contact: contact}, acme.AcceptTOS); err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		return nil, err
	}
	a.client = client
	return client, nil
}

// prove answers one authorisation of an order.
func (a *authority) prove(ctx context.Context, client *acme.Client, name, at string, kind challengeKind) error {
	authorisation, err := client.GetAuthorization(ctx, at)
	if err != nil || authorisation.Status == acme.StatusValid {
		return err // an earlier order has proved it
	}
	i := slices.IndexFunc(authorisation.Challenges, func(one *acme.Challenge) bool { return one.Type == string(kind) })
	if i < 0 {
		return fault.New(opObtain, fault.RejectPolicy, "the authority does not accept a proof of %s by %s", name, kind)
	}
	challenge := authorisation.Challenges[i]
	withdraw, err := a.present(client, name, kind, challenge.Token)
	if err != nil {
		return err
	}
	defer withdraw()
	if _, err := client.Accept(ctx, challenge); err != nil {
		return err
	}
	_, err = client.WaitAuthorization(ctx, authorisation.URI)
	return err
}

// present puts a proof where the authority looks for it, until withdraw.
func (a *authority) present(client *acme.Client, name string, kind challengeKind, token string) (withdraw func(), err error) {
	s := a.source
	if kind == byTLS {
		proof, err := client.TLSALPN01ChallengeCert(token, name)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.proofs[name] = &proof
		return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.proofs, name) }, nil
	}
	proof, err := client.HTTP01ChallengeResponse(token)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = proof
	return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.tokens, token) }, nil
}

// explain says why the authority gave no certificate, and what to do.
func explain(ctx context.Context, name string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return fault.Wrap(opObtain, err)
	}
	proof := "See that " + name + " leads to this node in DNS, and that ports 80 and 443 can be reached from outside. The node tries again by itself."
	if refused, ok := errors.AsType[*acme.AuthorizationError](err); ok {
		var causes []string
		for _, one := range refused.Errors {
			if problem, ok := errors.AsType[*acme.Error](one); ok {
				causes = append(causes, problem.Detail)
			}
		}
		return &fault.Error{Op: opObtain, Kind: fault.RejectPolicy, Detail: "the authority could not verify " + name + ": " + strings.Join(causes, "; "), Next: proof}
	}
	if problem, ok := errors.AsType[*acme.Error](err); ok {
		refused := &fault.Error{Op: opObtain, Kind: fault.RejectPolicy, Detail: "the authority refuses a certificate for " + name + ": " + problem.Detail, Next: proof}
		if wait, limited := acme.RateLimit(err); limited {
			refused.Kind, refused.RetryAfter = fault.RateLimited, max(wait, time.Hour)
			refused.Next = "Wait: the authority limits how many certificates a name may have. The node tries again by itself."
		}
		if problem.StatusCode >= http.StatusInternalServerError {
			refused.Kind = fault.UpstreamFailed
		}
		return refused
	}
	if ctx.Err() != nil {
		return &fault.Error{Op: opObtain, Kind: fault.Timeout, Detail: "the authority did not answer in time for " + name, Err: err, Next: proof}
	}
	return &fault.Error{Op: opObtain, Kind: fault.UpstreamFailed, Detail: "the authority cannot be reached", Err: err,
		Next: "See that this machine can reach the URL in http.acme.directory. The node tries again by itself."}
}
