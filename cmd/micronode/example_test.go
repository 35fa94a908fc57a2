package main

import (
	"context"
	"fmt"
	"os"
)

// An error is two lines and an exit code for its kind.
func Example() {
	c := &console{in: os.Stdin, out: os.Stdout, err: os.Stdout, exit: os.Exit}
	code := execute(context.Background(), c, []string{"get", "b3:beef"})
	fmt.Println("exit code", code)
	// Output:
	// micronode: "b3:beef" is not an address: there are 4 bytes after b3:, not 64
	// Give the address as `micronode put` printed it: b3: and 64 lower-case hex digits.
	// exit code 20
}
