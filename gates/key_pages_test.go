//go:build gates

package gates

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// memoryRegion is a stretch of the memory of a process, with its flags in
// /proc/PID/smaps.
type memoryRegion struct {
	from, to uint64
	flags    string
}

// smapsRange starts a line of /proc/PID/smaps that names a region.
var smapsRange = regexp.MustCompile(`^([0-9a-f]+)-([0-9a-f]+) `)

// keyPages finds the memory that is locked and left out of dumps: the arenas.
func (p *process) keyPages() (arenas []memoryRegion) {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	var r memoryRegion
	for line := range strings.Lines(string(text)) {
		if m := smapsRange.FindStringSubmatch(line); m != nil {
			r.from, _ = strconv.ParseUint(m[1], 16, 64)
			r.to, _ = strconv.ParseUint(m[2], 16, 64)
		}
		if flags, found := strings.CutPrefix(line, "VmFlags:"); found && strings.Contains(flags, " lo ") && strings.Contains(flags, " dd ") {
			r.flags = strings.TrimSpace(flags)
			arenas = append(arenas, r)
		}
	}
	if len(arenas) == 0 {
		p.t.Fatal("no memory is locked: there are no key pages, or the limit for locked memory is too low")
	}
	return arenas
}

// readMemory reads a region. It fails once that is not mapped any more.
func (p *process) readMemory(r memoryRegion) ([]byte, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.pid()))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content := make([]byte, r.to-r.from)
	_, err = file.ReadAt(content, int64(r.from))
	return content, err
}

// slowMunmap runs a node with a delay in munmap, so that a test can read the
// memory before it is freed.
var slowMunmap = []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=munmap", "-e", "signal=none", "-e", "inject=munmap:delay_enter=300ms"}

// The whole node is stopped after it was used: its key pages, which hold
// something while it runs, are zero before they are freed. In amnesia mode and
// not.
func TestKeyPagesAreZeroAfterShutdown(t *testing.T) {
	for _, f := range []nodeVariant{{"", false}, {"", true}} {
		t.Run(f.String(), func(t *testing.T) {
			p := startWith(t, slowMunmap, f.arguments(t), append(allFacets, unlimited...)...)
			p.token(allScopes...)
			arenas := p.keyPages()
			last := make([][]byte, len(arenas))
			for _, r := range arenas {
				if content, err := p.readMemory(r); err != nil || len(bytes.Trim(content, "\x00")) == 0 {
					t.Fatalf("nothing is in the key pages while the node runs: %v", err)
				}
			}
			if err := syscall.Kill(p.pid(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			awaitCondition(t, p, "the key pages to be given back", func() bool {
				gone := true
				for i, r := range arenas {
					if content, err := p.readMemory(r); err == nil {
						last[i], gone = content, false
					}
				}
				return gone
			})
			for i, content := range last {
				t.Logf("%d KiB of key pages (%s): %d bytes are not zero at the end", len(content)>>10, arenas[i].flags, len(bytes.Trim(content, "\x00")))
				if len(content) == 0 || len(bytes.Trim(content, "\x00")) > 0 {
					t.Errorf("the key pages were given back with something in them")
				}
			}
			if err := <-p.exited; err != nil {
				t.Errorf("%v\n%s", err, p.stderr)
			}
		})
	}
}
