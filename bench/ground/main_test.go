package ground

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
		play(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// play is a fake peer. It says its id and that of its child, and waits.
func play(role string) {
	switch role {
	case "dies":
		fmt.Println("no more room")
		os.Exit(3)
	case "talks":
		talk()
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

// talk reports every line that it is told, until there are no more.
func talk() {
	reports := os.NewFile(3, "reports")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Fprintln(reports, "heard", lines.Text())
	}
	fmt.Println("alone")
}

// gone tells whether a process has ended. One that nobody has reaped yet has
// ended too.
func gone(pid string) bool {
	one := parseStat(read("/proc/" + pid + "/stat"))
	return one.state == "" || one.state == "Z"
}
