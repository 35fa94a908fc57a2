package ingress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"micronode/fault"
)

// A forwarded client is believed if the sender is a part of the node, and only
// then.
func TestForwardedClient(t *testing.T) {
	writeClient := func(w http.ResponseWriter, r *http.Request) error {
		_, err := fmt.Fprint(w, ForwardedClient(r))
		return err
	}
	open := func(local bool) *fixture {
		f := newFixture(t, []Route{control("GET", "/x", writeClient)})
		f.server.authorise = func(_ context.Context, ask AuthRequest) error {
			if ask.Path != VoucherPath || ask.Scope == VoucherScope && ask.Token == "part" {
				return nil
			}
			return fault.New("test", fault.Forbidden, "not that one")
		}
		if !local {
			f.listenTCP()
			return f
		}
		inner, err := net.Listen("unix", t.TempDir()+"/s")
		if err != nil {
			t.Fatal(err)
		}
		f.serve(f.server.Attach(inner, ListenOptions{Name: "local", Local: true}))
		return f
	}
	for name, c := range map[string]struct {
		local  bool
		header string
		want   string
	}{
		"a client":                             {want: "127.0.0.1"},
		"a client that says it is another":     {header: "Micronode-Client: 192.0.2.7\r\n", want: "127.0.0.1"},
		"a client with some capability":        {header: "Micronode-Client: 192.0.2.7\r\nMicronode-Voucher: mine\r\n", want: "127.0.0.1"},
		"with its own as Authorization":        {header: "Micronode-Client: 192.0.2.7\r\nAuthorization: Bearer part\r\n", want: "127.0.0.1"},
		"a part":                               {header: "Micronode-Client: 192.0.2.7\r\nMicronode-Voucher: part\r\n", want: "192.0.2.7"},
		"a part, for an IPv6":                  {header: "Micronode-Client: 2001:db8::1\r\nMicronode-Voucher: part\r\n", want: "2001:db8::1"},
		"a part that says nothing":             {header: "Micronode-Voucher: part\r\n", want: "127.0.0.1"},
		"a part that makes no sense":           {header: "Micronode-Client: me\r\nMicronode-Voucher: part\r\n", want: "127.0.0.1"},
		"a part that cannot decide":            {header: "Micronode-Client: 192.0.2.7\r\nMicronode-Client: 192.0.2.8\r\nMicronode-Voucher: part\r\n", want: "127.0.0.1"},
		"two capabilities":                     {header: "Micronode-Client: 192.0.2.7\r\nMicronode-Voucher: part\r\nMicronode-Voucher: part\r\n", want: "127.0.0.1"},
		"the local socket":                     {local: true, want: "invalid IP"},
		"the local socket, for somebody else":  {local: true, header: "Micronode-Client: 192.0.2.7\r\n", want: "192.0.2.7"},
		"the local socket, for nobody at all ": {local: true, header: "Micronode-Client: \r\n", want: "invalid IP"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(c.local)
			raw, err := net.Dial(f.listener.Addr().Network(), f.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			client := newClient(t, raw)
			client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n%s\r\n", c.header)
			if got := client.receive(); got.body != c.want {
				t.Errorf("%q, want %q", got.body, c.want)
			}
		})
	}
	if got := ForwardedClient(new(http.Request)); got.IsValid() {
		t.Errorf("a request from nowhere comes from %s", got)
	}
}
