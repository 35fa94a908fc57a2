package disk

import "syscall"

func timesOf(stat *syscall.Stat_t) (modified, changed int64) {
	return stat.Mtimespec.Nano(), stat.Ctimespec.Nano()
}
