package node

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram lets go of those pages of the program that were only needed to
// start. Engines that are not in use are most of its bytes, and the kernel maps
// a file in large pieces, so that a node would be charged for all of it. What
// is needed again comes back from the page cache, in small pieces from now on.
// Where it does not work nothing is lost, so no error is told.
func releaseProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }() // it was only read
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var rights string
		line := lines.Text()
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n != 3 || rights[1] == 'w' || !strings.HasSuffix(line, program) {
			continue // not the program's, or changed since: that cannot be read again
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_NOHUGEPAGE)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}
