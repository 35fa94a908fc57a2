package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// privately is set in the environment of a process that may mount disks of its
// own, which nobody else sees.
const privately = "MICRONODE_TEST_PRIVATE_MOUNTS"

// TestFullDisk runs scripts on real disks that are really full: small ones in
// memory. To mount them takes a right that only root has; but everybody may be
// root in a world of their own, where the system allows that. So the test runs
// itself once more, in one.
func TestFullDisk(t *testing.T) {
	if os.Getenv(privately) != "" {
		runScripts(t, "testdata/full", map[string]func(*testscript.TestScript, bool, []string){"disk": mountDisk, "fill": fillDisk})
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), self, "-test.run=^TestFullDisk$", "-test.v="+strconv.FormatBool(testing.Verbose()))
	again.Env = append(os.Environ(), privately+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	said, err := again.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Logf("no private mounts here (%v): what a full disk does to the program was not tried", err)
		return
	}
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// mountDisk mounts an empty disk of some kilobytes: disk FOLDER KILOBYTES
func mountDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: disk FOLDER KILOBYTES")
	}
	folder := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(folder, 0o700))
	ts.Check(unix.Mount("none", folder, "tmpfs", 0, "mode=0700,size="+args[1]+"k"))
	ts.Defer(func() { ts.Check(unix.Unmount(folder, unix.MNT_DETACH)) })
}

// fillDisk writes a file until the disk is full, but for some kilobytes:
// fill FILE [KILOBYTES]
func fillDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: fill FILE [KILOBYTES]")
	}
	file, err := os.OpenFile(ts.MkAbs(args[0]), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	ts.Check(err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		ts.Check(err)
	}
	if len(args) == 1 {
		return
	}
	left, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	info, err := file.Stat()
	ts.Check(err)
	ts.Check(file.Truncate(info.Size() - left<<10))
}
