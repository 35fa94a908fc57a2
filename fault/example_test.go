package fault_test

import (
	"errors"
	"fmt"

	"micronode/fault"
)

// put stands for an operation deep in the node.
func put(size, left int) error {
	if size > left {
		return fault.New("store.put", fault.StoreFull, "%d bytes asked for, %d left", size, left)
	}
	return nil
}

func Example() {
	err := fault.Wrap("edge.fill", put(100, 3))

	fmt.Println(err)
	fmt.Println(errors.Is(err, fault.StoreFull))

	kind := fault.KindOf(err)
	fmt.Println(kind.Code(), kind.Status(), kind.Exit(), kind.Retryable())
	fmt.Println(fault.NextOf(err))
	// Output:
	// edge.fill: store.put: 100 bytes asked for, 3 left
	// true
	// StoreFull 507 39 false
	// Remove objects, or raise store.ram_bytes (or the quota of the store in use).
}
