package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// patience bounds every wait: a machine that is busy with other tests is slow,
// and what is waited for comes as soon as it can.
const patience = time.Minute

// WaitFor waits until a condition holds that another goroutine or process makes
// true. It ends the test when the condition does not come true.
func WaitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
	}
}

// FreeAddress is an address of loopback on which nothing listens. It is chosen
// below the ports that the kernel gives to outgoing connections, one of which
// could take it before the test does.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if listener, err := net.Listen("tcp4", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("a hundred ports are taken")
	return ""
}
