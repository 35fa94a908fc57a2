package nesting

import "sync"

type Service struct {
	first sync.Mutex
	last  *sync.Mutex
	many  []*sync.Mutex
	leaf  sync.Mutex    //lockblock:leaf only counters
	rleaf *sync.RWMutex //lockblock:leaf only counters
	Open  *sync.Mutex
	Small sync.Mutex //lockblock:leaf only counters // want Small:"leaf"
}

var shared sync.Mutex

//lockblock:leaf guards one integer
var small sync.Mutex // want small:"leaf"

func (s *Service) plain() {
	s.first.Lock()
	s.last.Lock() // want `locks Service.last while Service.first is held \(locked on line \d+\): Service.last is no leaf, and only leaves are locked under another lock: unlock Service.first first, or declare Service.last //lockblock:leaf if nothing is locked under it`
	s.last.Unlock()
	s.first.Unlock()
	s.last.Lock()
	s.first.Lock() // want `Service.first is no leaf`
	s.first.Unlock()
	s.last.Unlock()
	s.many[0].Lock()
	shared.Lock() // want `locks shared while Service.many is held \(locked on line \d+\): shared is no leaf`
	shared.Unlock()
	s.many[1].Lock() // want `Service.many is already held`
}

func (s *Service) leaves() {
	s.first.Lock()
	s.leaf.Lock()
	s.leaf.Unlock()
	s.rleaf.RLock()
	s.rleaf.RUnlock()
	small.Lock()
	small.Unlock()
	s.first.Unlock()
	s.leaf.Lock()
	small.Lock() // want `locks small while Service.leaf is held \(locked on line \d+\): Service.leaf is declared a leaf, so nothing is locked under it: unlock it first`
	small.Unlock()
	s.last.Lock() // want `Service.leaf is declared a leaf`
}

func (s *Service) twice(t *Service) {
	s.first.Lock()
	t.first.Lock() // want `locks Service.first while Service.first is held \(locked on line \d+\): Service.first is already held, and a lock of the same field is never taken twice`
}

func (s *Service) readTwice() {
	s.rleaf.RLock()
	s.rleaf.RLock() // want `Service.rleaf is already held`
}

func (s *Service) takesLeaf() {
	s.leaf.Lock()
	defer s.leaf.Unlock()
}

func (s *Service) takesLast() {
	s.last.Lock()
	defer s.last.Unlock()
}

func (s *Service) throughCall() {
	s.first.Lock()
	s.takesLeaf()
	s.takesLast() // want `calls \(\*Service\).takesLast, which locks Service.last while Service.first is held \(locked on line \d+\): Service.last is no leaf`
	s.first.Unlock()
	s.takesLast()
}

func (s *Service) try() {
	s.last.Lock()
	if s.leaf.TryLock() {
		s.leaf.Unlock()
	}
	if s.first.TryLock() { // want `Service.first is no leaf`
		s.first.Unlock()
	}
}

func local(s *Service, which bool) {
	mu := new(sync.Mutex)
	s.last.Lock()
	mu.Lock() // want `locks the mutex of line \d+ while Service.last is held`
	mu.Unlock()
	s.last.Unlock()
	mu.Lock()
	s.leaf.Lock()
	s.leaf.Unlock()
	s.last.Lock() // want `Service.last is no leaf`
	s.last.Unlock()
	mu.Unlock()
	picked := &s.leaf
	if which {
		picked = &s.first
	}
	s.last.Lock()
	picked.Lock() // want `the mutex of line \d+ is no leaf`
}

type embeds struct {
	sync.Mutex //lockblock:leaf only a count
	n          int
}

type Plain = sync.Mutex

type embedsPointer struct {
	*sync.RWMutex //lockblock:leaf only a count
	Plain         //lockblock:leaf only a count
}

func (s *Service) embeddedPointer(e *embedsPointer) {
	s.first.Lock()
	e.RWMutex.RLock()
	e.RWMutex.RUnlock()
	e.Plain.Lock()
	e.Plain.Unlock()
	s.first.Unlock()
}

func (s *Service) embedded(e *embeds) {
	s.first.Lock()
	e.Lock()
	e.Unlock()
	s.first.Unlock()
}

func functionLocal() {
	type pair struct{ mu sync.Mutex }
	var a pair
	var grouped struct {
		//lockblock:leaf only a count
		mu sync.Mutex
	}
	var (
		low sync.Mutex //lockblock:leaf only a count
	)
	a.mu.Lock()
	grouped.mu.Lock()
	grouped.mu.Unlock()
	low.Lock()
	low.Unlock()
	a.mu.Unlock()
}
