package testbed

import (
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPUMeter measures how much of the machine other processes use. A figure that
// was taken during a compilation should say so.
type CPUMeter struct {
	testbed *Testbed
	start   time.Time
	busy    time.Duration // of all processors, by all processes
	own     time.Duration // by the bench and what it started
}

// StartCPUMeter begins to measure.
func (t *Testbed) StartCPUMeter() CPUMeter {
	return CPUMeter{testbed: t, start: time.Now(), busy: busyCPU(), own: t.ownCPU()}
}

// OthersShare is the share of all processors that was used by neither the bench nor
// its programs since the meter was made: 0 is an idle machine, 1 leaves nothing.
func (m CPUMeter) OthersShare() float64 {
	whole := time.Since(m.start) * time.Duration(runtime.NumCPU())
	others := busyCPU() - m.busy - (m.testbed.ownCPU() - m.own)
	return min(max(float64(others)/float64(max(whole, 1)), 0), 1)
}

// ownCPU is what the bench, its programs and those that have ended used.
func (t *Testbed) ownCPU() time.Duration {
	total := SelfCPU() + ChildrenCPU()
	for _, p := range t.processes {
		total += p.CPU()
	}
	return total
}

// SelfCPU is the processor time that the bench itself has used.
func SelfCPU() time.Duration { return usage(syscall.RUSAGE_SELF) }

// ChildrenCPU is what programs used that the bench has started and that have
// ended.
func ChildrenCPU() time.Duration { return usage(syscall.RUSAGE_CHILDREN) }

func usage(who int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tick is the unit of time below /proc.
const tick = 10 * time.Millisecond

// busyCPU is the first line of /proc/stat without idle and waiting for disks.
func busyCPU() (total time.Duration) {
	line, _, _ := strings.Cut(read("/proc/stat"), "\n")
	for i, text := range strings.Fields(line) {
		const idle, disks, guests = 4, 5, 9 // guests are counted in user time too
		if n, err := strconv.Atoi(text); err == nil && i != idle && i != disks && i < guests {
			total += time.Duration(n) * tick
		}
	}
	return total
}

// CPU is the processor time that a program and its living children have used.
func (p *Process) CPU() (total time.Duration) {
	for member := range processGroup(p.PID()) {
		total += member.cpu
	}
	return total
}

// isGroupAlive reports whether a process of a group has not ended. One that has
// ended and was not yet reaped does not count.
func isGroupAlive(group int) bool {
	for member := range processGroup(group) {
		if member.state != "Z" {
			return true
		}
	}
	return false
}

// processGroup walks over the processes of a group.
func processGroup(group int) iter.Seq[stat] {
	return func(yield func(stat) bool) {
		entries, _ := os.ReadDir("/proc")
		for _, entry := range entries {
			if _, err := strconv.Atoi(entry.Name()); err != nil {
				continue
			}
			if one := parseStat(read("/proc/" + entry.Name() + "/stat")); one.group == group && !yield(one) {
				return
			}
		}
	}
}

// stat is a parsed /proc/PID/stat.
type stat struct {
	state string
	group int
	cpu   time.Duration
}

// parseStat reads the stat line of a process. The name comes in brackets and
// may contain anything; the rest are numbers. A process that has ended has no
// line, and so no group.
func parseStat(line string) (s stat) {
	const state, group, user, system = 0, 2, 11, 12
	rest := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(rest) <= system {
		return s
	}
	u, _ := strconv.Atoi(rest[user])
	k, _ := strconv.Atoi(rest[system])
	s.state, s.cpu = rest[state], time.Duration(u+k)*tick
	s.group, _ = strconv.Atoi(rest[group])
	return s
}
