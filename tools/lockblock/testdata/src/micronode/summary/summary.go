// Package summary holds what is known about functions of the same package.
package summary

import (
	"context"
	"os"
	"slices"
	"sync"
)

type S struct {
	mu   sync.Mutex
	ch   chan int
	hook func()
	park parker
}

func (s *S) lock()   { s.mu.Lock() }
func (s *S) unlock() { s.mu.Unlock() }
func (s *S) wait()   { <-s.ch }
func (s *S) deep()   { s.wait() }

func (s *S) locksForItsCaller() {
	s.lock()
	<-s.ch // want `receives from a channel while holding S.mu`
	s.unlock()
	<-s.ch
}

func (s *S) callsDeep() {
	s.mu.Lock()
	s.deep() // want `calls \(\*S\).deep, which calls \(\*S\).wait, which receives from a channel while holding S.mu`
	s.mu.Unlock()
	s.deep()
}

// waitLocked lets the caller's lock go while it waits.
func (s *S) waitLocked() {
	s.mu.Unlock()
	<-s.ch
	s.mu.Lock()
}

func (s *S) usesWaitLocked() {
	s.mu.Lock()
	s.waitLocked()
	s.mu.Unlock()
}

type outer struct {
	mu sync.Mutex
	s  S
}

func (o *outer) usesWaitLocked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.s.waitLocked() // want `calls \(\*S\).waitLocked, which receives from a channel while holding outer.mu` `calls \(\*S\).waitLocked, which locks S.mu while outer.mu is held`
}

// releasesSometimes cannot be relied on to unlock.
func (s *S) releasesSometimes(b bool) {
	if b {
		s.mu.Unlock()
	}
}

func (s *S) stillHeld() {
	s.mu.Lock()
	s.releasesSometimes(true)
	<-s.ch // want `receives from a channel while holding S.mu`
}

// releasesEarly unlocks on one of two returns.
func (s *S) releasesEarly(b bool) bool {
	if !b {
		return false
	}
	s.mu.Unlock()
	return true
}

func (s *S) stillHeldToo() {
	s.mu.Lock()
	s.releasesEarly(true)
	<-s.ch // want `receives from a channel while holding S.mu`
}

// takesSometimes is not known to return holding the lock.
func (s *S) takesSometimes() bool {
	if !s.mu.TryLock() {
		return false
	}
	return true
}

func (s *S) maybeHeld() {
	s.takesSometimes()
	<-s.ch
}

// releasesAlways unlocks on every way.
func (s *S) releasesAlways(b bool) {
	if b {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
}

func (s *S) free() {
	s.mu.Lock()
	s.releasesAlways(true)
	<-s.ch
}

// hold returns the way to unlock.
func (s *S) hold() func() {
	s.mu.Lock()
	return s.mu.Unlock
}

func (s *S) holdLiteral() func() {
	s.mu.Lock()
	return func() { s.mu.Unlock() }
}

func (s *S) usesHold() {
	defer s.hold()()
	<-s.ch // want `receives from a channel while holding S.mu`
}

func (s *S) afterHold() {
	s.usesHold()
	release := s.holdLiteral()
	release()
	<-s.ch
}

func lockIt(mu *sync.Mutex)   { mu.Lock() }
func unlockIt(mu *sync.Mutex) { mu.Unlock() }

func swap(mu *sync.Mutex, ch chan int) {
	defer func() { mu.Lock() }()
	mu.Unlock()
	<-ch
}

func (s *S) byParameter() {
	lockIt(&s.mu)
	<-s.ch // want `receives from a channel while holding S.mu`
	swap(&s.mu, s.ch)
	unlockIt(&s.mu)
	<-s.ch
	s.mu.Lock()
	lockIt(&s.mu) // want `calls lockIt, which locks S.mu while S.mu is held \(locked on line \d+\): S.mu is already held`
}

func recurse(s *S, n int) {
	if n > 0 {
		other(s, n)
	}
	<-s.ch
}

func other(s *S, n int) { recurse(s, n-1) }

func (s *S) recursion() {
	s.mu.Lock()
	other(s, 2) // want `calls other, which calls recurse, which receives from a channel while holding S.mu`
	s.mu.Unlock()
}

// with calls its argument under the lock.
func (s *S) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *S) withTwice(f func()) { s.with(f) }

func (s *S) usesWith() {
	s.with(func() {
		<-s.ch // want `receives from a channel while holding S.mu \(held by the function that calls this\)`
	})
	s.withTwice(func() {
		s.mu.Lock() // want `locks S.mu while S.mu is held by the function that calls it`
	})
	s.with(s.wait) // want `calls \(\*S\).with, which calls \(\*S\).wait, which receives from a channel while holding S.mu`
	s.with(func() { s.ch = nil })
}

func (s *S) withContext(ctx context.Context, f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(ctx)
}

type holder struct{ f func(context.Context) }

func (s *S) usesWithContext(ctx context.Context, h holder) {
	s.withContext(ctx, h.f) // want `calls \(\*S\).withContext, which calls a function value, which takes a context`
	s.withContext(ctx, func(context.Context) {})
}

func (s *S) hooks() {
	s.hook = s.wait
	s.mu.Lock()
	s.hook() // want `calls \(\*S\).wait, which receives from a channel while holding S.mu`
	hooked() // want `calls the function in hooked, which receives from a channel while holding S.mu`
	s.mu.Unlock()
}

var hooked = func() { <-signal }

var signal = make(chan int)

// parker is the seam; both kinds are seen here.
type parker interface{ sleep() }

type real struct{ ch chan int }

func (r *real) sleep() { <-r.ch }

type fake struct{}

func (fake) sleep() {}

type generic[T any] struct{ ch chan T }

func (g *generic[T]) sleep() { <-g.ch }

func (s *S) through() {
	s.mu.Lock()
	s.park.sleep() // want `calls \(\*generic\).sleep, which receives from a channel while holding S.mu`
	s.mu.Unlock()
}

func (g *generic[T]) under(mu *sync.Mutex) {
	mu.Lock()
	g.sleep() // want `calls \(\*generic\).sleep, which receives from a channel while holding mu`
	mu.Unlock()
}

func instances(g *generic[int], s *S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.sleep()       // want `calls \(\*generic\).sleep, which receives from a channel while holding S.mu`
	pull[int](g.ch) // want `calls pull, which receives from a channel while holding S.mu`
}

func pull[T any](ch chan T) T { return <-ch }

// newS stores a function that only its caller knows.
func newS(hook func()) *S { return &S{hook: hook} }

type hook func()

// Function values are followed through conversions, branches, variables and captures.
func (s *S) values(which bool, errs error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h hook = hook(s.wait)
	h() // want `calls \(\*S\).wait, which receives from a channel while holding S.mu`
	f := s.wait
	if which {
		f = func() {}
	}
	f() // want `calls \(\*S\).wait, which receives from a channel while holding S.mu`
	captured := s.wait
	func() {
		captured() // want `calls \(\*S\).wait, which receives from a channel while holding S.mu`
	}()
	named := errs.Error
	named()
	functions := []func(){s.wait}
	functions[0]()
	(*S).wait(s) // want `calls \(\*S\).wait, which receives from a channel while holding S.mu`
}

func (s *S) known(file *os.File, out *os.File) {
	s.with(func() { file.Sync() }) // want `touches the disk \(\(\*os.File\).Sync\) while holding S.mu`
	call(file.Sync)
	s.mu.Lock()
	call(file.Sync) // want `calls call, which calls \(\*os.File\).Sync, which touches the disk while holding S.mu`
	run(s.mu.Lock)  // want `calls run, which calls \(\*sync.Mutex\).Lock, which locks S.mu while S.mu is held`
	run(s.mu.Unlock)
	slices.IndexFunc([]func(){s.wait}, func(f func()) bool { f(); return true })
}

func call(f func() error) { f() }
func run(f func())        { f() }

// released lets go on one way only.
func (s *S) released(b bool) {
	if b {
		s.mu.Unlock()
	} else {
		s.ch = nil
	}
	<-s.ch
}

func (s *S) usesReleased() {
	s.mu.Lock()
	s.released(true) // want `calls \(\*S\).released, which receives from a channel while holding S.mu`
}

// both lets two of the caller's locks go.
func (o *outer) both() {
	o.mu.Unlock()
	o.s.mu.Unlock()
	<-o.s.ch
}

func (s *S) negated() {
	busy := !s.mu.TryLock()
	if busy {
		<-s.ch
		return
	}
	<-s.ch // want `receives from a channel while holding S.mu`
}

func never(s *S) {
	return
	func() { s.mu.Lock(); <-s.ch }() // want `receives from a channel while holding S.mu`
}

type narrow[T any] struct{ sleepy T }

func (n *narrow[T]) awake() {}

func a(s *S) { b(s) }
func b(s *S) { c(s) }
func c(s *S) { d(s) }
func d(s *S) { e(s) }
func e(s *S) { s.wait() }

func long(s *S) {
	s.mu.Lock()
	a(s) // want `calls a, which calls b, which calls c, which in the end receives from a channel while holding S.mu`
	s.mu.Unlock()
}
