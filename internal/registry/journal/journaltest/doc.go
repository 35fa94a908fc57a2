// Package journaltest checks a journal against the contract of the interface.
//
// There are several journals, and the registry must not notice which one it
// has. So the contract is written down once, as checks that any journal can
// run:
//
//	journaltest.Run(t, func(t *testing.T) journaltest.Opened {
//		return journaltest.Opened{Journal: journal.NewRAM(journal.RAMSpec{})}
//	}, journaltest.Options{})
//
// Each check opens a journal of its own. The records are arbitrary bytes,
// because a journal does not look inside. What only some journals can do, to be
// opened again or several times at once, is checked if [Options] says so.
//
// It does not check failures of a disk or a network: they are particular to a
// storage, and are injected in that storage's own tests.
package journaltest
