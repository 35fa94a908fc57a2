package breaker_test

import (
	"fmt"

	"micronode/fault"
	"micronode/internal/breaker"
)

func Example() {
	targets := breaker.New(breaker.Spec{MinResults: 2})
	for range 3 {
		done, err := targets.Allow("peer-7")
		if err != nil {
			fmt.Println(fault.KindOf(err).Code())
			continue
		}
		done(fault.Timeout) // it was called, and did not answer
	}
	fmt.Println(targets.State("peer-7"), targets.State("peer-8"))
	// Output:
	// BreakerOpen
	// open closed
}
