package node

import (
	"context"
	"log/slog"
	"os"

	"micronode/internal/mailbox"
)

// mailboxStages is where the parts of the mailbox run.
var mailboxStages = mailbox.Stages{State: stageState, Intake: stageIntake}

// openMailbox opens the mailbox where its messages are kept.
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
		folder := n.folder.in(mailboxFolder)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, unusable(folder, err)
		}
		disk, err := mailbox.OpenDisk(n.inventory, c.DiskSpec(folder))
		if err != nil {
			return nil, err // not an interface around nothing
		}
		return disk, nil
	default:
		return mailbox.NewRAM(n.inventory, c.RAMSpec(true)), nil
	}
}

// heardMailbox writes down what the operator should look at.
func (n *Node) heardMailbox(event mailbox.Event) {
	level := slog.LevelWarn
	if event.Type == mailbox.EngineBack {
		level = slog.LevelInfo
	}
	n.tell(level, string(event.Type), "detail", event.Detail)
}

// closeMailbox lets go of the messages.
func (n *Node) closeMailbox() error {
	if n.mailbox == nil {
		return nil
	}
	return n.mailbox.Close()
}
