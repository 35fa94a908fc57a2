package interop

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/zeebo/blake3"

	"micronode/b3"
)

// sizes are where a BLAKE3 tree changes its shape, and a few in between.
var sizes = []int{0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 3072, 4097, 16384, 16385, 65536, 100_000, 1 << 20, 1<<20 + 1}

func sample(size int) []byte {
	source := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)})
	data := make([]byte, size)
	_, _ = source.Read(data)
	return data
}

// Another implementation of BLAKE3 finds the same addresses.
func TestAddressesAgreeWithAnotherImplementation(t *testing.T) {
	for _, size := range sizes {
		data := sample(size)
		other := blake3.Sum256(data)
		if ours := b3.Of(data); !bytes.Equal(ours[:], other[:]) {
			t.Errorf("%d bytes: ours %s, theirs %x", size, ours, other)
		}
	}
}

// The IPFS project's own library reads our CIDs as we mean them, and we read
// those it makes.
func TestCIDsAgreeWithIPFS(t *testing.T) {
	for _, size := range sizes {
		data := sample(size)
		digest := blake3.Sum256(data)
		hash, err := multihash.Encode(digest[:], multihash.BLAKE3)
		if err != nil {
			t.Fatal(err)
		}
		theirs := cid.NewCidV1(cid.Raw, hash)

		address := b3.Of(data)
		if address.CID() != theirs.String() {
			t.Errorf("%d bytes: ours %s, theirs %s", size, address.CID(), theirs)
		}
		back, err := b3.ParseCID(theirs.String())
		if err != nil || back != address {
			t.Errorf("%s read as %s, %v", theirs, back, err)
		}
		decoded, err := cid.Decode(address.CID())
		if err != nil || decoded.Prefix() != theirs.Prefix() {
			t.Errorf("theirs reads ours as %+v, %v", decoded.Prefix(), err)
		}
	}
}
