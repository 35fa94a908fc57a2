package main

import "context"

type registryCommit struct {
	ID string `arg:"" help:"The ID of the proposal."`
	nodeFlags
	outputFlags
}

// Help is shown by registry commit --help.
func (registryCommit) Help() string {
	return `When the hash is printed, the version is in the log, and on disk with --persist. If there are too few approvals, or an item that the proposal touches has changed since, nothing is committed.

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
	c.printHead(head)
	return nil
}
