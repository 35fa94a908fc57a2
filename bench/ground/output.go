package ground

import "sync"

// output keeps what a program prints: all of the beginning, where it says
// where it listens, and the end, where it says why it died.
type output struct {
	mu     sync.Mutex
	kept   []byte
	signal chan struct{} // closed at the next write
}

// keptOutput bounds what is kept.
const keptOutput = 128 << 10

func newOutput() *output { return &output{signal: make(chan struct{})} }

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, data...)
	if len(o.kept) > keptOutput {
		o.kept = append(o.kept[:keptOutput/2], o.kept[len(o.kept)-keptOutput/4:]...)
	}
	close(o.signal)
	o.signal = make(chan struct{})
	return len(data), nil
}

func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.signal
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.kept)
}

// tail is the last that was printed, for a message.
func (o *output) tail() string {
	text := o.text()
	return text[max(0, len(text)-2000):]
}
