// Package third belongs to another module: it is not judged.
package third

import (
	"net"
	"sync"
)

type Client struct {
	mu sync.Mutex
	in sync.Mutex
	n  int
	ch chan int
}

func (c *Client) Count() {
	c.mu.Lock()
	c.in.Lock()
	c.n++
	c.in.Unlock()
	c.mu.Unlock()
}

func (c *Client) Fetch() { net.Dial("tcp", "x") }

func (c *Client) faults() {
	c.mu.Lock()
	<-c.ch
	go c.Fetch()
	_ = make(chan int, 9)
}
