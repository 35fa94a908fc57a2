package tree

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"micronode/b3"
	"micronode/fault"
)

// PruneNote states that the records below a version were pruned on purpose. It
// names the last of them by its hash, so that the chain stays connected, and
// the size of a checkpoint that covers them all.
type PruneNote struct {
	Registry b3.Address
	Below    uint64     // the first version that was kept
	Hash     b3.Address // of version Below-1
	Size     uint64     // of the checkpoint: at least Below
}

const pruneTitle = "micronode registry prune v1"

// FormatPrune writes and signs a prune note. The signer must be that of the
// registry's log.
func FormatPrune(p PruneNote, s *Signer) ([]byte, error) {
	const op = "tree.format prune"
	if err := p.validate(op, s.Name()); err != nil {
		return nil, err
	}
	return signNote(op, p.text(), s)
}

// ParsePrune reads a signed prune note, and only as FormatPrune writes it.
// InvalidSig if it is not from the verifier's key.
func ParsePrune(signed []byte, v note.Verifier) (PruneNote, error) {
	const op = "tree.parse prune"
	text, err := openNote(op, signed, v)
	if err != nil {
		return PruneNote{}, err
	}
	var p PruneNote
	lines := strings.Split(text, "\n")
	if len(lines) == 6 {
		p.Registry, _ = b3.Parse(lines[1])
		p.Below, _ = strconv.ParseUint(lines[2], 10, 64)
		p.Hash, _ = b3.Parse(lines[3])
		p.Size, _ = strconv.ParseUint(lines[4], 10, 64)
	}
	if p.text() != text { // whatever could not be read was left zero
		return PruneNote{}, fault.New(op, fault.Malformed, "the note is signed but is not a prune note")
	}
	if err := p.validate(op, v.Name()); err != nil {
		return PruneNote{}, err
	}
	return p, nil
}

func (p PruneNote) text() string {
	return fmt.Sprintf("%s\n%s\n%d\n%s\n%d\n", pruneTitle, p.Registry, p.Below, p.Hash, p.Size)
}

func (p PruneNote) validate(op, signer string) error {
	switch {
	case signer != Origin(p.Registry):
		return fault.New(op, fault.Malformed, "the key of %s does not sign for %s", signer, Origin(p.Registry))
	case p.Below == 0 || p.Below > p.Size || p.Size > MaxSize:
		return fault.New(op, fault.Malformed, "a checkpoint of %d leaves does not cover everything below version %d", p.Size, p.Below)
	}
	return nil
}
