// Package across meets facts from other packages.
package across

import (
	"context"
	"sync"

	"example.com/third"
	"micronode/internal/flow"
	"micronode/nesting"
)

type S struct {
	mu      sync.Mutex
	queue   *flow.Queue[int]
	top     *sync.Mutex
	nesting *nesting.Service
	third   *third.Client
}

func (s *S) push() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.TryPush(1)
}

func (s *S) pop(ctx context.Context) {
	s.queue.Pop(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Pop(ctx) // want `calls \(\*flow.Queue\).Pop, which calls park, which waits in a select without a default while holding S.mu`
}

func (s *S) each(ch chan int) {
	s.queue.Each(func(v int) {
		ch <- v // want `sends on a channel while holding Queue.mu \(held by the function that calls this\)`
	})
	for v := range s.queue.All() {
		ch <- v // want `sends on a channel while holding Queue.mu`
	}
	s.queue.Each(func(v int) {
		s.mu.Lock() // want `locks S.mu while Queue.mu is held by the function that calls it: Queue.mu is declared a leaf`
		s.mu.Unlock()
	})
}

func (s *S) nests() {
	s.top.Lock()
	defer s.top.Unlock()
	s.nesting.TakesLast() // want `calls \(\*nesting.Service\).TakesLast, which locks Service.last while S.top is held \(locked on line \d+\): Service.last is no leaf`
	s.nesting.TakesLeaf()
	nesting.Hook() // want `calls the function in Hook, which receives from a channel while holding S.top`
}

func (s *S) helpers() {
	unlock := s.nesting.Hold()
	s.queue.Pop(nil) // want `calls \(\*flow.Queue\).Pop, .* while holding Service.last`
	unlock()
	s.queue.Pop(nil)
}

// A leaf is known where it is declared, also when another package locks it.
func (s *S) exported() {
	s.top.Lock()
	s.nesting.Small.Lock()
	s.nesting.Small.Unlock()
	s.nesting.Open.Lock() // want `locks Service.Open while S.top is held \(locked on line \d+\): Service.Open is no leaf`
}

func hookElsewhere(ch chan int) {
	nesting.Hook = func() { ch <- 1 }
}

// Locks of other modules count as leaves; their waits are known.
func (s *S) thirdParty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.third.Count()
	s.third.Fetch() // want `calls \(\*third.Client\).Fetch, which uses the network \(net.Dial\) while holding S.mu`
}
