package tree_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

func sampleCheckpoint() tree.Checkpoint {
	return tree.Checkpoint{Origin: tree.Origin(registryID()), Size: 4711, Root: leaf(5), Snapshot: b3.Of([]byte("snapshot"))}
}

func samplePrune() tree.PruneNote {
	return tree.PruneNote{Registry: registryID(), Below: 256, Hash: b3.Of([]byte("255")), Size: 300}
}

func verifierOf(t testkit.T, s *tree.Signer) note.Verifier {
	t.Helper()
	v, err := tree.NewVerifier(s.VerifierKey())
	return testkit.Value(t, v, err)
}

// The bytes are a contract with other tools.
func TestCheckpointText(t *testing.T) {
	s := newSigner(t, 1)
	c := sampleCheckpoint()
	signed, err := tree.FormatCheckpoint(c, s)
	testkit.Value(t, signed, err)

	root, snapshot := leaf(5), b3.Of([]byte("snapshot"))
	want := tree.Origin(registryID()) + "\n4711\n" + base64.StdEncoding.EncodeToString(root[:]) + "\nsnapshot " + snapshot.String() + "\n\n— "
	if !strings.HasPrefix(string(signed), want+tree.Origin(registryID())+" ") {
		t.Errorf("the checkpoint is\n%s", signed)
	}
	if got, err := tree.ParseCheckpoint(signed, verifierOf(t, s)); err != nil || got != c {
		t.Errorf("read back: %v %v", got, err)
	}
	if o := tree.Origin(registryID()); o != "micronode/registry/"+registryID().String()[3:19] {
		t.Errorf("the origin is %s", o)
	}
	// The signature is over the text itself: any Ed25519 implementation agrees.
	text, sigs, _ := strings.Cut(string(signed), "\n\n")
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(sigs[strings.LastIndex(sigs, " "):]))
	key := ed25519.NewKeyFromSeed(append(make([]byte, 31), 1)).Public().(ed25519.PublicKey)
	if err != nil || !ed25519.Verify(key, []byte(text+"\n"), sig[4:]) {
		t.Errorf("the signature is not over the text: %v", err)
	}
}

func TestPruneText(t *testing.T) {
	s := newSigner(t, 1)
	p := samplePrune()
	signed, err := tree.FormatPrune(p, s)
	testkit.Value(t, signed, err)
	want := "micronode registry prune v1\n" + p.Registry.String() + "\n256\n" + p.Hash.String() + "\n300\n\n"
	if !strings.HasPrefix(string(signed), want) {
		t.Errorf("the note is\n%s", signed)
	}
	if got, err := tree.ParsePrune(signed, verifierOf(t, s)); err != nil || got != p {
		t.Errorf("read back: %v %v", got, err)
	}
}

// Any changed byte of a note is detected, and so is one that is missing or
// added.
func TestChangedNotesAreFound(t *testing.T) {
	s := newSigner(t, 1)
	v := verifierOf(t, s)
	checkpoint, err := tree.FormatCheckpoint(sampleCheckpoint(), s)
	testkit.Value(t, checkpoint, err)
	prune, err := tree.FormatPrune(samplePrune(), s)
	testkit.Value(t, prune, err)

	rapid.Check(t, func(t *rapid.T) {
		if _, err := tree.ParseCheckpoint(corruptBytes(t, checkpoint), v); err == nil {
			t.Fatalf("a changed checkpoint is accepted")
		}
		if _, err := tree.ParsePrune(corruptBytes(t, prune), v); err == nil {
			t.Fatalf("a changed prune note is accepted")
		}
	})

	// The last character before the = has two unused bits.
	at, spellings := bytes.LastIndexByte(checkpoint, '=')-1, 0
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		bad := slices.Clone(checkpoint)
		bad[at] = c
		if sameSignature(t, bad, checkpoint) {
			spellings++
		}
		if _, err := tree.ParseCheckpoint(bad, v); err == nil && c != checkpoint[at] {
			t.Fatalf("the signature can also be written with %c", c)
		}
	}
	if spellings != 4 {
		t.Fatalf("the signature has %d spellings: this looks at the wrong place", spellings)
	}
	for i := range checkpoint {
		for bit := range 8 {
			bad := slices.Clone(checkpoint)
			bad[i] ^= 1 << bit
			if _, err := tree.ParseCheckpoint(bad, v); err == nil {
				t.Fatalf("byte %d bit %d can be changed", i, bit)
			}
		}
	}
}

// sameSignature reports whether a lenient reader finds the same signature in two
// notes.
func sameSignature(t testkit.T, a, b []byte) bool {
	t.Helper()
	decode := func(signed []byte) []byte {
		fields := strings.Fields(string(signed))
		raw, err := base64.StdEncoding.DecodeString(fields[len(fields)-1])
		return testkit.Value(t, raw, err)
	}
	return bytes.Equal(decode(a), decode(b))
}

func corruptBytes(t *rapid.T, data []byte) []byte {
	i := rapid.IntRange(0, len(data)-1).Draw(t, "at")
	b := rapid.Byte().Filter(func(b byte) bool { return b != data[i] }).Draw(t, "byte")
	switch rapid.SampledFrom([]string{"change", "remove", "insert", "cut"}).Draw(t, "how") {
	case "change":
		data = slices.Clone(data)
		data[i] = b
		return data
	case "remove":
		return slices.Delete(slices.Clone(data), i, i+1)
	case "insert":
		return slices.Insert(slices.Clone(data), i, b)
	}
	return data[:i]
}

func TestForeignNotes(t *testing.T) {
	ours, theirs := newSigner(t, 1), newSigner(t, 2)
	signed, err := tree.FormatCheckpoint(sampleCheckpoint(), theirs)
	testkit.Value(t, signed, err)
	testkit.WantKind(t, testkit.ErrOf(tree.ParseCheckpoint(signed, verifierOf(t, ours))), fault.InvalidSig)
	testkit.WantKind(t, testkit.ErrOf(tree.ParsePrune(signed, verifierOf(t, ours))), fault.InvalidSig)

	// One kind of note is not the other, though the key is the same.
	testkit.WantKind(t, testkit.ErrOf(tree.ParsePrune(signed, verifierOf(t, theirs))), fault.Malformed)
	prune, err := tree.FormatPrune(samplePrune(), theirs)
	testkit.Value(t, prune, err)
	testkit.WantKind(t, testkit.ErrOf(tree.ParseCheckpoint(prune, verifierOf(t, theirs))), fault.Malformed)

	// A second signature could be changed unnoticed, so there is none.
	two, err := note.Sign(&note.Note{Text: noteText(signed)}, theirs, ours)
	testkit.Value(t, two, err)
	testkit.WantKind(t, testkit.ErrOf(tree.ParseCheckpoint(two, verifierOf(t, ours))), fault.Malformed)
}

func noteText(signed []byte) string {
	return string(signed[:bytes.LastIndex(signed, []byte("\n\n"))+1])
}

// Notes that are signed by the right key and still not a checkpoint or a prune
// note.
func TestSignedNonsense(t *testing.T) {
	s := newSigner(t, 1)
	v := verifierOf(t, s)
	origin, root := s.Name(), leaf(1).String()
	snapshot := "snapshot " + b3.Of(nil).String() + "\n"
	for _, text := range []string{
		origin + "\n1\n",
		origin + "\n1\n" + root + "\n\n",
		origin + "\n01\n" + root + "\n" + snapshot,
		origin + "\n1\n" + root + "\n" + snapshot + snapshot,
		origin + "\n1\n" + root + "\n" + snapshot + "more\n",
		origin + "\n1\n" + root + "\nmore\n" + snapshot,
		origin + "\n1\n" + root + "\n" + snapshot[len("snapshot "):],
		origin + "\n1\n" + root + "\n" + strings.ToUpper(snapshot),
		origin + "\n9007199254740993\n" + root + "\n" + snapshot,
		"other" + "\n1\n" + root + "\n" + snapshot,
	} {
		signed, err := note.Sign(&note.Note{Text: text}, s)
		testkit.Value(t, signed, err)
		testkit.WantKind(t, testkit.ErrOf(tree.ParseCheckpoint(signed, v)), fault.Malformed)
	}

	reg, hash := registryID().String(), b3.Of(nil).String()
	title := "micronode registry prune v1\n"
	for _, text := range []string{
		title,
		title + reg + "\n0\n" + hash + "\n5\n",
		title + reg + "\n6\n" + hash + "\n5\n",
		title + reg + "\n+3\n" + hash + "\n5\n",
		title + reg + "\n3\n" + hash + "\n05\n",
		title + reg + "\n3\n" + hash + "\n5\n\n",
		title + reg + "\n3\n" + hash + "\n9007199254740993\n",
		title + hash + "\n3\n" + hash + "\n5\n",
		"micronode registry prune v2\n" + reg + "\n3\n" + hash + "\n5\n",
	} {
		signed, err := note.Sign(&note.Note{Text: text}, s)
		testkit.Value(t, signed, err)
		testkit.WantKind(t, testkit.ErrOf(tree.ParsePrune(signed, v)), fault.Malformed)
	}
}

func TestNothingWrongIsSigned(t *testing.T) {
	s := newSigner(t, 1)
	c := sampleCheckpoint()
	c.Origin = "other"
	testkit.WantKind(t, testkit.ErrOf(tree.FormatCheckpoint(c, s)), fault.Malformed)
	c = sampleCheckpoint()
	c.Size = tree.MaxSize + 1
	testkit.WantKind(t, testkit.ErrOf(tree.FormatCheckpoint(c, s)), fault.Malformed)

	p := samplePrune()
	p.Below = 301
	testkit.WantKind(t, testkit.ErrOf(tree.FormatPrune(p, s)), fault.Malformed)
	p = samplePrune()
	p.Registry = b3.Of(nil)
	testkit.WantKind(t, testkit.ErrOf(tree.FormatPrune(p, s)), fault.Malformed)
}

func TestVerifierKeys(t *testing.T) {
	s := newSigner(t, 1)
	key := s.VerifierKey()
	v := verifierOf(t, s)
	if v.Name() != s.Name() || v.KeyHash() != s.KeyHash() || s.Name() != tree.Origin(registryID()) {
		t.Errorf("signer and verifier disagree: %s", key)
	}
	for i := range key {
		for _, c := range []byte("A+=a0 \n") {
			if c == key[i] {
				continue
			}
			if _, err := tree.NewVerifier(key[:i] + string(c) + key[i+1:]); fault.KindOf(err) != fault.Malformed {
				t.Fatalf("with %q at %d the key is still one: %v", c, i, err)
			}
		}
	}
	// The same key in another encoding.
	name, rest, _ := strings.Cut(key, "+")
	hash, raw, _ := strings.Cut(rest, "+")
	testkit.WantKind(t, testkit.ErrOf(tree.NewVerifier(name+"+"+strings.ToUpper(hash)+"+"+raw)), fault.Malformed)

	private := ed25519.NewKeyFromSeed(make([]byte, 32))
	testkit.WantKind(t, testkit.ErrOf(tree.NewSigner(private[:63], "name")), fault.Malformed)
	testkit.WantKind(t, testkit.ErrOf(tree.NewSigner(private, "with space")), fault.Malformed)
	testkit.WantKind(t, testkit.ErrOf(tree.VerifierKey(nil, "name")), fault.Malformed)
}

// A checkpoint that is only published has no snapshot, and its size can be read
// before it is verified.
func TestACheckpointWithoutSnapshot(t *testing.T) {
	s := newSigner(t, 1)
	signed, err := tree.FormatCheckpoint(tree.Checkpoint{Origin: s.Name(), Size: 12345, Root: leaf(1)}, s)
	testkit.Value(t, signed, err)
	if want := s.Name() + "\n12345\n" + leaf(1).String() + "\n"; noteText(signed) != want {
		t.Fatalf("the note says %q, want %q", noteText(signed), want)
	}
	c, err := tree.ParseCheckpoint(signed, verifierOf(t, s))
	testkit.Value(t, c, err)
	if c.Snapshot != (b3.Address{}) || c.Size != 12345 || c.Root != leaf(1) {
		t.Fatalf("read back as %+v", c)
	}
	size, err := tree.ClaimedSize(signed)
	testkit.Value(t, size, err)
	if size != 12345 {
		t.Fatalf("claims %d", size)
	}
	for _, bad := range []string{"", "origin", "origin\nmany\nroot", "origin\n-1\nroot", "origin\n1"} {
		testkit.WantKind(t, testkit.ErrOf(tree.ClaimedSize([]byte(bad))), fault.Malformed)
	}
}
