package main

import "time"

// schedule is how long and how often is measured.
type schedule struct {
	rounds    int
	warmup    time.Duration // of load that is not counted, before each turn
	duration  time.Duration // of load that is
	puts      int           // objects that are stored in a turn
	objects   []int         // sizes of the axis of objects
	idle      time.Duration // that a node is idle before its memory is read
	sessions  int           // that a node holds
	crowdIdle time.Duration // the same as idle, after many sessions were opened
	churn     time.Duration // duration of replacing sessions
	versions  []int         // sizes of the axes of logs

	files     int // of a folder
	pack      int // bytes of a pack
	followers int // of an author
	texts     int // that are searched

	large, spread, disk int64 // bytes of an object that moves over links: from one or four, to eight, and to the disk
}

func newSchedule(quick, long bool) schedule {
	if quick {
		return schedule{rounds: 3, warmup: 100 * time.Millisecond, duration: 500 * time.Millisecond, puts: 2000, objects: []int{1, 100, 10_000}, idle: time.Second, sessions: 10_000, crowdIdle: 10 * time.Second, churn: 10 * time.Second, versions: []int{10, 100, 1000}, files: 5000, pack: 128 << 20, followers: 10_000, texts: 2000,
			large: 256 << 20, spread: 64 << 20, disk: 1 << 30}
	}
	churn, versions := time.Minute, []int{100, 1000, 10_000}
	if long {
		churn, versions = 10*time.Minute, []int{100, 10_000, 1_000_000}
	}
	return schedule{rounds: 7, warmup: 250 * time.Millisecond, duration: 2 * time.Second, puts: 8000, objects: []int{1, 1000, 100_000}, idle: 5 * time.Second, sessions: 10_000, crowdIdle: 20 * time.Second, churn: churn, versions: versions, files: 5000, pack: 1 << 30, followers: 10_000, texts: 20_000,
		large: 1 << 30, spread: 256 << 20, disk: 10 << 30}
}
