package allow

import (
	"sync"

	"micronode/internal/flow"
)

type S struct {
	mu    sync.Mutex
	ch    chan int
	one   sync.Mutex //lockblock:leaf // want `//lockblock:leaf has no reason: say after it why this is right`
	two   int        //lockblock:leaf this is no mutex // want `//lockblock:leaf marks nothing: put it on the line that declares a sync.Mutex or sync.RWMutex, or remove it`
	three sync.Cond  //lockblock:leaf a condition is no mutex // want `//lockblock:leaf marks nothing`
}

func (s *S) sameLine() {
	s.mu.Lock()
	<-s.ch //lockblock:allow the channel is closed before
	s.mu.Unlock()
}

func (s *S) lineAbove() {
	s.mu.Lock()
	//lockblock:allow the channel is closed before
	// anyone can come here.
	<-s.ch
	<-s.ch // want `receives from a channel`
	s.mu.Unlock()
}

func (s *S) noReason() {
	s.mu.Lock()
	<-s.ch //lockblock:allow // want `receives from a channel` `//lockblock:allow has no reason: say after it why this is right`
	s.mu.Unlock()
}

func (s *S) silencesNothing() {
	<-s.ch      //lockblock:allow nothing is wrong here // want `//lockblock:allow silences nothing: remove it`
	s.mu.Lock() //lockblock:allow this is about this line only // want `//lockblock:allow silences nothing: remove it`
	<-s.ch      // want `receives from a channel`
	s.mu.Unlock()
}

func (s *S) nesting() {
	s.mu.Lock()
	s.one.Lock() //lockblock:allow measured, and never the other way round
	s.one.Unlock()
	s.mu.Unlock()
}

func others() {
	go func() {}()        //lockblock:allow lives as long as the process
	_ = make(chan int, 2) //lockblock:allow exactly two results
	_ = flow.QueueSpec{}  //lockblock:allow a zero to compare with
	//lockblock:permit x // want `//lockblock:permit is not known: write //lockblock:allow <reason> or //lockblock:leaf <reason>`
}

// inner is allowed here, which says nothing about other locks.
func (s *S) inner() {
	s.mu.Lock()
	<-s.ch //lockblock:allow the channel is closed before
	s.mu.Unlock()
}

type T struct {
	mu sync.Mutex
	s  S
}

func (t *T) outer() {
	t.mu.Lock()
	t.s.inner() // want `calls \(\*S\).inner, which receives from a channel while holding T.mu` `calls \(\*S\).inner, which locks S.mu while T.mu is held`
	t.mu.Unlock()
}
