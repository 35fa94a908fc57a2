package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"micronode/internal/disk"
	"micronode/internal/node"
)

// systemOf reads what systemd wants of this process.
func systemOf(getenv func(string) string) node.System {
	system := node.System{NotifySocket: getenv("NOTIFY_SOCKET"), Journal: isJournal(getenv("JOURNAL_STREAM"))}
	micros, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	pid := getenv("WATCHDOG_PID")
	if err == nil && micros > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		system.Watchdog = time.Duration(micros) * time.Microsecond
	}
	return system
}

// isJournal reports whether standard error is the stream DEVICE:INODE: a
// process that was started by a service inherits the variable, and may write
// elsewhere.
func isJournal(stream string) bool {
	if stream == "" {
		return false
	}
	stamp, err := disk.StampOfHandle(os.Stderr.Fd())
	return err == nil && stream == fmt.Sprintf("%d:%d", stamp.Device, stamp.Inode)
}
