package fill

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/fault"
)

// An error of an origin names the cause, and no address that the client did not name.
func TestErrorsOfOriginsNameTheCause(t *testing.T) {
	const host = "tiles.example"
	cert := &x509.Certificate{
		DNSNames: []string{"other.example", "b.example", "c.example", "d.example", "e.example"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		Issuer: pkix.Name{CommonName: "House Authority"},
	}
	young := &x509.Certificate{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour), IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}}
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 99), Port: 443}, Err: os.NewSyscallError("connect", err)}
	}
	verify := func(err error) error { return &tls.CertificateVerificationError{Err: err} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{verify(x509.CertificateInvalidError{Cert: cert, Reason: x509.Expired}), "the certificate of tiles.example (for other.example, b.example, c.example, d.example and 1 more) expired at " + cert.NotAfter.UTC().Format(time.RFC3339)},
		{verify(x509.CertificateInvalidError{Cert: young, Reason: x509.Expired}), "is valid only from "},
		{verify(x509.CertificateInvalidError{Cert: cert, Reason: x509.NotAuthorizedToSign}), "is not valid: "},
		{verify(x509.HostnameError{Certificate: young, Host: host}), "the certificate of tiles.example is for 192.0.2.1"},
		{verify(x509.HostnameError{Certificate: &x509.Certificate{}, Host: host}), "is for no name"},
		{verify(x509.UnknownAuthorityError{Cert: cert}), `signed by "CN=House Authority", which this node does not trust`},
		{verify(x509.UnknownAuthorityError{}), "signed by an unknown authority"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "tiles.example does not speak TLS there"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(40)}, "tiles.example refused the TLS handshake: tls: handshake failure"},
		{&net.DNSError{Err: "no such host", Name: host, IsNotFound: true}, "the name tiles.example does not exist"},
		{&net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}, "the name tiles.example could not be resolved"},
		{dial(syscall.ECONNREFUSED), "tiles.example refuses connections"},
		{dial(syscall.EHOSTUNREACH), "there is no route to tiles.example"},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), "tiles.example closed the connection before it answered"},
		{errors.New("net/http: HTTP/1.x transport connection broken: malformed HTTP response"), "what tiles.example answers is not HTTP"},
		{errors.New("something else at 192.0.2.99"), "tiles.example could not be reached"},
	} {
		err := unreachable(context.Background(), host, c.err)
		if detail := fault.DetailOf(err); !strings.Contains(detail, c.want) || strings.Contains(detail, "192.0.2.99") {
			t.Errorf("%v is told as %q, want %q", c.err, detail, c.want)
		}
		if fault.KindOf(err) != fault.UpstreamFailed || fault.NextOf(err) == "" || !errors.Is(err, c.err) && err.(*fault.Error).Err == nil {
			t.Errorf("%v: %#v", c.err, err)
		}
	}
}

// A time-out is counted once for each try, by whether there was a connection.
func TestTimeOutsAreCountedByWhatTimedOut(t *testing.T) {
	slow := tooSlow(context.DeadlineExceeded)
	for err, want := range map[error]string{
		slow: ioFill, &connectTimeout{slow}: ioConnect, fault.New(opOrigin, fault.UpstreamFailed, "no"): "",
	} {
		if got := timedOutIn(err); got != want {
			t.Errorf("%v timed out in %q, want %q", err, got, want)
		}
	}
}
