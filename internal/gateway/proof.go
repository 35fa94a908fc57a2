package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/ingress"
)

// ProofFunc makes the proof that this process has the secret which the parts of
// a node share. It has the signature of capability.Root.Proof.
type ProofFunc func(connection string, asked, answered []byte) ([]byte, error)

// ProofPath is where a part proves that it is one. It is the first request on
// every connection to a part that is reached by URL; nothing else is sent before
// it is answered.
const ProofPath = "/part/proof"

const proofOp = "gateway.proof"

// proofRequest is the challenge, and proofResponse the answer.
type (
	proofRequest struct {
		Nonce []byte `json:"nonce"`
	}
	proofResponse struct {
		Nonce []byte `json:"nonce"`
		Proof []byte `json:"proof"`
	}
)

// ProofRoute is how a part proves that it is one. It is open: the answer is
// bound to the connection of the request, and of no use without the secret.
func ProofRoute(service string, prove ProofFunc) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodPost}, Pattern: ProofPath, Class: ingress.Control, Open: true, BodyCap: 1 << 10,
		Handler: func(w http.ResponseWriter, r *http.Request) error {
			var request proofRequest
			if err := ingress.DecodeJSON(r, &request); err != nil {
				return err
			}
			connection, err := serverBinding(r)
			if err != nil {
				return err
			}
			nonce := make([]byte, capability.ProofNonceSize)
			rand.Read(nonce) // never fails: the runtime crashes the program first
			sum, err := prove(connection, request.Nonce, nonce)
			if err != nil {
				return err
			}
			w.Header().Set("Cache-Control", "no-store")
			return ingress.WriteJSON(w, http.StatusOK, proofResponse{Nonce: nonce, Proof: sum})
		},
		Docs: ingress.Docs{Summary: "Prove to another part of the node that this is one"},
	}
}

// serverBinding names the connection of a request as its other end does: by a
// secret of the TLS session, which no man in the middle has, or by the
// addresses of both ends, which are the same on both sides as long as there is
// none.
func serverBinding(r *http.Request) (string, error) {
	if r.TLS != nil {
		return tlsBinding(*r.TLS)
	}
	here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if here == nil {
		return "", fault.New(proofOp, fault.Malformed, "a local socket needs no proof")
	}
	return tcpBinding(here.String(), r.RemoteAddr)
}

// clientBinding is the same for the dialling side.
func clientBinding(conn net.Conn) (string, error) {
	if secured, ok := conn.(*tls.Conn); ok {
		return tlsBinding(secured.ConnectionState())
	}
	return tcpBinding(conn.RemoteAddr().String(), conn.LocalAddr().String())
}

func tlsBinding(state tls.ConnectionState) (string, error) {
	secret, err := state.ExportKeyingMaterial("EXPORTER-micronode-part", nil, 32)
	return "tls " + string(secret), err
}

func tcpBinding(server, client string) (string, error) {
	to, err := netip.ParseAddrPort(server)
	from, err2 := netip.ParseAddrPort(client)
	plain := func(at netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	}
	return fmt.Sprintf("tcp %s %s", plain(to), plain(from)), errors.Join(err, err2)
}

// requireProof demands the proof from the other end of a fresh connection. All
// that it sends before is a random number.
func (p PartAddr) requireProof(ctx context.Context, conn net.Conn, prove ProofFunc) error {
	end := time.Now().Add(dialTimeout)
	if sooner, bounded := ctx.Deadline(); bounded && sooner.Before(end) {
		end = sooner
	}
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	nonce := make([]byte, capability.ProofNonceSize)
	rand.Read(nonce)
	connection, err := clientBinding(conn)
	if err != nil {
		return impostorError("the connection has no name that both sides know", err)
	}
	response, err := p.requestProof(conn, nonce)
	if err != nil {
		return err
	}
	want, err := prove(connection, nonce, response.Nonce)
	switch {
	case fault.KindOf(err) == fault.Malformed, err == nil && !hmac.Equal(want, response.Proof):
		return impostorError("its proof is wrong", nil)
	case err != nil:
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// requestProof sends the challenge and reads the answer, and not a byte more.
func (p PartAddr) requestProof(conn net.Conn, nonce []byte) (response proofResponse, err error) {
	body, err := json.Marshal(proofRequest{Nonce: nonce})
	if err != nil {
		return response, err
	}
	request, err := http.NewRequest(http.MethodPost, p.base.String()+ProofPath, bytes.NewReader(body))
	if err != nil {
		return response, err
	}
	request.Header.Set("Content-Type", "application/json")
	if err := request.Write(conn); err != nil {
		return response, err
	}
	const most = 16 << 10 // of header and body together
	reader := bufio.NewReader(io.LimitReader(conn, most))
	httpResponse, err := http.ReadResponse(reader, request)
	if err != nil {
		return response, impostorError("it does not answer in HTTP", err)
	}
	defer httpResponse.Body.Close()
	switch httpResponse.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return response, fault.New("gateway.dial", fault.NotReady, "it is busy (%s)", httpResponse.Status)
	default:
		return response, impostorError("it answers "+httpResponse.Status, nil)
	}
	text, err := io.ReadAll(httpResponse.Body)
	if err == nil {
		err = json.Unmarshal(text, &response)
	}
	if err != nil || httpResponse.Close || reader.Buffered() > 0 {
		return response, impostorError("its answer is not a proof", err)
	}
	return response, nil
}

// impostorError reports that the server at a part's address did not prove to be
// a part of this node.
func impostorError(why string, cause error) error {
	err := fault.New(proofOp, fault.UpstreamFailed, "%s", why)
	err.Err = cause
	return err
}

// IsImpostor reports whether a call failed because the server at a part's
// address did not prove to be that part.
func IsImpostor(err error) bool {
	own, typed := errors.AsType[*fault.Error](err)
	return typed && own.Op == proofOp
}
