package netguard

import (
	"context"
	"errors"
	"testing"

	"micronode/fault"
)

// TestAround: the hosts that the operator configured decide which addresses
// from strangers may be dialled.
func TestAround(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts []string
		want  DialPolicy
	}{
		{"nobody", nil, DialPolicy{}},
		{"this machine", []string{"127.0.0.1", "::1", "localhost"}, DialPolicy{Loopback: true}},
		{"a private network", []string{"10.1.2.3", "fd12::1"}, DialPolicy{Private: true}},
		{"both", []string{"127.0.0.1", "192.168.1.1"}, DialPolicy{Loopback: true, Private: true}},
		{"a mapped private address", []string{"::ffff:10.0.0.1"}, DialPolicy{Private: true}},
		{"one public address", []string{"127.0.0.1", "93.184.215.14"}, DialPolicy{}},
		{"one name", []string{"10.0.0.1", "peer.example"}, DialPolicy{}},
		{"a metadata address is no private network", []string{"100.100.100.200"}, DialPolicy{}},
		{"every address", []string{"0.0.0.0"}, DialPolicy{}},
	} {
		if got := PolicyFor(c.hosts); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestBelieves: which hosts from strangers are kept.
func TestBelieves(t *testing.T) {
	here, near := DialPolicy{Loopback: true}, DialPolicy{Private: true}
	for _, c := range []struct {
		host string
		by   DialPolicy
		want bool
	}{
		{"", AllowAny, false},
		{"peer.example", DialPolicy{}, true},
		{"localhost", DialPolicy{}, false},
		{"a.localhost", near, false},
		{"localhost", here, true},
		{"93.184.215.14", DialPolicy{}, true},
		{"127.0.0.1", near, false},
		{"127.0.0.1", here, true},
		{"10.0.0.1", here, false},
		{"10.0.0.1", near, true},
		{"169.254.169.254", AllowAny, false},
		{"64:ff9b::a9fe:a9fe", AllowAny, false},
		{"64:ff9b::5db8:d70e", near, false},
		{"64:ff9b::5db8:d70e", AllowAny, true},
		{"224.0.0.1", AllowAny, false},
	} {
		if got := c.by.AllowsHost(c.host); got != c.want {
			t.Errorf("%q by %+v: %v, want %v", c.host, c.by, got, c.want)
		}
	}
}

// TestControlContext: the hook is called before each connection, with the
// refusal if there is one.
func TestControlContext(t *testing.T) {
	enough := errors.New("enough")
	var refused []error
	control := ControlContext(func() DialPolicy { return DialPolicy{} }, func(_ context.Context, err error) error {
		refused = append(refused, err)
		if err == nil {
			return enough
		}
		return err
	})
	if err := control(t.Context(), "tcp", "10.0.0.1:80", nil); fault.KindOf(err) != fault.RejectPolicy {
		t.Errorf("a private address: %v", err)
	}
	if err := control(t.Context(), "tcp", "93.184.215.14:443", nil); !errors.Is(err, enough) {
		t.Errorf("a public one, and the caller has had enough: %v", err)
	}
	if len(refused) != 2 || refused[0] == nil || refused[1] != nil {
		t.Errorf("the caller was told %v", refused)
	}
}
