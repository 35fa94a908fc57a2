package kad

import (
	"runtime"
	"testing"
)

// BenchmarkOpen measures how long it takes until a network listens, and the
// memory of an idle one.
func BenchmarkOpen(b *testing.B) {
	first := open(b, 0) // initialises what is global to the library
	_ = first.Close()
	var networks []*Network
	before := heap()
	for i := 0; b.Loop(); i++ {
		n, err := Open(b.Context(), Spec{Key: keyNo(i + 1), Listen: []string{"127.0.0.1:0"}, Reach: onThisMachine})
		if err != nil {
			b.Fatal(err)
		}
		networks = append(networks, n)
		if len(networks) == 64 {
			b.StopTimer()
			b.ReportMetric(float64(heap()-before)/64/1024, "KiB-held/op")
			for _, n := range networks {
				_ = n.Close()
			}
			networks = nil
			before = heap()
			b.StartTimer()
		}
	}
	b.StopTimer()
	for _, n := range networks {
		_ = n.Close()
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// BenchmarkAsk asks one peer over an existing connection.
func BenchmarkAsk(b *testing.B) {
	one, other := pair(b)
	if err := other.Provide(b.Context(), objectNo(1)); err != nil {
		b.Fatal(err)
	}
	q := asks(objectNo(1))
	target := one.Closest(q, 1)[0]
	for b.Loop() {
		if _, err := target.Ask(b.Context(), q); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNear is the cost of Closest, which every look-up pays.
func BenchmarkNear(b *testing.B) {
	one, _ := pair(b)
	q := asks(objectNo(1))
	b.ReportAllocs()
	var near int
	for b.Loop() {
		near += len(one.Closest(q, 5))
	}
}
