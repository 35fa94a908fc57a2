package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/keyfile"
)

type registryApprove struct {
	ID       string `arg:"" optional:"" help:"The ID of the proposal."`
	Key      string `placeholder:"FILE" complete:"file" help:"The key to sign with; - is standard input."`
	Yes      bool   `short:"y" help:"Sign without asking. Needed where there is no terminal."`
	Print    bool   `help:"Print the message, with the signature if there is a key, instead of handing it in."`
	Message  string `placeholder:"FILE" complete:"file" help:"Sign what --print has written, or the bare message, without a node; - is standard input. With --key and --print."`
	Sig      string `placeholder:"FILE" complete:"file" help:"Hand in a signature that was made elsewhere: a file with what --print has written or with the signature, - for standard input, or the signature as base64."`
	Registry string `placeholder:"b3:…" help:"Refuse to sign for any other registry than this."`
	secrecy
	target
	printing
}

// Help is shown by registry approve --help.
func (registryApprove) Help() string {
	return `What is shown is what is signed: the change is taken from the operations whose hash is in the message, never from what the node says about them. Then you are asked, and the message is signed here. The key does not leave this machine.

A key that is on a machine without a network signs there: print the message, carry it over, sign it, and bring the answer back.

Examples:

    micronode registry approve k7w2… --key alice.key
    micronode registry approve k7w2… --print > letter.json
    micronode registry approve --message letter.json --key alice.key --print > signed.json
    micronode registry approve k7w2… --sig signed.json`
}

// Run looks at a proposal and signs it.
func (r *registryApprove) Run(ctx context.Context, c *console) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.Message != "" {
		return r.offline(ctx, c)
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	proposal, err := node.Proposal(ctx, r.ID)
	if err != nil {
		return err
	}
	if err := stillOpen(proposal); err != nil {
		return err
	}
	one, err := r.examine(letter{ProposalID: r.ID, SignThis: proposal.SignThis, Ops: proposal.Ops, Diff: proposal.Diff})
	if err != nil {
		return err
	}
	if len(one.changes) == 0 {
		return misleading("the node does not say what the change is")
	}
	if r.Print && r.Key == "" {
		r.show(c, one)
		c.printJSON(one.letter)
		return nil
	}
	signers, err := signersAt(ctx, node, one.SignersVersion)
	if err != nil {
		return err
	}
	approval, err := r.approval(ctx, c, one, signers)
	if err != nil || r.Print {
		return err
	}
	answer, err := node.Approve(ctx, r.ID, approval)
	if err != nil {
		return err
	}
	c.approved(r, approval.SignerID, answer)
	return nil
}

// stillOpen refuses a proposal that nobody can approve any more.
func stillOpen(proposal client.Proposal) error {
	switch proposal.Status {
	case client.ProposalCommitted:
		err := fault.New(letterOp, fault.Conflict, "it is committed already")
		err.Next = "Nothing is left to approve. See: micronode registry log"
		return err
	case client.ProposalExpired:
		err := fault.New(letterOp, fault.Expired, "it expired at %s", stamp(proposal.ExpiresAt))
		err.Next = "Propose it again, with a longer --ttl if need be, and have it signed again."
		return err
	case client.ProposalStale:
		err := fault.New(letterOp, fault.Conflict, "it is stale: %s", visible([]byte(proposal.Reason)))
		err.Next = visible([]byte(proposal.Next))
		return err
	}
	return nil
}

// check refuses what contradicts itself.
func (r *registryApprove) check() error {
	refused := &fault.Error{Op: letterOp, Kind: fault.Malformed}
	switch {
	case r.Message != "" && (r.Key == "" || !r.Print || r.ID != "" || r.Sig != ""):
		refused.Detail, refused.Next = "--message is for signing without a node", "Write: micronode registry approve --message FILE --key FILE --print"
	case r.Message == "" && r.ID == "":
		refused.Detail, refused.Next = "nobody said which proposal", "Give its ID. These are open: micronode registry proposals"
	case r.Sig != "" && (r.Key != "" || r.Print):
		refused.Detail, refused.Next = "--sig hands in a signature that is there already", "Leave out --key and --print, or --sig."
	case r.Sig == "" && r.Key == "" && !r.Print:
		refused.Detail, refused.Next = "nobody said which key to sign with", "Name it with --key FILE."
	case r.Message == "-" && r.Key == "-":
		refused.Detail, refused.Next = "the message and the key cannot both come from standard input", "Put the message into a file."
	default:
		return nil
	}
	return refused
}

// examine opens a letter, and holds it against the registry that was named.
func (r *registryApprove) examine(l letter) (examined, error) {
	one, err := l.examine()
	if err != nil || r.Registry == "" {
		return one, err
	}
	want, err := parseAddress(r.Registry)
	if err == nil && want != one.Message.Registry {
		err = misleading("it is for the registry %s", one.Message.Registry)
	}
	return one, err
}

// offline signs a letter without a node.
func (r *registryApprove) offline(ctx context.Context, c *console) error {
	raw, err := c.readAll(ctx, r.Message, maxLetter)
	if err != nil {
		return about(letterOp, r.Message, err)
	}
	l, err := parseLetter(raw)
	if err != nil {
		return about(letterOp, r.Message, err)
	}
	one, err := r.examine(l)
	if err != nil {
		return err
	}
	_, err = r.sign(ctx, c, one, nil)
	return err
}

// approval is the signature that is handed in: made here, or brought along.
func (r *registryApprove) approval(ctx context.Context, c *console, one examined, signers []client.RegistryKey) (client.Approval, error) {
	if r.Sig == "" {
		return r.sign(ctx, c, one, signers)
	}
	sig, at, err := c.readSignature(ctx, r.Sig)
	if err != nil {
		return client.Approval{}, about(letterOp, r.Sig, err)
	}
	for _, signer := range signers {
		public, err := keyfile.ParsePublic(signer.Public)
		if err == nil && ed25519.Verify(public, one.letter.SignThis, sig) {
			r.show(c, one)
			return client.Approval{SignerID: signer.SignerID, Algo: "ed25519", Sig: sig, SignedAt: at}, nil
		}
	}
	return client.Approval{}, &fault.Error{Op: letterOp, Kind: fault.InvalidSig, Detail: "it is the signature of none of the signers over this proposal",
		Next: "Sign exactly the bytes of sign_this, with the key of a signer; micronode registry show lists them."}
}

// sign shows what is signed, asks, and signs it.
func (r *registryApprove) sign(ctx context.Context, c *console, one examined, signers []client.RegistryKey) (client.Approval, error) {
	if !r.Yes && (!c.inTerminal || r.Key == "-" || r.Message == "-") {
		return client.Approval{}, &fault.Error{Op: letterOp, Kind: fault.RejectPolicy, Detail: "there is nobody to ask whether to sign it",
			Next: "Look at it first, with micronode registry approve ID --print; then say --yes."}
	}
	key, err := r.openKey(ctx, c, r.Key)
	if err != nil {
		return client.Approval{}, err
	}
	public := keyfile.FormatPublic(keyfile.PublicOf(key))
	signer := ""
	if signers != nil {
		if signer, err = signerOf(public, signers); err != nil {
			return client.Approval{}, err
		}
	}
	r.show(c, one)
	if err := r.confirm(ctx, c); err != nil {
		return client.Approval{}, err
	}
	one.SignerID, one.Public, one.Algo = signer, public, "ed25519"
	one.Sig, one.SignedAt = ed25519.Sign(key, one.letter.SignThis), time.Now().UTC().Truncate(time.Millisecond)
	if r.Print {
		c.printJSON(one.letter)
	}
	return client.Approval{SignerID: one.SignerID, Algo: one.Algo, Sig: one.Sig, SignedAt: one.SignedAt}, nil
}

// signerOf finds out by whose key it is.
func signerOf(public string, signers []client.RegistryKey) (string, error) {
	for _, one := range signers {
		if one.Public == public {
			return one.SignerID, nil
		}
	}
	return "", &fault.Error{Op: letterOp, Kind: fault.UnknownSigner, Detail: "the key " + public + " is not that of a signer",
		Next: "Use the key of a signer; micronode registry show lists them. Nothing was signed."}
}

// signersAt are the signers since a version. The version that made them signers
// says who they are.
func signersAt(ctx context.Context, node *client.Client, version uint64) ([]client.RegistryKey, error) {
	made, err := node.RegistryVersion(ctx, version, false)
	if err != nil {
		return nil, err
	}
	for _, raw := range made.Ops {
		var op struct {
			Item struct {
				Kind string               `json:"kind"`
				Keys []client.RegistryKey `json:"keys"`
			} `json:"item"`
		}
		if json.Unmarshal(raw, &op) == nil && op.Item.Kind == "signers" {
			return op.Item.Keys, nil
		}
	}
	return nil, misleading("version %d did not change the signers", version)
}

// confirm asks whether to go on.
func (r *registryApprove) confirm(ctx context.Context, c *console) error {
	if r.Yes {
		return nil
	}
	answer, err := c.ask(ctx, "Sign it? [y/N] ", false)
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &fault.Error{Op: letterOp, Kind: fault.Canceled, Detail: "it was not signed", Next: "Nothing was done."}
}

// show says what is signed. It goes to standard error where standard output is
// for a program.
func (r *registryApprove) show(c *console, one examined) {
	to := *c
	if c.json || r.Print {
		to.out, to.colours = c.err, false
	}
	to.print("what is signed\n\n  registry   %s\n  proposal   %s\n  expires    %s (%s)\n  signers    as of version %d\n", one.Message.Registry,
		one.Message.ProposalID, stamp(one.ExpiresAt), until(one.ExpiresAt, time.Now()), one.SignersVersion)
	if one.Base != nil {
		to.print("  only after version %d, %s\n", one.Base.Version, one.Base.Hash)
	}
	if one.Supersedes != nil {
		to.print("  takes back version %d: %s\n", one.Supersedes.Version, visible([]byte(one.Supersedes.Reason)))
	}
	if one.changes == nil {
		to.print("\n  The change itself is not in the message, only its hash: %s\n\n", one.PayloadB3)
		return
	}
	to.print("\n")
	to.changes(one.changes)
	to.print("\n")
}

// readSignature reads a signature in one of its forms, and when it was made.
func (c *console) readSignature(ctx context.Context, source string) ([]byte, time.Time, error) {
	now := time.Now()
	if sig, err := base64.StdEncoding.DecodeString(source); err == nil && len(sig) == ed25519.SignatureSize {
		return sig, now, nil
	}
	raw, err := c.readAll(ctx, source, maxLetter)
	if err != nil {
		return nil, now, err
	}
	if len(raw) == ed25519.SignatureSize {
		return raw, now, nil
	}
	if sig, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(raw))); err == nil && len(sig) == ed25519.SignatureSize {
		return sig, now, nil
	}
	var one letter
	if json.Unmarshal(raw, &one) == nil && len(one.Sig) == ed25519.SignatureSize {
		if !one.SignedAt.IsZero() {
			now = one.SignedAt
		}
		return one.Sig, now, nil
	}
	return nil, now, &fault.Error{Op: letterOp, Kind: fault.Malformed, Detail: "there is no Ed25519 signature in it",
		Next: "Give 64 bytes, or their base64, or what micronode registry approve --print has written."}
}

// accepted is what is printed for an approval.
type accepted struct {
	ProposalID string `json:"proposal_id"`
	SignerID   string `json:"signer_id"`
	client.Approved
}

// approved tells how many approvals there are, and what comes next.
func (c *console) approved(r *registryApprove, signer string, answer client.Approved) {
	if c.json {
		c.printJSON(accepted{r.ID, signer, answer})
		return
	}
	c.print("approved by %s: %d of %d\n\n", visible([]byte(signer)), answer.Approvals, answer.Quorum.M)
	if missing := answer.Quorum.M - answer.Approvals; missing > 0 {
		c.print("It takes %s. Another signer types:\n\n  micronode registry approve %s --key FILE%s\n", counted(missing, "more approval"), r.ID, socketArgument(r.Socket))
		return
	}
	c.print("That is enough. Now type:\n\n  micronode registry commit %s%s\n", r.ID, socketArgument(r.Socket))
}
