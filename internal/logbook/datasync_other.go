//go:build !linux

package logbook

import "os"

func datasync(f *os.File) error { return f.Sync() }
