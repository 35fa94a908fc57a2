package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/testkit"
)

// The socket is opened to a group by its number, and only where clients can tell
// whose it is; a node that cannot do it does not start, and leaves no socket.
func TestTheGroupOfTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.sock")
	options := func(socket, group string) Options {
		o := testOptions(t, config.Flag{Key: "node.socket_group", Value: group, Name: "test"})
		o.Socket = socket
		return o
	}
	n, err := New(t.Context(), options(path, strconv.Itoa(os.Getegid())))
	testkit.Must(t, err)
	info, err := os.Stat(path)
	testkit.Must(t, err)
	if info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v", info.Mode())
	}
	testkit.Must(t, n.Close())

	for name, o := range map[string]Options{
		"no such group":       options(path, "no-such-group-here"),
		"an abstract socket":  options(testOptions(t).Socket, strconv.Itoa(os.Getegid())),
		"a group of everyone": options(path, "65534"),
	} {
		n, err := New(t.Context(), o)
		testkit.WantKind(t, err, fault.RejectPolicy, name)
		if next := fault.NextOf(err); !strings.Contains(next, "group") {
			t.Errorf("%s: %s", name, next)
		}
		if err == nil {
			_ = n.Close()
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the socket is left: %v", name, err)
		}
	}
}
