package cache

import (
	"bytes"
	"strings"
	"unsafe"

	"micronode/internal/index/record"
)

// overhead is about what the tables of the library take for an entry besides
// the key and the value: a node with its links, its slot in the hash table, and
// what the allocator rounds up. A test measures that it is not too little.
const overhead = 256

const (
	sizeOfString   = int64(unsafe.Sizeof(""))
	sizeOfProvider = int64(unsafe.Sizeof(record.Provider{}))
	sizeOfName     = int64(unsafe.Sizeof(record.Name{}))
	sizeOfKept     = int64(unsafe.Sizeof(storedEntry{}))
)

// cost is how many bytes an entry retains.
func cost(key Key, e *Entry) int64 {
	sum := overhead + sizeOfKept + int64(len(key)+len(e.Source))
	for i := range e.Answer.Providers {
		p := &e.Answer.Providers[i]
		sum += sizeOfProvider + int64(len(p.ID)+len(p.Region)+len(p.Source)) + stringsCost(p.Overlay) + stringsCost(p.HTTP) + stringsCost(p.Other)
	}
	if n := e.Answer.Name; n != nil {
		sum += sizeOfName + int64(len(n.Name)+len(n.Key)+len(n.Sig)+len(e.Answer.NamedBy))
	}
	return sum
}

func stringsCost(list []string) int64 {
	sum := int64(len(list)) * sizeOfString
	for _, text := range list {
		sum += int64(len(text))
	}
	return sum
}

// clone copies an entry down to its strings.
func clone(e Entry) Entry {
	e.Source = record.Source(strings.Clone(string(e.Source)))
	e.Answer.Providers = cloneEach(e.Answer.Providers, cloneProvider)
	if e.Answer.Name != nil {
		n := *e.Answer.Name
		n.Name, n.Key, n.Sig = strings.Clone(n.Name), bytes.Clone(n.Key), bytes.Clone(n.Sig)
		e.Answer.Name, e.Answer.NamedBy = &n, record.Source(strings.Clone(string(e.Answer.NamedBy)))
	}
	return e
}

func cloneProvider(p record.Provider) record.Provider {
	p.ID, p.Region = strings.Clone(p.ID), strings.Clone(p.Region)
	p.Source = record.Source(strings.Clone(string(p.Source)))
	p.Overlay, p.HTTP, p.Other = cloneEach(p.Overlay, strings.Clone), cloneEach(p.HTTP, strings.Clone), cloneEach(p.Other, strings.Clone)
	return p
}

// cloneEach makes a list without spare capacity. An empty one is nil.
func cloneEach[T any](list []T, one func(T) T) []T {
	if len(list) == 0 {
		return nil
	}
	copies := make([]T, len(list))
	for i := range list {
		copies[i] = one(list[i])
	}
	return copies
}
