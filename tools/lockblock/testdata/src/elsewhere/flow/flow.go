package flow

import "sync"

type LockSpec struct {
	Service, Name string
	Rank          int
}

type Mutex struct{ sync.Mutex }

func NewMutex(spec LockSpec) *Mutex { return &Mutex{} }
