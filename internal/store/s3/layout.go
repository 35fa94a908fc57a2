package s3

import (
	"crypto/rand"
	"strings"

	"micronode/b3"
)

// The folders, under the prefix of the store. The names of a folder sort as the
// addresses do.
const (
	folderData       = "data/"       // the bytes of an object, as they are
	folderTree       = "tree/"       // the outboard of an object that is not small
	folderPinned     = "pinned/"     // an empty key for each object that is pinned
	folderNamed      = "named/"      // an empty key for each object that is named; one that is pinned too is pinned
	folderTemporary  = "tmp/"        // bodies that are being uploaded, and deleted objects that are still open
	folderQuarantine = "quarantine/" // corrupt objects, for inspection
)

func (b *bucket) dataKey(a b3.Address) string       { return b.keyOf(folderData, a) }
func (b *bucket) treeKey(a b3.Address) string       { return b.keyOf(folderTree, a) }
func (b *bucket) pinnedKey(a b3.Address) string     { return b.keyOf(folderPinned, a) }
func (b *bucket) namedKey(a b3.Address) string      { return b.keyOf(folderNamed, a) }
func (b *bucket) quarantineKey(a b3.Address) string { return b.keyOf(folderQuarantine, a) }

// temporaryKey returns a unique key.
func (b *bucket) temporaryKey() string { return b.location.prefix + folderTemporary + rand.Text() }

func (b *bucket) keyOf(folder string, a b3.Address) string {
	return b.location.prefix + folder + strings.TrimPrefix(a.String(), b3.Prefix)
}

// addressOf parses a key of a folder. Other programs may have put keys there
// that are not ours.
func (b *bucket) addressOf(folder, key string) (b3.Address, bool) {
	name, ok := strings.CutPrefix(key, b.location.prefix+folder)
	a, err := b3.Parse(b3.Prefix + name)
	return a, ok && err == nil
}

// isUploadKey reports whether this package uploads to a key.
func (b *bucket) isUploadKey(key string) bool {
	return strings.HasPrefix(key, b.location.prefix+folderTemporary) || strings.HasPrefix(key, b.location.prefix+folderData)
}

// isTemporary reports whether a key is a temporary one.
func (b *bucket) isTemporary(key string) bool {
	return strings.HasPrefix(key, b.location.prefix+folderTemporary)
}
