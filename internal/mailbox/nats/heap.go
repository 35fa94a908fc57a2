package nats

import "container/heap"

// messageHeap is a heap of messages. A message is in one heap at most.
type messageHeap struct {
	items []*indexedMessage
	less  func(a, b *indexedMessage) bool
}

func (m *messageHeap) Len() int           { return len(m.items) }
func (m *messageHeap) Less(i, j int) bool { return m.less(m.items[i], m.items[j]) }
func (m *messageHeap) Swap(i, j int) {
	m.items[i], m.items[j] = m.items[j], m.items[i]
	m.items[i].heapIndex, m.items[j].heapIndex = i, j
}

// Push implements heap.Interface.
func (m *messageHeap) Push(l any) {
	added := l.(*indexedMessage)
	added.heap, added.heapIndex = m, len(m.items)
	m.items = append(m.items, added)
}

// Pop implements heap.Interface.
func (m *messageHeap) Pop() any {
	last := len(m.items) - 1
	l := m.items[last]
	m.items[last] = nil
	m.items = m.items[:last]
	l.heap = nil
	return l
}

func (m *messageHeap) add(l *indexedMessage) { heap.Push(m, l) }

func (m *messageHeap) first() *indexedMessage {
	if len(m.items) == 0 {
		return nil
	}
	return m.items[0]
}

// removeFromHeap removes a message from its heap, if it is in one.
func removeFromHeap(l *indexedMessage) {
	if l.heap != nil {
		heap.Remove(l.heap, l.heapIndex)
	}
}

func byOrder(a, b *indexedMessage) bool { return a.Order < b.Order }
func byDue(a, b *indexedMessage) bool   { return a.Due < b.Due }
