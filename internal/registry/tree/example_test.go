package tree_test

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"micronode/b3"
	"micronode/internal/registry/tree"
)

// A log of three headers signs a checkpoint. An auditor with the verifier key
// checks that the second header is in it.
func Example() {
	registry := b3.Of([]byte("the first header"))
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	signer, _ := tree.NewSigner(key, tree.Origin(registry))

	log := tree.New(nil)
	for _, header := range []string{"zero", "one", "two"} {
		log.Append(tree.LeafHash([]byte(header)))
	}
	view := log.View()
	signed, _ := tree.FormatCheckpoint(tree.Checkpoint{
		Origin:   signer.Name(),
		Size:     view.Size(),
		Root:     view.Root(),
		Snapshot: b3.Of([]byte("what the ledger was")),
	}, signer)
	proof, _ := view.ProveInclusion(context.Background(), 1, 3)

	// From here on it is the auditor.
	verifier, _ := tree.NewVerifier(signer.VerifierKey())
	checkpoint, err := tree.ParseCheckpoint(signed, verifier)
	fmt.Println(checkpoint.Origin, checkpoint.Size, err)
	fmt.Println(tree.CheckInclusion(proof, checkpoint.Size, checkpoint.Root, 1, tree.LeafHash([]byte("one"))))
	fmt.Println(tree.CheckInclusion(proof, checkpoint.Size, checkpoint.Root, 1, tree.LeafHash([]byte("won"))))
	// Output:
	// micronode/registry/b4aae4676fb302db 3 <nil>
	// <nil>
	// tree.check inclusion: leaf 1 is not proved to be in the tree of 3 leaves
}
