package testbed

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine describes where a run took place. Without it a figure says little.
type Machine struct {
	When   time.Time `json:"when"`
	Cores  int       `json:"cores"`
	CPU    string    `json:"cpu"`
	Kernel string    `json:"kernel"`
	Go     string    `json:"go"`
	Load   string    `json:"load"` // averages of 1, 5 and 15 minutes
}

// ReadMachine looks at the machine as it is now.
func ReadMachine() Machine {
	return Machine{
		When: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(),
		CPU: field("/proc/cpuinfo", "model name"), Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")), Load: ReadLoad(),
	}
}

// ReadLoad is the load averages of 1, 5 and 15 minutes.
func ReadLoad() string {
	parts := strings.Fields(read("/proc/loadavg"))
	return strings.Join(parts[:min(len(parts), 3)], " ")
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores (%s), Linux %s, %s, load %s", m.When.Format(time.RFC3339), m.Cores, m.CPU, m.Kernel, m.Go, m.Load)
}

// RSS is the memory that a program holds, in bytes, without its children.
func (p *Process) RSS() (int64, error) { return p.memory("VmRSS") }

// PeakRSS is the most memory that a program has held since it began.
func (p *Process) PeakRSS() (int64, error) { return p.memory("VmHWM") }

// OwnMemory is the part of it that no file has: what the system cannot take back
// by reading it again.
func (p *Process) OwnMemory() (int64, error) { return p.memory("RssAnon") }

func (p *Process) memory(which string) (int64, error) {
	text := field(fmt.Sprintf("/proc/%d/status", p.PID()), which)
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the memory of %s: %w", p.name, err)
	}
	return kilobytes << 10, nil
}

func read(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

// field is the value of a "name : value" line of a file below /proc.
func field(path, name string) string {
	for line := range strings.Lines(read(path)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
