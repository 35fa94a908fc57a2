// Package journaltest holds a journal to what the interface promises.
//
// There are several journals, and the registry must not notice which one it
// has. So the promises are written down once, as checks that any journal can be
// put through:
//
//	journaltest.Run(t, func(t *testing.T) journaltest.Opened {
//		return journaltest.Opened{Journal: journal.NewRAM(journal.RAMSpec{})}
//	}, journaltest.Options{})
//
// Each check opens a journal of its own. The records are of arbitrary bytes,
// because a journal does not look inside. What only some journals can do, to be
// opened again or by several at a time, is checked if [Options] says so.
//
// It does not check what a disk or a network does in the worst moment: faults
// are particular to a storage, and are injected where that storage is tested.
package journaltest
