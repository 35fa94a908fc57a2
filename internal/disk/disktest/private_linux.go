package disktest

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// privately is set in the environment of a process that may mount disks of its
// own.
const privately = "MICRONODE_TEST_PRIVATE_MOUNTS"

// Privately runs a test where it may mount disks. It is to be called by a test
// that is not part of another one, and to be all that this one does. Where the
// system allows no such thing, the test says so and is over.
func Privately(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(privately) != "" {
		test(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v="+strconv.FormatBool(testing.Verbose()))
	again.Env = append(os.Environ(), privately+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	said, err := again.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Logf("no private mounts here (%v): what a full disk does was not tried", err)
		return
	}
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// Mount mounts an empty disk of some kilobytes in a folder. The disk is gone when
// it is unmounted.
func Mount(folder string, kilobytes int) (unmount func() error, err error) {
	if err := unix.Mount("none", folder, "tmpfs", 0, "mode=0700,size="+strconv.Itoa(kilobytes)+"k"); err != nil {
		return nil, os.NewSyscallError("mount", err)
	}
	return func() error { return os.NewSyscallError("umount", unix.Unmount(folder, unix.MNT_DETACH)) }, nil
}

// Fill writes to a file until its disk is full, but for so many bytes.
func Fill(name string, left int64) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return file.Truncate(info.Size() - left)
}
