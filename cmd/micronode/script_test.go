package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"micronode/internal/edge/pack/packtest"
)

// testTimeout is more than anything here takes, even on a slow machine.
const testTimeout = 30 * time.Second

// exits runs a program and checks its exit code: exits CODE program [args...]
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("it ended with %d, not with %d", got, want)
	}
}

// scriptEventually runs a program until it has the exit code and its output
// matches: eventually CODE PATTERN program [args...]
func scriptEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: eventually CODE PATTERN program [args...]")
	}
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	want := regexp.MustCompile("(?m)" + args[1])
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err, got := ts.Exec(args[2], args[3:]...), 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		if said := ts.ReadFile("stdout") + ts.ReadFile("stderr"); got == code && want.MatchString(said) {
			return
		}
	}
	ts.Fatalf("it never ended with %d and said %s", code, args[1])
}

// field takes a value out of a JSON document: field NAME FILE key.key
// Without keys it is the file itself, without space around it.
func field(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: field NAME FILE [key.key]")
	}
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	if len(args) == 3 {
		var document any
		ts.Check(json.Unmarshal([]byte(text), &document))
		for key := range strings.SplitSeq(args[2], ".") {
			members, _ := document.(map[string]any)
			document = members[key]
		}
		text = fmt.Sprint(document)
	}
	ts.Setenv(args[0], text)
}

// printShape prints the members of a JSON document and their types, so that a
// golden file can hold what does not change: shape FILE
func printShape(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: shape FILE")
	}
	var document any
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(decoder.Decode(&document))
	if _, err := decoder.Token(); err != io.EOF {
		ts.Fatalf("there is something after the document")
	}
	lines := map[string]bool{}
	describe(lines, "", document)
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(ts.Stdout(), line)
	}
}

func describe(lines map[string]bool, path string, document any) {
	switch value := document.(type) {
	case map[string]any:
		for key, member := range value {
			describe(lines, strings.TrimPrefix(path+"."+key, "."), member)
		}
	case []any:
		for _, element := range value {
			describe(lines, path+"[]", element)
		}
		lines[path+" list"] = true
	default:
		lines[fmt.Sprintf("%s %T", path, document)] = true
	}
}

// signalAll sends a signal to all background processes: signal HUP
func signalAll(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: signal NAME")
	}
	for _, command := range ts.BackgroundCmds() {
		ts.Check(command.Process.Signal(unix.SignalNum("SIG" + args[0])))
	}
}

// scriptAwait requests a URL until the answer matches: await URL PATTERN. On a
// very busy machine, a node cuts off an answer that takes too long; then the
// request is repeated.
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await URL PATTERN")
	}
	want := regexp.MustCompile("(?m)" + args[1])
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	last := ""
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		answer, err := client.Get(args[0])
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = string(body); err == nil && want.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%s never said %s, but:\n%s", args[0], args[1], last)
}

// pack writes a small map: pack FILE
func pack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pack FILE")
	}
	ts.Check(packtest.WritePMTiles(ts.MkAbs(args[0]), packtest.PMSpec{MaxZoom: 3}))
}

// mode checks the permissions of a file: mode 0600 FILE
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode MODE FILE")
	}
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has the mode %s, not %s", args[1], got, args[0])
	}
}

// scriptTerminal runs a program with all its streams on a terminal: terminal
// [-interrupt PATTERN] [-answer PATTERN TEXT] CODE program [args...]. Its output is
// then in stdout. Ctrl-C, or a line with the text, is typed when the output matches
// the pattern.
func scriptTerminal(ts *testscript.TestScript, neg bool, args []string) {
	var enough *regexp.Regexp
	keys := "\x03"
	switch {
	case len(args) > 2 && args[0] == "-interrupt":
		enough, args = regexp.MustCompile("(?s)"+args[1]), args[2:]
	case len(args) > 3 && args[0] == "-answer":
		enough, keys, args = regexp.MustCompile("(?s)"+args[1]), args[2]+"\n", args[3:]
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: terminal [-interrupt PATTERN] [-answer PATTERN TEXT] CODE program [args...]")
	}
	master, slave, err := openTerminal()
	ts.Check(err)
	defer master.Close()
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	command := exec.Command(path, args[2:]...)
	command.Args[0] = args[1]
	command.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "SOCKET", "NO_COLOR", "GORACE", "GOCOVERDIR", "MICRO_AMNESIA__ENFORCE"} {
		if value := ts.Getenv(name); value != "" {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	command.Env = append(command.Env, "TERM=xterm")
	command.Stdin, command.Stdout, command.Stderr = slave, slave, slave
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(command.Start())
	slave.Close()
	defer time.AfterFunc(2*time.Minute, func() { _ = master.Close() }).Stop() // hangs up
	shown := watchTerminal(master, enough, keys)
	_ = command.Wait()
	fmt.Fprint(ts.Stdout(), strings.ReplaceAll(shown, "\r\n", "\n"))
	if got := strconv.Itoa(command.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("it ended with %s, not with %s, and showed:\n%s", got, args[0], shown)
	}
}

// watchTerminal reads the output until the other end is closed, and types the
// keys when it matches.
func watchTerminal(master *os.File, enough *regexp.Regexp, keys string) string {
	var shown []byte
	buffer := make([]byte, 4096)
	for {
		n, err := master.Read(buffer)
		shown = append(shown, buffer[:n]...)
		if err != nil {
			return string(shown)
		}
		if enough != nil && enough.Match(shown) {
			enough = nil
			_, _ = master.WriteString(keys) // the other end may be closed
		}
	}
}

// openTerminal opens a pseudoterminal: its master and its slave.
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 100})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
	}
	return master, slave, err
}
