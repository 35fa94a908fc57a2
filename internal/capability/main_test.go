package capability

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

// nobody is the other user.
const nobody = 65534

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func([]string) int{"squat": squat, "serve": serve, "knock": knock, "dial": dialAsOther, "call": call})
}

// The roles of child processes. Each prints one line.

// squat is another user's program on our name.
func squat(args []string) int {
	listener, err := net.Listen("unix", "@"+args[0])
	fmt.Println("squatting", err == nil)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = listener.Close()
	return 0
}

// serve is a node of its own.
func serve(args []string) int {
	listener, err := ListenLocal(args[0], nil)
	fmt.Println("serving", err == nil)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = listener.Close()
	return 0
}

// knock is a client that does not check the server's user.
func knock(args []string) int {
	conn, err := net.Dial("unix", "@"+args[0])
	if err != nil {
		fmt.Println("no connection")
		return 0
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = conn.Read(make([]byte, 1))
	fmt.Println("closed", err == io.EOF)
	return 0
}

// call reads what a listener at a path says.
func call(args []string) int {
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		fmt.Println("no connection")
		return 0
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	text, _ := io.ReadAll(conn) // a refused connection may be reset
	fmt.Printf("%q\n", text)
	return 0
}

// dialAsOther is our own client, as another user.
func dialAsOther(args []string) int {
	_, err := DialLocal(context.Background(), args[0])
	fmt.Println(fault.KindOf(err).Code())
	return 0
}

// The fixtures that most tests use.

// fixedSecret makes the root that kept tokens were minted under.
const fixedSecret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

func fixedAuthority(t testing.TB) *Authority {
	t.Helper()
	root, err := RootFrom(fixedSecret, nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewAuthority(root)
}

func freshAuthority(t testing.TB) *Authority {
	t.Helper()
	root, err := NewRoot(nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewAuthority(root)
}

func mint(t testing.TB, a *Authority, c Caveats) string {
	t.Helper()
	token, err := a.Mint(c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func narrow(t testing.TB, token string, c Caveats) string {
	t.Helper()
	narrower, err := Attenuate(token, c)
	if err != nil {
		t.Fatal(err)
	}
	return narrower
}

const none fault.Kind = 0
