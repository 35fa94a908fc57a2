package testbed

import "sync"

// output keeps what a program prints: the beginning, with the address that it
// listens on, and the end, with the reason why it died.
type output struct {
	mu     sync.Mutex
	buffer []byte
	signal chan struct{} // closed at the next write
}

// maxOutput bounds what is kept.
const maxOutput = 128 << 10

func newOutput() *output { return &output{signal: make(chan struct{})} }

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buffer = append(o.buffer, data...)
	if len(o.buffer) > maxOutput {
		o.buffer = append(o.buffer[:maxOutput/2], o.buffer[len(o.buffer)-maxOutput/4:]...)
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
	return string(o.buffer)
}

// tail returns the last output, for a message.
func (o *output) tail() string {
	text := o.text()
	return text[max(0, len(text)-2000):]
}
