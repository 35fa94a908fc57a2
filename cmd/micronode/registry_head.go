package main

import (
	"context"

	"micronode/client"
)

type registryHead struct {
	nodeFlags
	outputFlags
}

// Help is shown by registry head --help.
func (registryHead) Help() string {
	return `Examples:

    micronode registry head
    micronode registry head --json | jq -r .hash`
}

// Run prints the head of the log.
func (h *registryHead) Run(ctx context.Context, c *console) error {
	node, err := h.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return err
	}
	c.printHead(head)
	return nil
}

func (c *console) printHead(head client.RegistryHead) {
	if c.json {
		c.printJSON(head)
		return
	}
	c.print("version    %d\nhash       %s\npayload    %s\ncommitted  %s\n", head.Version, head.Hash, head.PayloadB3, formatTime(head.CommittedAt))
}
