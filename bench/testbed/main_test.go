package testbed

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays the programs that are started: BENCH_ROLE says which.
func TestMain(m *testing.M) {
	if role := os.Getenv("BENCH_ROLE"); role != "" {
		runRole(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// runRole is a fake peer. It prints its id and that of its child, and waits.
func runRole(role string) {
	switch role {
	case "dies":
		fmt.Println("no more room")
		os.Exit(3)
	case "talks":
		echoLines()
		return
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("ready %d %d\n", os.Getpid(), child.Process.Pid)
	time.Sleep(10 * time.Minute)
}

// echoLines reports every line that it reads, until there are no more.
func echoLines() {
	reports := os.NewFile(3, "reports")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Fprintln(reports, "heard", lines.Text())
	}
	fmt.Println("alone")
}

// isGone reports whether a process has ended. One that was not reaped yet has
// ended too.
func isGone(pid string) bool {
	one := parseStat(read("/proc/" + pid + "/stat"))
	return one.state == "" || one.state == "Z"
}
