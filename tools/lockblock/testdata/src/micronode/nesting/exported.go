package nesting

func (s *Service) TakesLast() {
	s.last.Lock()
	s.last.Unlock()
}

func (s *Service) TakesLeaf() {
	small.Lock()
	small.Unlock()
}

func (s *Service) Hold() func() {
	s.last.Lock()
	return s.last.Unlock
}

var Hook = func() { <-signal }

var signal = make(chan struct{})
