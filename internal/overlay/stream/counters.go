package stream

// Directions of the counters: what we give goes out, what we ask for comes in.
const (
	Tx = "tx"
	Rx = "rx"
)

// Counters are told what happens. Any of them may be nil. They are called from
// readers of sessions, so they must not block.
type Counters struct {
	Started func(dir string)
	Ended   func(dir, status string) // status is one of Statuses
	Bytes   func(dir string, n int)  // of objects, once for each chunk
	Resumed func()                   // a download went on at another peer, or at the same one once more
	Corrupt func()                   // a download was whole, and not what its address says
}

// orNothing fills the gaps.
func (c Counters) orNothing() Counters {
	if c.Started == nil {
		c.Started = func(string) {}
	}
	if c.Ended == nil {
		c.Ended = func(string, string) {}
	}
	if c.Bytes == nil {
		c.Bytes = func(string, int) {}
	}
	if c.Resumed == nil {
		c.Resumed = func() {}
	}
	if c.Corrupt == nil {
		c.Corrupt = func() {}
	}
	return c
}
