package spawn

import "sync"

type looker interface{ look() int }

type watch struct {
	mu     sync.Mutex
	gate   chan int
	hook   func()
	looker looker
}

func (w *watch) underLock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook()
	w.looker.look()
}
