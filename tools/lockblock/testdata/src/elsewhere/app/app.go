// Package app is judged when the flags say so.
package app

import "elsewhere/flow"

var (
	low  = flow.NewMutex(flow.LockSpec{Service: "app", Name: "low", Rank: 1})
	high = flow.NewMutex(flow.LockSpec{Service: "app", Rank: 2}) // want `flow.LockSpec has no Name`
)

func nest() {
	high.Lock()
	low.Lock() // want `rank 1 is taken under rank 2`
	go nest()  // want `go statement outside supervise and flow`
}
