package disk

import "syscall"

func timesOf(stat *syscall.Stat_t) (modified, changed int64) {
	return stat.Mtim.Nano(), stat.Ctim.Nano()
}
