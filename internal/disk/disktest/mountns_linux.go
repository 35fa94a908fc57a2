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

// mountNamespaceEnv is set in the environment of a process in a mount namespace
// of its own.
const mountNamespaceEnv = "MICRONODE_TEST_PRIVATE_MOUNTS"

// RunInMountNamespace runs a test where it may mount disks. It must be called
// by a top-level test, and be all that this test does. Where the system does
// not allow it, the test logs that and ends.
func RunInMountNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(mountNamespaceEnv) != "" {
		test(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v="+strconv.FormatBool(testing.Verbose()))
	child.Env = append(os.Environ(), mountNamespaceEnv+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	output, err := child.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Logf("no private mounts here (%v): what a full disk does was not tried", err)
		return
	}
	if err != nil {
		t.Errorf("%v\n%s", err, output)
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

// FillDisk writes to a file until its disk is full, except for left bytes.
func FillDisk(name string, left int64) error {
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
