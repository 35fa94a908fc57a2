// Package tampertest changes the log of a registry in every way that is
// possible with write access to the storage, and checks that the registry
// notices.
//
// It makes a log with the real ledger, changes a copy, and writes the copy
// through the storage's own interface, so that checksums and indices are right:
//
//	tampertest.Run(t, func(t *testing.T) tampertest.Storage {
//		return tampertest.Storage{Journal: journal.NewRAM(journal.RAMSpec{})}
//	})
//
// Each change is made to a complete log and to one whose oldest versions were
// pruned. Both an offline verification of the log and the verifier of a node
// that runs on it must detect it, and no reader may be served what was changed.
// Some changes need the log's own key. They are made, too: a signed note with a
// false statement must be detected as well.
//
// The package exists for tests. No product code imports it.
package tampertest
