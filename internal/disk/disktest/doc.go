// Package disktest gives tests disks that fail, and one that is fast.
//
// [CrashDisk] is one in memory that fails at a chosen step, and loses power.
// [Unsynced] is the file system without syncs, for tests that lose no power.
//
// [Mount] makes a real one that is really full: a small tmpfs, visible to the
// test alone. To mount one takes a right that only root has; but any user may
// be root in a user namespace, where the system allows that. So a test runs
// itself once more, in one.
package disktest
