package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

// nobody is the user of the processes that play another user.
const nobody = 65534

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func([]string) int{"squat": squat, "ask": ask})
}

// squat is a program of another user on our name.
func squat(args []string) int {
	listener, err := net.Listen("unix", socketAddress(args[0]))
	if err == nil && strings.Contains(args[0], "/") {
		err = os.Chmod(args[0], 0o777)
	}
	fmt.Println("squatting", err == nil)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = listener.Close()
	return 0
}

// ask is our own client, as another user.
func ask(args []string) int {
	c, err := New(Options{Socket: args[0], Retry: Retry{Tries: 1}})
	if err == nil {
		_, err = c.Version(context.Background())
	}
	fmt.Println(fault.KindOf(err).Code())
	return 0
}
