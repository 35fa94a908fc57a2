package main

import "time"

// turns is how long and how often is measured.
type turns struct {
	rounds   int
	warm     time.Duration // of load that is not counted, before each turn
	time     time.Duration // of load that is
	puts     int           // objects that are stored in a turn
	objects  []int         // sizes of the axis of objects
	idle     time.Duration // that a node is left alone before its memory is read
	sessions int           // that a node holds
	settle   time.Duration // the same as idle, after many have come
	churn    time.Duration // of sessions that come and go
	versions []int         // sizes of the axes of logs

	followers int // of an author
	texts     int // that are searched
}

func turnsOf(quick, long bool) turns {
	if quick {
		return turns{rounds: 3, warm: 100 * time.Millisecond, time: 500 * time.Millisecond, puts: 2000, objects: []int{1, 100, 10_000}, idle: time.Second, sessions: 10_000, settle: 10 * time.Second, churn: 10 * time.Second, versions: []int{10, 100, 1000}, followers: 10_000, texts: 2000}
	}
	churn, versions := time.Minute, []int{100, 1000, 10_000}
	if long {
		churn, versions = 10*time.Minute, []int{100, 10_000, 1_000_000}
	}
	return turns{rounds: 7, warm: 250 * time.Millisecond, time: 2 * time.Second, puts: 8000, objects: []int{1, 1000, 100_000}, idle: 5 * time.Second, sessions: 10_000, settle: 20 * time.Second, churn: churn, versions: versions, followers: 10_000, texts: 20_000}
}
