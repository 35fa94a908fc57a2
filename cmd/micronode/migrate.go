package main

import "micronode/internal/node"

type migrateCommand struct {
	Folder string `arg:"" complete:"file" help:"The folder that was given to run --persist."`
	printing
}

// Help is shown by migrate --help.
func (migrateCommand) Help() string {
	return `No node may be running on the folder. Make a backup of it first.

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
		c.print("%s has format %d already; nothing was to be done\n", done.Folder, done.To)
	default:
		c.print("%s went from format %d to %d\n", done.Folder, done.From, done.To)
	}
	return nil
}
