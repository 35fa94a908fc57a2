package fault_test

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"micronode/fault"
)

func TestIsErrno(t *testing.T) {
	refused := fmt.Errorf("dial: %w", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	for name, c := range map[string]struct {
		err    error
		number syscall.Errno
		want   bool
	}{
		"what it is":        {refused, syscall.ECONNREFUSED, true},
		"another number":    {refused, syscall.EPIPE, false},
		"no error":          {nil, syscall.EPIPE, false},
		"no error of calls": {fs.ErrNotExist, syscall.EPIPE, false},
	} {
		if got := fault.IsErrno(c.err, c.number); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
