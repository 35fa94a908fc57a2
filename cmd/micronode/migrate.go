package main

import "micronode/internal/node"

type migrateCommand struct {
	Folder string `arg:"" complete:"file" help:"The folder of run --persist."`
	outputFlags
}

// Help is shown by migrate --help.
func (migrateCommand) Help() string {
	return `Stop the node of the folder and back the folder up first.

Example:

    micronode migrate ~/node`
}

// Run migrates a folder.
func (m *migrateCommand) Run(c *console) error {
	done, err := node.Migrate(m.Folder)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(done)
	case done.From == done.To:
		c.print("%s already has format %d; nothing to do\n", done.Folder, done.To)
	default:
		c.print("%s migrated from format %d to %d\n", done.Folder, done.From, done.To)
	}
	return nil
}
