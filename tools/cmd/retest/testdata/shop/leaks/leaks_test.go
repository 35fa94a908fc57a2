package leaks

import (
	"fmt"
	"os"
	"testing"
)

// TestMain does what a check for leaked goroutines does: it fails after all tests have passed.
func TestMain(m *testing.M) {
	m.Run()
	fmt.Println("goleak: Errors on successful test run: found unexpected goroutines")
	os.Exit(1)
}

func TestPasses(t *testing.T) {}
