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
	if !Poll(holds) {
		t.Fatalf("waited %s in vain until %s", patience, what)
	}
}

// Poll is WaitFor where there is no test: in an example, a script, or TestMain.
// It reports whether the condition came true.
func Poll(holds func() bool) bool {
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// FreeAddress is an address of loopback on which nothing listens, and nothing
// will: its IP is one that nobody else uses, neither a listener nor a
// connection that the kernel gives a port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.%d.%d.%d:%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254), 20_000+rand.IntN(12_000))
		if listener, err := net.Listen("tcp4", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("a hundred addresses are taken")
	return ""
}
