package fill

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"micronode/fault"
)

// originFault says why an origin could not be asked: its certificate, its name,
// the connection, or an answer that is not HTTP. The text is for clients, so it
// names the host that they asked for, and no address behind it.
func originFault(host string, err error) error {
	detail, next := causeOf(host, err)
	own := fault.New(opOrigin, fault.UpstreamFailed, "%s", detail)
	own.Err, own.Next = err, next
	return own
}

const nextAskAgain = "Retry later; if it persists, ask whoever runs the origin."

func causeOf(host string, err error) (detail, next string) {
	if detail, next = certificateCause(host, err); detail != "" {
		return detail, next
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		if name.IsNotFound {
			return "the name " + host + " does not exist", "Check the spelling; the operator allows origins with edge.allow."
		}
		return "the name " + host + " could not be resolved", "Retry later; if it persists, the operator checks the name servers of this machine."
	}
	text := err.Error()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return host + " refuses connections", nextAskAgain
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to " + host, "Retry later; if it persists, the operator checks the network of this machine."
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.HasSuffix(text, "EOF"):
		return host + " closed the connection before it answered", nextAskAgain
	case strings.Contains(text, "malformed HTTP"), strings.Contains(text, "malformed MIME header"):
		return "what " + host + " answers is not HTTP", nextAskAgain
	}
	return host + " could not be reached", nextAskAgain
}

// certificateCause is about TLS; empty if it is not the cause.
func certificateCause(host string, err error) (detail, next string) {
	const ask = "Whoever runs the origin has to renew it."
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		cert := invalid.Cert
		if invalid.Reason != x509.Expired || cert == nil {
			return fmt.Sprintf("the certificate of %s is not valid: %s", host, invalid.Error()), ask
		}
		if time.Now().Before(cert.NotBefore) {
			return fmt.Sprintf("the certificate of %s is valid only from %s on", host, cert.NotBefore.UTC().Format(time.RFC3339)), "Check the clock of this machine."
		}
		return fmt.Sprintf("the certificate of %s (for %s) expired at %s", host, namesOf(cert), cert.NotAfter.UTC().Format(time.RFC3339)), ask
	}
	if wrong, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the certificate of %s is for %s", host, namesOf(wrong.Certificate)), "Ask for the origin by a name that its certificate has."
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		issuer := "an unknown authority"
		if unknown.Cert != nil {
			issuer = fmt.Sprintf("%q, which this node does not trust", unknown.Cert.Issuer.String())
		}
		return fmt.Sprintf("the certificate of %s is signed by %s", host, issuer), "If it is an authority of your own, the operator names its certificate in edge.fill.ca_file."
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return host + " does not speak TLS there", "The node asks origins by HTTPS only. Allow the port on which the origin speaks TLS."
	}
	if refused, ok := errors.AsType[tls.AlertError](err); ok {
		return fmt.Sprintf("%s refused the TLS handshake: %s", host, refused.Error()), nextAskAgain
	}
	return "", ""
}

// namesOf lists a few names of a certificate.
func namesOf(cert *x509.Certificate) string {
	names := cert.DNSNames
	for _, ip := range cert.IPAddresses {
		names = append(names[:len(names):len(names)], ip.String())
	}
	const most = 4
	switch {
	case len(names) == 0:
		return "no name"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// The operations under which time-outs of I/O with origins are counted.
const (
	ioConnect = "connect" // no connection in time, TLS included
	ioFill    = "fill"    // a connection, and then no answer or no progress
)

// connectTimeout marks a time-out before there was a connection.
type connectTimeout struct{ error }

func (c *connectTimeout) Unwrap() error { return c.error }

// timedOutIn is the operation in which a try timed out; empty if it did not.
func timedOutIn(err error) string {
	if fault.KindOf(err) != fault.Timeout {
		return ""
	}
	if _, ok := errors.AsType[*connectTimeout](err); ok {
		return ioConnect
	}
	return ioFill
}
