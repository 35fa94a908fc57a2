//go:build !linux && !darwin

package disk

import "os"

// Allocate does nothing: whoever writes learns then whether there is room.
func Allocate(*os.File, int64) error { return nil }

func datasync(f *os.File) error { return f.Sync() }

// DropCached does nothing here.
func DropCached(*os.File) {}
