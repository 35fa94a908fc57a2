package main

import (
	"fmt"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
)

type registryCommand struct {
	Keygen    registryKeygen    `cmd:"" help:"Make a signer's key, encrypted with a passphrase."`
	Init      registryInit      `cmd:"" help:"Begin a registry with its first signers."`
	Propose   registryPropose   `cmd:"" help:"Propose a change from a JSON or TOML file."`
	Proposals registryProposals `cmd:"" help:"Show the proposals that wait for approvals."`
	Approve   registryApprove   `cmd:"" help:"Look at a proposal, and sign it."`
	Commit    registryCommit    `cmd:"" help:"Make a version of a proposal that has enough approvals."`
	Supersede registrySupersede `cmd:"" help:"Propose to take back what the last version did."`
	Head      registryHead      `cmd:"" help:"Print the last version and its hash."`
	Show      registryShow      `cmd:"" help:"Show a version: who approved it, what it changed, what there was."`
	Log       registryLog       `cmd:"" help:"Show the versions, a line each, the newest first."`
	Watch     registryWatch     `cmd:"" help:"Print versions as they are committed."`
	Bundle    registryBundle    `cmd:"" help:"Export a version with all that proves it."`
	Verify    registryVerify    `cmd:"" help:"Check a node, a data folder or a bundle, from the first version to the last."`
}

// Help is shown by registry --help.
func (registryCommand) Help() string {
	return `A registry is a list that a team governs together: nodes, names, regions, and the signers themselves. A change is proposed, approved by M of N signers, and committed. Each commit is a version in a log that cannot be rewritten without being found out.

Examples:

    micronode registry keygen --out alice.key
    micronode registry init --m 2 --key alice.key.pub --key bob.key.pub --key carol.key.pub
    micronode registry propose change.toml
    micronode registry approve ID --key alice.key
    micronode registry commit ID
    micronode registry verify`
}

// stamp is how a time of the log is shown.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// until says how long it is to a moment, in words.
func until(at, now time.Time) string {
	left := at.Sub(now).Round(time.Second)
	if left <= 0 {
		return "it has expired"
	}
	return "in " + left.String()
}

// shortHash is how much of a hash a person needs to tell a few apart.
func shortHash(hash b3.Address) string { return hash.String()[:len(b3.Prefix)+12] + "…" }

// names are texts of strangers on one line.
func names(list []string) string {
	shown := make([]string, 0, len(list))
	for _, one := range list {
		shown = append(shown, visible([]byte(one)))
	}
	return strings.Join(shown, ", ")
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// proposed shows a new proposal and the command that comes next.
func (c *console) proposed(p client.Proposed, socket string) {
	if c.json {
		c.printJSON(p)
		return
	}
	c.changes(p.Diff)
	c.print("\n  proposal  %s\n  expires   %s (%s)\n", visible([]byte(p.ProposalID)), stamp(p.ExpiresAt), until(p.ExpiresAt, time.Now()))
	c.print("\nNothing has changed yet. Each signer now types:\n\n  micronode registry approve %s --key FILE%s\n",
		visible([]byte(p.ProposalID)), socketArgument(socket))
}
