package deep

import "time"

func Start(f func()) {
	go f()
	time.AfterFunc(1, f)
	_ = make(chan int, 2) // want `a channel with room for more than one value`
}
