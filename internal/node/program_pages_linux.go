package node

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgramPages drops those pages of the program that were only needed to
// start. Unused engines are most of its bytes, and the kernel maps a file in
// large pieces, so that a node would be charged for all of it. What is needed
// again is read from the page cache, in small pieces from then on. Errors are
// ignored: where it does not work nothing is lost.
func releaseProgramPages() {
	const self = "/proc/self/exe"
	path, err := os.Readlink(self)
	if err != nil {
		return
	}
	program, err := elf.Open(self)
	if err != nil {
		return
	}
	defer func() { _ = program.Close() }() // it was only read
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }() // it was only read
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var rights string
		var offset uint64
		n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x", &from, &to, &rights, &offset)
		if n != 4 || !strings.HasSuffix(lines.Text(), path) || !neverWritten(program, offset) {
			continue
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_NOHUGEPAGE)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}

// neverWritten reports whether the mapping that begins at an offset of the
// program belongs to a segment that was read-only from the start. That it is
// read-only now is not enough: the loader writes to some pages before it
// protects them, and what it wrote there is in no file. Two segments may share
// a page of the file, and the mapping that begins with it is the later one's.
func neverWritten(program *elf.File, offset uint64) (never bool) {
	page := uint64(os.Getpagesize())
	for _, p := range program.Progs { // in the order of their addresses
		if p.Type == elf.PT_LOAD && p.Off&^(page-1) <= offset {
			never = p.Flags&elf.PF_W == 0
		}
	}
	return never
}
