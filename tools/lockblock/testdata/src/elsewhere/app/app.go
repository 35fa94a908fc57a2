// Package app is judged when the flags say so.
package app

import (
	"sync"

	"elsewhere/flow"
)

var (
	named    = flow.QueueSpec{Service: "app", Name: "work"}
	nameless = flow.QueueSpec{Service: "app"} // want `flow.QueueSpec has no Name`
)

var outer, inner sync.Mutex

func nest() {
	outer.Lock()
	inner.Lock() // want `inner is no leaf`
	go nest()    // want `go statement outside supervise and flow`
}
