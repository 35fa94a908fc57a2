package rank

import (
	"sync"

	"micronode/internal/flow"
)

const second = 2

type Service struct {
	first *flow.Mutex // want first:"rank 1"
	next  *flow.Mutex // want next:"rank 2"
	last  *flow.Mutex // want last:"rank 3"
	many  []*flow.Mutex
	plain sync.Mutex
	leaf  sync.Mutex    //lockblock:leaf only counters
	rleaf *sync.RWMutex //lockblock:leaf only counters
	none  *flow.Mutex
	given *flow.Mutex
	value flow.Mutex  // want value:"rank 4"
	Open  *flow.Mutex // want Open:"rank 6"
	Small sync.Mutex  //lockblock:leaf only counters // want Small:"leaf"
}

func adopt(s *Service, mu *flow.Mutex, make func() *flow.Mutex, spec func() flow.LockSpec, which bool) {
	s.given = mu
	s.given = make()
	s.given = flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "given", Rank: 0}) // want `the rank of this lock is not a constant above zero`
	s.given = flow.NewMutex(nil, spec())                                              // want `the rank of this lock is not a constant above zero`
	mu = flow.NewMutex(nil, struct {                                                  // want `the rank of this lock is not a constant above zero`
		Service, Name string
		Rank          int
	}{Rank: 1})
	func() { s.value = *flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "value", Rank: 4}) }()
	s.Open = flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "open", Rank: 6})
	picked := flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "open", Rank: 6})
	if which {
		picked = s.Open
	}
	s.Open = picked
}

func (s *Service) byValue() {
	s.value.Lock()
	s.Open.Lock()
	s.Open.Unlock()
	s.value.Unlock()
	s.Open.Lock()
	s.value.Lock() // want `rank 4 is taken under rank 6`
}

var shared = flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "shared", Rank: 9}) // want shared:"rank 9"

//lockblock:leaf guards one integer
var small sync.Mutex // want small:"leaf"

var spec = flow.LockSpec{Service: "s", Name: "last", Rank: 3}

func New(inv *flow.Inventory, n int) *Service {
	s := &Service{
		first: flow.NewMutex(inv, flow.LockSpec{Service: "s", Name: "first", Rank: 1}),
		last:  flow.NewMutex(inv, spec),
		many:  make([]*flow.Mutex, n),
	}
	for i := range s.many {
		s.many[i] = flow.NewMutex(inv, flow.LockSpec{"s", "many", 5})
	}
	s.next = second_(inv)
	s.none = flow.NewMutex(inv, flow.LockSpec{Service: "s", Name: "none"}) // want `the rank of this lock is not a constant above zero: write flow.LockSpec\{..., Rank: n\} with such an n in the call of flow.NewMutex`
	return s
}

func second_(inv *flow.Inventory) *flow.Mutex {
	return flow.NewMutex(inv, flow.LockSpec{Service: "s", Name: "next", Rank: second})
}

func again(s *Service, n int) {
	s.first = flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "first", Rank: 4}) // want `first has rank 4 here and rank 1 elsewhere: one lock has one rank`
	s.first = flow.NewMutex(nil, flow.LockSpec{Service: "s", Name: "first", Rank: n}) // want `the rank of this lock is not a constant` `first has no rank here and rank 1 elsewhere`
}

func (s *Service) rising() {
	s.first.Lock()
	s.next.Lock()
	s.last.Lock()
	shared.Lock()
	shared.Unlock()
	s.last.Unlock()
	s.next.Unlock()
	s.first.Unlock()
	s.many[0].Lock()
	shared.Lock()
}

func (s *Service) falling() {
	s.last.Lock()
	s.next.Lock() // want `locks Service.next while Service.last is held \(locked on line \d+\): rank 2 is taken under rank 3, and locks nest by increasing rank only: take Service.next first, or unlock Service.last before`
	s.next.Unlock()
	s.last.Unlock()
	s.many[0].Lock()
	s.last.Lock() // want `rank 3 is taken under rank 5`
}

func (s *Service) unranked() {
	s.plain.Lock()
	s.first.Lock() // want `locks Service.first while Service.plain is held \(locked on line \d+\): Service.plain has no known rank, and only ranked locks nest`
	s.first.Unlock()
	s.plain.Unlock()
	s.first.Lock()
	s.plain.Lock() // want `Service.plain has no known rank`
	s.plain.Unlock()
	s.none.Lock() // want `Service.none has no known rank`
}

func (s *Service) leaves() {
	s.plain.Lock()
	s.leaf.Lock()
	s.leaf.Unlock()
	s.rleaf.RLock()
	s.rleaf.RUnlock()
	small.Lock()
	small.Unlock()
	s.plain.Unlock()
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

func (s *Service) takesNext() {
	s.next.Lock()
	defer s.next.Unlock()
}

func (s *Service) throughCall() {
	s.first.Lock()
	s.takesNext()
	s.first.Unlock()
	s.last.Lock()
	s.takesNext() // want `calls \(\*Service\).takesNext, which locks Service.next while Service.last is held \(locked on line \d+\): rank 2 is taken under rank 3`
	s.last.Unlock()
}

func (s *Service) try() {
	s.last.Lock()
	if s.first.TryLock() { // want `rank 1 is taken under rank 3`
		s.first.Unlock()
	}
}

func local(inv *flow.Inventory, s *Service) {
	mu := flow.NewMutex(inv, flow.LockSpec{Service: "s", Name: "local", Rank: 7})
	s.last.Lock()
	mu.Lock()
	mu.Unlock()
	s.last.Unlock()
	mu.Lock()
	s.last.Lock() // want `rank 3 is taken under rank 7`
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
	s.plain.Lock()
	e.RWMutex.RLock()
	e.RWMutex.RUnlock()
	e.Plain.Lock()
	e.Plain.Unlock()
	s.plain.Unlock()
}

func (s *Service) embedded(e *embeds) {
	s.plain.Lock()
	e.Lock()
	e.Unlock()
	s.plain.Unlock()
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
