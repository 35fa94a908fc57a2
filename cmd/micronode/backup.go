package main

import (
	"context"
	"errors"
	"os"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/node"
)

type backupCommand struct {
	Folder string `arg:"" complete:"file" help:"The folder of run --persist."`
	File   string `arg:"" complete:"file" help:"The file to write. It must not exist."`
	outputFlags
}

// Help is shown by backup --help.
func (backupCommand) Help() string {
	return `The node may run meanwhile: all that it acknowledged before the backup began is in it. The file has the keys of the node in it, so keep it as you keep them. Left out is what the node makes anew: the cache of origins, and the catalogue of search. An object that is damaged is left out, too: it is named, and the exit code is not 0, but the backup is there.

Examples:

    micronode backup ~/node node.tar
    micronode restore node.tar ~/node-2`
}

// Run writes the file under another name first, so that there never is half a
// backup.
func (b *backupCommand) Run(ctx context.Context, c *console) error {
	const op = "backup"
	if _, err := os.Lstat(b.File); err == nil {
		return &fault.Error{Op: op, Kind: fault.Conflict, Detail: b.File + " exists", Next: "Name a file that does not exist yet. Nothing was changed."}
	}
	draft := b.File + ".part"
	file, err := os.OpenFile(draft, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.Wrap(op, err)
	}
	report, err := node.Backup(ctx, b.Folder, file)
	if err == nil {
		err = fault.Wrap(op, file.Sync())
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = fault.Wrap(op, os.Rename(draft, b.File))
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	c.printBackup(b.File, report)
	for _, one := range report.Damaged {
		c.notice("damaged, and not in it: %s", one.Address)
	}
	return report.DamageError()
}

func (c *console) printBackup(name string, report *node.BackupReport) {
	if c.json {
		c.printJSON(report)
		return
	}
	c.print("%s  %d files, %s\n", name, len(report.Files), config.Size(report.Bytes()))
}

type restoreCommand struct {
	File   string `arg:"" complete:"file" help:"The backup."`
	Folder string `arg:"" complete:"file" help:"The folder to make. It must not exist."`
	outputFlags
}

// Help is shown by restore --help.
func (restoreCommand) Help() string {
	return `Every file is verified. A folder that could not be restored whole is removed again. Two nodes with the same key must not run at once: stop the old one before you start the new one.

Example:

    micronode restore node.tar ~/node-2 && micronode run --persist ~/node-2`
}

// Run makes the folder.
func (r *restoreCommand) Run(ctx context.Context, c *console) error {
	file, err := os.Open(r.File)
	if err != nil {
		return fault.Wrap("restore", err)
	}
	defer file.Close()
	report, err := node.Restore(ctx, file, r.Folder)
	if err != nil {
		return err
	}
	c.printBackup(r.Folder, report)
	return nil
}
