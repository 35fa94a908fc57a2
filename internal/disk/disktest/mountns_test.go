package disktest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/disk/disktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A disk that was filled accepts what it has left, and no more; outside of the
// namespace it cannot be seen.
func TestADiskOfOnesOwn(t *testing.T) {
	disktest.RunInMountNamespace(t, func(t *testing.T) {
		folder := t.TempDir()
		unmount, err := disktest.Mount(folder, 256)
		if err != nil {
			t.Fatal(err)
		}
		if err := disktest.FillDisk(filepath.Join(folder, "filling"), 8<<10); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "fits"), make([]byte, 8<<10), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "more"), make([]byte, 1), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("it takes more than it has room for: %v", err)
		}
		if err := unmount(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
			t.Errorf("%v, %v", left, err)
		}
	})
}
