package node

import (
	"context"
	"log/slog"
	"os"

	"micronode/internal/mailbox"
)

// mailboxStages are the stages of the mailbox's services.
var mailboxStages = mailbox.Stages{State: stageState, Intake: stageIntake}

// openMailbox opens the mailbox on its engine.
func (n *Node) openMailbox(ctx context.Context, c Config) error {
	engine, err := n.mailboxEngine(ctx, c.Mailbox)
	if err != nil {
		return err
	}
	n.mailbox = mailbox.New(n.inventory, mailbox.Spec{Config: c.Mailbox, Engine: engine, Metrics: n.metrics, Readiness: n.readiness})
	return nil
}

// mailboxEngine is in memory, on the disk with --persist, or on another machine.
func (n *Node) mailboxEngine(ctx context.Context, c mailbox.Config) (mailbox.Engine, error) {
	switch {
	case c.URL != "":
		return openNATS(ctx, n.inventory, c)
	case n.folder != nil:
		folder := n.folder.join(mailboxFolder)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, folderError(folder, err)
		}
		disk, err := mailbox.OpenDisk(n.inventory, c.DiskSpec(folder))
		if err != nil {
			return nil, err // not a non-nil interface around nil
		}
		return disk, nil
	default:
		return mailbox.NewRAM(n.inventory, c.RAMSpec(true)), nil
	}
}

// onMailboxEvent logs what the operator should look at.
func (n *Node) onMailboxEvent(event mailbox.Event) {
	level := slog.LevelWarn
	if event.Type == mailbox.EngineRecovered {
		level = slog.LevelInfo
	}
	n.logAsync(level, string(event.Type), "detail", event.Detail)
}

// closeMailbox closes the mailbox.
func (n *Node) closeMailbox() error {
	if n.mailbox == nil {
		return nil
	}
	return n.mailbox.Close()
}
