package amnesia_test

import (
	"fmt"

	"micronode/internal/amnesia"
)

// A secret lives in an arena, and the set that lists the arena wipes it at the
// end and reports it.
func Example() {
	vault := amnesia.NewArenaSet()
	keys, err := vault.NewArena("keys", 4096)
	if err != nil {
		fmt.Println(err)
		return
	}
	seed, err := keys.Alloc(32)
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(seed, "correct horse battery staple")

	report := vault.ZeroAll()
	fmt.Println(report)
	fmt.Println("the seed now begins with", seed[0])

	_, err = vault.Close()
	fmt.Println("closed:", err == nil)
	_, err = keys.Alloc(32)
	fmt.Println(err)
	// Output:
	// keys zeroed (32 bytes)
	// the seed now begins with 0
	// closed: true
	// amnesia.alloc: the arena "keys" is closed
}
