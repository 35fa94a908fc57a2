package queue

import "micronode/internal/flow"

const one, two = 1, 2

type ints chan int

func channels(n int) {
	_ = make(chan int)
	_ = make(chan int, 0)
	_ = make(chan int, one)
	_ = make([]int, 9)
	_ = make(chan int, two) // want `a channel with room for more than one value is a queue without name, policy or count: use flow.NewQueue`
	_ = make(chan int, n)   // want `use flow.NewQueue`
	_ = make(ints, 2)       // want `use flow.NewQueue`
}

func specs(name string) {
	_ = flow.QueueSpec{Service: "s", Name: "n"}
	_ = flow.QueueSpec{Service: "s", Name: name}
	_ = flow.QueueSpec{"s", "n", 1}
	_ = flow.QueueSpec{Service: "s"}             // want `flow.QueueSpec has no Name: the inventory lists everything by service and name, so set Name in the literal`
	_ = flow.QueueSpec{Name: "n"}                // want `flow.QueueSpec has no Service`
	_ = flow.QueueSpec{}                         // want `flow.QueueSpec has no Service and no Name: .* set Service and Name in the literal`
	_ = flow.QueueSpec{"s", "", 1}               // want `flow.QueueSpec has no Name`
	_ = &flow.BusSpec{Name: ""}                  // want `flow.BusSpec has no Name`
	_ = []*flow.BusSpec{{Name: "n"}, {Name: ""}} // want `flow.BusSpec has no Name`
	_ = flow.BusSpec{Name: "n"}
	_ = struct{ Name string }{}
	_ = []string{}
}
