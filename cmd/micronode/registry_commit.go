package main

import "context"

type registryCommit struct {
	ID string `arg:"" help:"The ID of the proposal."`
	target
	printing
}

// Help is shown by registry commit --help.
func (registryCommit) Help() string {
	return `The version is in the log, and on the disk if there is one, when its hash is printed. If there are too few approvals, or an item that the proposal touches has changed since, nothing is done.

Example:

    micronode registry commit k7w2…`
}

// Run commits a proposal.
func (r *registryCommit) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	head, err := node.Commit(ctx, r.ID)
	if err != nil {
		return err
	}
	c.head(head)
	return nil
}
