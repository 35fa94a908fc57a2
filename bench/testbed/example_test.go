package testbed_test

import (
	"context"
	"fmt"
	"regexp"

	"micronode/bench/testbed"
)

// A program is started, waited for and, with everything else, ended by Close.
func Example() {
	g, err := testbed.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	process, err := g.Start("greeter", nil, "sh", "-c", "echo listening on 127.0.0.1:4321; sleep 600")
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := process.Await(context.Background(), regexp.MustCompile(`listening on (\S+)`))
	fmt.Println(found[1], err)
	// Output: 127.0.0.1:4321 <nil>
}
