package ingress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/testkit"
)

// All requests with one token, and with those that it was narrowed to, have one
// sender; what a request says of its sender is believed of another part only.
func TestSender(t *testing.T) {
	root, err := capability.NewRoot(nil)
	testkit.Must(t, err)
	authority := capability.NewAuthority(root)
	mint := func() string {
		token, err := authority.Mint(capability.Caveats{Scopes: []capability.Scope{"mbox:send"}})
		testkit.Must(t, err)
		return token
	}
	one, other := mint(), mint()
	narrow, err := capability.Attenuate(one, capability.Caveats{Scopes: []capability.Scope{"mbox:send:jobs"}})
	testkit.Must(t, err)
	voucher, err := authority.MintVoucher(capability.Caveats{Scopes: []capability.Scope{"mbox:send"}})
	testkit.Must(t, err)
	send := func(local bool, headers ...string) string {
		f := newFixture(t, []Route{control("GET", "/x", func(w http.ResponseWriter, r *http.Request) error {
			_, err := fmt.Fprint(w, Sender(r))
			return err
		})})
		f.server.authorise = func(_ context.Context, ask AuthRequest) error {
			if ask.Path != VoucherPath || ask.Token == "part" {
				return nil
			}
			return fault.New("test", fault.Forbidden, "not that one")
		}
		network, address := "tcp", ""
		if local {
			network, address = "unix", t.TempDir()+"/s"
			inner, err := net.Listen(network, address)
			testkit.Must(t, err)
			f.serve(f.server.Attach(inner, ListenOptions{Name: "local", Local: true}))
		} else {
			f.listenTCP()
			address = f.listener.Addr().String()
		}
		raw, err := net.Dial(network, address)
		testkit.Must(t, err)
		client := newClient(t, raw)
		client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n%s\r\n", strings.Join(headers, ""))
		return client.receive().body
	}
	bearer := func(token string) string { return "Authorization: Bearer " + token + "\r\n" }
	mine := send(false, bearer(one))
	if mine == "" || mine != capability.Family(one) || send(false, bearer(narrow)) != mine {
		t.Errorf("a token is %q, narrowed %q", mine, send(false, bearer(narrow)))
	}
	if theirs := send(false, bearer(other)); theirs == "" || theirs == mine {
		t.Errorf("another token is %q", theirs)
	}
	if got := send(false, bearer(one), "Micronode-Sender: another\r\n"); got != mine {
		t.Errorf("a client that says it is another is %q", got)
	}
	if got := send(false, bearer(voucher), "Micronode-Sender: another\r\n", "Micronode-Voucher: part\r\n"); got != "another" {
		t.Errorf("what a part says: %q", got)
	}
	if got := send(false, bearer(voucher)); got != "" {
		t.Errorf("a voucher is %q", got)
	}
	if here, there := send(true), send(true, "Micronode-Sender: another\r\n"); here != "local" || there != "another" {
		t.Errorf("the local socket: %q and %q", here, there)
	}
	if Sender(new(http.Request)) != "" {
		t.Error("a request from nowhere has a sender")
	}
}
