package bundle_test

import (
	"fmt"
	"log"

	"micronode/internal/registry/bundle"
)

type fatalT struct{}

func (fatalT) Helper()                           {}
func (fatalT) Errorf(format string, args ...any) { log.Fatalf(format, args...) }
func (fatalT) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

// An auditor has the bundle of version 3 and knows the registry's id and key
// from elsewhere.
func Example() {
	registry := sampleRegistry(fatalT{})
	data := registry.bundle(fatalT{}, 3)

	report, err := bundle.Verify(data, registry.trust(fatalT{}))
	fmt.Println(err)
	fmt.Print(report)
	// Output:
	// <nil>
	// ok    The checkpoint of 9 versions is signed by the key that you trust.
	// ok    Version 3 is in that log, at its index.
	// ok    The log of 9 versions begins with the log of 4 versions that ended with version 3.
	// ok    Version 0 is in that log, and its hash is the registry's id, that you trust.
	// ok    Version 2 is in that log, changed the signer set, and was approved by alice, bob: 2 were needed of the 3 signers of version 0.
	// ok    Version 3 was approved by alice, bob: 2 were needed of the 3 signers of version 2.
	// ok    The operations and preconditions of version 3 are those of its header.
	// note  A bundle proves only what it contains. To prove that it omits no change of the signer set, verify the whole log.
}
