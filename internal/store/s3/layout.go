package s3

import (
	"crypto/rand"
	"strings"

	"micronode/b3"
)

// What is kept where, under the prefix of the store. The names of a folder sort
// as the addresses do.
const (
	folderData       = "data/"       // the bytes of an object, as they are
	folderTree       = "tree/"       // the outboard of an object that is not small
	folderPinned     = "pinned/"     // an empty key for each object that is pinned
	folderTemporary  = "tmp/"        // bodies on their way in, and deleted objects that are still open
	folderQuarantine = "quarantine/" // what was found corrupt, for somebody to look at
)

func (b *bucket) data(a b3.Address) string       { return b.keyOf(folderData, a) }
func (b *bucket) tree(a b3.Address) string       { return b.keyOf(folderTree, a) }
func (b *bucket) pinned(a b3.Address) string     { return b.keyOf(folderPinned, a) }
func (b *bucket) quarantine(a b3.Address) string { return b.keyOf(folderQuarantine, a) }

// temporary is a key that nobody else has.
func (b *bucket) temporary() string { return b.at.prefix + folderTemporary + rand.Text() }

func (b *bucket) keyOf(folder string, a b3.Address) string {
	return b.at.prefix + folder + strings.TrimPrefix(a.String(), b3.Prefix)
}

// addressOf reads a key of a folder. Others may have put something there that
// is not ours.
func (b *bucket) addressOf(folder, key string) (b3.Address, bool) {
	name, ours := strings.CutPrefix(key, b.at.prefix+folder)
	a, err := b3.Parse(b3.Prefix + name)
	return a, ours && err == nil
}

// ours tells whether a key is where this package uploads to.
func (b *bucket) ours(key string) bool {
	return strings.HasPrefix(key, b.at.prefix+folderTemporary) || strings.HasPrefix(key, b.at.prefix+folderData)
}

// isTemporary tells whether a key is one that nobody else has.
func (b *bucket) isTemporary(key string) bool {
	return strings.HasPrefix(key, b.at.prefix+folderTemporary)
}
