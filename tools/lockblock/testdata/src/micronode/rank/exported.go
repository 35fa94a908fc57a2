package rank

func (s *Service) Lower() {
	s.last.Lock()
	s.last.Unlock()
}

func (s *Service) Higher() {
	shared.Lock()
	shared.Unlock()
}

func (s *Service) Hold() func() {
	s.last.Lock()
	return s.last.Unlock
}

var Hook = func() { <-signal }

var signal = make(chan struct{})
