package journal_test

import (
	"testing"

	"micronode/internal/registry/journal"
	"micronode/internal/registry/journal/journaltest"
	"micronode/internal/testkit"
)

func TestRAM(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Opened {
		return journaltest.Opened{Journal: journal.NewRAM(journal.RAMSpec{})}
	}, journaltest.Options{})
}

func TestFiles(t *testing.T) {
	for name, spec := range map[string]journal.FilesSpec{
		"tiny segments": {SegmentVersions: 4},
		"as usual":      {},
		"tiny in bytes": {SegmentBytes: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && spec.SegmentVersions == 0 {
				t.Skip("the same suite again: make race")
			}
			journaltest.Run(t, func(t *testing.T) journaltest.Opened {
				spec := spec
				spec.Folder = t.TempDir()
				open := func(t *testing.T) journal.Journal {
					f, err := journal.OpenFiles(spec)
					testkit.Must(t, err)
					return f
				}
				return journaltest.Opened{Journal: open(t), Reopen: open}
			}, journaltest.Options{Durable: true})
		})
	}
}
