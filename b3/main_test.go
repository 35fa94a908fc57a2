package b3_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// pattern makes the content that the official BLAKE3 test vectors hash.
func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i % 251)
	}
	return data
}

// sizes are those where the tree changes its shape, and their neighbours.
var sizes = []int{
	0, 1, 64, 1023, 1024, 1025, 2048, 5000, 16383, 16384, 16385, 17408, 17409,
	32768, 32769, 40000, 49152, 49153, 65536, 65537, 5*16384 + 3*1024, 131072, 200000,
}

// wantCode fails unless err carries the code for the rest of the system and is
// matched by the sentinel.
func wantCode(t testkit.T, err, sentinel error, code string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("got error %v, want one that is %v", err, sentinel)
	}
	var coded interface{ FaultCode() string }
	if !errors.As(err, &coded) || coded.FaultCode() != code {
		t.Fatalf("error %v has not the code %s", err, code)
	}
	if errors.As(sentinel, &coded); coded.FaultCode() != code {
		t.Fatalf("%v itself has not the code %s", sentinel, code)
	}
}

func wantMismatch(t testkit.T, err error) {
	t.Helper()
	wantCode(t, err, b3.ErrMismatch, "IntegrityFail")
}
