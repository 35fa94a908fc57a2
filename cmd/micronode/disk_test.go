package main

import (
	"os"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"micronode/internal/disk/disktest"
)

// TestFullDisk runs scripts on real disks that are really full.
func TestFullDisk(t *testing.T) {
	disktest.RunInMountNamespace(t, func(t *testing.T) {
		runScripts(t, "testdata/full", map[string]func(*testscript.TestScript, bool, []string){"disk": mountDisk, "fill": fillDisk})
	})
}

// mountDisk mounts an empty disk of some kilobytes: disk FOLDER KILOBYTES
func mountDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: disk FOLDER KILOBYTES")
	}
	size, err := strconv.Atoi(args[1])
	ts.Check(err)
	folder := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(folder, 0o700))
	unmount, err := disktest.Mount(folder, size)
	ts.Check(err)
	ts.Defer(func() { ts.Check(unmount()) })
}

// fillDisk writes a file until the disk is full, but for some kilobytes:
// fill FILE [KILOBYTES]
func fillDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: fill FILE [KILOBYTES]")
	}
	left := 0
	if len(args) == 2 {
		var err error
		left, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	ts.Check(disktest.FillDisk(ts.MkAbs(args[0]), int64(left)<<10))
}

// TestNight plays the night of an operator, with a disk of its own.
func TestNight(t *testing.T) {
	disktest.RunInMountNamespace(t, func(t *testing.T) { runScripts(t, "testdata/night", nightCommands) })
}
