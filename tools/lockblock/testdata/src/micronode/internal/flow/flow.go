// Package flow is a small likeness of the real one.
package flow

import (
	"context"
	"sync"
)

type QueueSpec struct {
	Service, Name string
	Cap           int
}

type BusSpec struct {
	Name string
}

type Queue[T any] struct {
	mu    sync.Mutex //lockblock:leaf only the ring is touched under it
	items []T
	ready chan struct{}
}

func NewQueue[T any](spec QueueSpec) *Queue[T] {
	return &Queue[T]{ready: make(chan struct{}, spec.Cap)}
}

// TryPush never waits.
func (q *Queue[T]) TryPush(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, v)
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return true
}

// Pop waits.
func (q *Queue[T]) Pop(ctx context.Context) (v T, err error) { // want Pop:"locks Queue.mu; calls park, which waits in a select without a default"
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			v = q.items[0]
			q.items = q.items[1:]
			q.mu.Unlock()
			return v, nil
		}
		q.mu.Unlock()
		if err := park(ctx, q.ready); err != nil {
			return v, err
		}
	}
}

func park(ctx context.Context, ready chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Each calls f under the lock.
func (q *Queue[T]) Each(f func(T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, v := range q.items {
		f(v)
	}
}

// All yields under the lock.
func (q *Queue[T]) All() func(func(T) bool) {
	return func(yield func(T) bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, v := range q.items {
			if !yield(v) {
				return
			}
		}
	}
}

// Start may use go here.
func Start(f func()) { go f() }
