package registry

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Each property here runs a whole registry, so there are fewer tries of each
// than rapid would make; -rapid.checks asks for more.
func TestMain(m *testing.M) {
	asked := false
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		if err := flag.Set("rapid.checks", "20"); err != nil {
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
