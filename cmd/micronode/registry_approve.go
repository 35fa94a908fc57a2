package main

import (
	"context"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/approval"
	"micronode/internal/terminal"
)

const approveOp = "registry.approve"

type registryApprove struct {
	ID       string `arg:"" optional:"" help:"The ID of the proposal."`
	Key      string `placeholder:"FILE" complete:"file" help:"The key to sign with; - is standard input."`
	Yes      bool   `short:"y" help:"Sign without asking. Needed where there is no terminal."`
	Print    bool   `help:"Print the message, with the signature if --key is given, instead of submitting it."`
	Message  string `placeholder:"FILE" complete:"file" help:"Sign the output of --print, or the bare message, without a node; - is standard input. With --key and --print."`
	Sig      string `placeholder:"FILE" complete:"file" help:"Submit a signature that was made elsewhere: a file with the output of --print or with the signature, - for standard input, or the signature as base64."`
	Registry string `placeholder:"b3:…" help:"Sign for this registry only."`
	passphraseFlags
	nodeFlags
	outputFlags
}

// Help is shown by registry approve --help.
func (registryApprove) Help() string {
	return `The change that is shown is the change that is signed: it comes from the operations whose hash is in the message, never from the node's description. After a confirmation the message is signed here. The key does not leave this machine.

To sign on a machine without a network: print the message, carry it over, sign it there, and submit the result here.

Examples:

    micronode registry approve k7w2… --key alice.key
    micronode registry approve k7w2… --print > message.json
    micronode registry approve --message message.json --key alice.key --print > signed.json
    micronode registry approve k7w2… --sig signed.json`
}

// Run shows a proposal and signs it.
func (r *registryApprove) Run(ctx context.Context, c *console) error {
	if err := r.validate(); err != nil {
		return err
	}
	if r.Message != "" {
		return r.signOffline(ctx, c)
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
	request, err := approval.RequestOf(r.ID, proposal)
	if err != nil {
		return err
	}
	one, err := r.verifyRequest(request)
	if err != nil {
		return err
	}
	if err := one.HasChanges(); err != nil {
		return err
	}
	if r.Print && r.Key == "" {
		r.showRequest(c, one)
		c.printJSON(one.Request)
		return nil
	}
	signers, err := approval.SignersAt(ctx, node, one.Message.SignersVersion)
	if err != nil {
		return err
	}
	made, err := r.approval(ctx, c, one, signers)
	if err != nil || r.Print {
		return err
	}
	answer, err := node.Approve(ctx, r.ID, made)
	if err != nil {
		return err
	}
	c.printApproval(r, made.SignerID, answer)
	return nil
}

// validate rejects contradictory flags.
func (r *registryApprove) validate() error {
	invalid := &fault.Error{Op: approveOp, Kind: fault.Malformed}
	switch {
	case r.Message != "" && (r.Key == "" || !r.Print || r.ID != "" || r.Sig != ""):
		invalid.Detail, invalid.Next = "--message is for signing without a node", "Write: micronode registry approve --message FILE --key FILE --print"
	case r.Message == "" && r.ID == "":
		invalid.Detail, invalid.Next = "no proposal ID was given", "Give its ID. These are open: micronode registry proposals"
	case r.Sig != "" && (r.Key != "" || r.Print):
		invalid.Detail, invalid.Next = "--sig submits an existing signature", "Leave out --key and --print, or --sig."
	case r.Sig == "" && r.Key == "" && !r.Print:
		invalid.Detail, invalid.Next = "no key was given", "Give it with --key FILE."
	case r.Message == "-" && r.Key == "-":
		invalid.Detail, invalid.Next = "the message and the key cannot both come from standard input", "Put the message into a file."
	default:
		return nil
	}
	return invalid
}

// verifyRequest verifies a signing request, and compares it with --registry.
func (r *registryApprove) verifyRequest(request approval.Request) (approval.Verified, error) {
	one, err := request.Verify()
	if err != nil || r.Registry == "" {
		return one, err
	}
	want, err := parseAddress(r.Registry)
	if err != nil {
		return one, err
	}
	return one, one.ForRegistry(want)
}

// signOffline signs a signing request without a node.
func (r *registryApprove) signOffline(ctx context.Context, c *console) error {
	raw, err := c.readAll(ctx, r.Message, approval.MaxRequestBytes)
	if err != nil {
		return withSubject(approveOp, r.Message, err)
	}
	request, err := approval.ParseRequest(raw)
	if err != nil {
		return withSubject(approveOp, r.Message, err)
	}
	one, err := r.verifyRequest(request)
	if err != nil {
		return err
	}
	_, err = r.sign(ctx, c, one, nil)
	return err
}

// approval is the signature to submit: made here, or read from --sig.
func (r *registryApprove) approval(ctx context.Context, c *console, one approval.Verified, signers []client.RegistryKey) (client.Approval, error) {
	if r.Sig == "" {
		return r.sign(ctx, c, one, signers)
	}
	signature, typed := approval.ParseBase64Signature(r.Sig, time.Now())
	if !typed {
		raw, err := c.readAll(ctx, r.Sig, approval.MaxRequestBytes)
		if err == nil {
			signature, err = approval.ParseSignature(raw, time.Now())
		}
		if err != nil {
			return client.Approval{}, withSubject(approveOp, r.Sig, err)
		}
	}
	found, err := one.Approval(signature, signers)
	if err == nil {
		r.showRequest(c, one)
	}
	return found, err
}

// sign shows what is signed, asks for confirmation, and signs it.
func (r *registryApprove) sign(ctx context.Context, c *console, one approval.Verified, signers []client.RegistryKey) (client.Approval, error) {
	if !r.Yes && (!c.inTerminal || r.Key == "-" || r.Message == "-") {
		return client.Approval{}, &fault.Error{Op: approveOp, Kind: fault.RejectPolicy, Detail: "signing needs a confirmation, and there is no terminal",
			Next: "Review it first with micronode registry approve ID --print, then use --yes."}
	}
	key, err := r.openKey(ctx, c, r.Key)
	if err != nil {
		return client.Approval{}, err
	}
	signer := ""
	if signers != nil {
		if signer, err = approval.SignerOf(key, signers); err != nil {
			return client.Approval{}, err
		}
	}
	r.showRequest(c, one)
	if err := r.confirm(ctx, c); err != nil {
		return client.Approval{}, err
	}
	signed := one.Sign(key, signer, time.Now())
	if r.Print {
		c.printJSON(signed)
	}
	return signed.Approval(), nil
}

// confirm asks the user for confirmation.
func (r *registryApprove) confirm(ctx context.Context, c *console) error {
	if r.Yes {
		return nil
	}
	answer, err := c.prompt(ctx, "Sign it? [y/N] ", false)
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &fault.Error{Op: approveOp, Kind: fault.Canceled, Detail: "it was not signed", Next: "Nothing was done."}
}

// showRequest shows what is signed. It goes to standard error where standard
// output is for a program.
func (r *registryApprove) showRequest(c *console, one approval.Verified) {
	to, m := *c, one.Message
	if c.json || r.Print {
		to.out, to.outTerminal, to.colours = c.err, c.errTerminal, false
	}
	to.print("what is signed\n\n  registry   %s\n  proposal   %s\n  expires    %s (%s)\n  signers    as of version %d\n", m.Registry,
		m.ProposalID, formatTime(m.ExpiresAt), formatRemaining(m.ExpiresAt, time.Now()), m.SignersVersion)
	if m.Base != nil {
		to.print("  only after version %d, %s\n", m.Base.Version, m.Base.Hash)
	}
	if m.Supersedes != nil {
		to.print("  takes back version %d: %s\n", m.Supersedes.Version, sanitize([]byte(m.Supersedes.Reason)))
	}
	if one.Changes == nil {
		to.print("\n  The change itself is not in the message, only its hash: %s\n\n", m.PayloadB3)
		return
	}
	to.print("\n")
	to.printChanges(one.Changes)
	to.print("\n")
}

// approvalOutput is the output for an approval.
type approvalOutput struct {
	ProposalID string `json:"proposal_id"`
	SignerID   string `json:"signer_id"`
	client.Approved
}

// printApproval prints how many approvals there are, and the next command.
func (c *console) printApproval(r *registryApprove, signer string, answer client.Approved) {
	if c.json {
		c.printJSON(approvalOutput{r.ID, signer, answer})
		return
	}
	c.print("approved by %s: %d of %d\n\n", sanitize([]byte(signer)), answer.Approvals, answer.Quorum.M)
	if missing := answer.Quorum.M - answer.Approvals; missing > 0 {
		c.print("%s needed. Another signer types:\n\n  micronode registry approve %s --key FILE%s\n", terminal.Pluralize(missing, "more approval"), r.ID, terminal.SocketFlag(r.Socket))
		return
	}
	c.print("That is enough. Now type:\n\n  micronode registry commit %s%s\n", r.ID, terminal.SocketFlag(r.Socket))
}
