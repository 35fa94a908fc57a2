//go:build chaos && unix

package node

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"micronode/internal/amnesia"
	"micronode/internal/supervise"
)

// addChaos lets another process harm this one: at each SIGUSR1, a tenth of its
// workers is killed, and at each SIGUSR2 it tries to write to disk in every
// possible way, and logs the result. It is for the reliability gates, which
// build a node of their own with the tag "chaos"; the product does not contain
// it.
func (n *Node) addChaos() error {
	return n.supervisor.Add(supervise.Service{Service: service, Name: "chaos", Stage: stageWatch, Serve: n.serveChaos})
}

func (n *Node) serveChaos(ctx context.Context) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	for {
		select {
		case order := <-signals:
			if order == syscall.SIGUSR2 {
				proof := amnesia.TryWrites()
				n.logAsync(slog.LevelInfo, "chaos", "attempts", len(proof.Attempts), "err", proof.Err())
				continue
			}
			n.logAsync(slog.LevelInfo, "chaos", "killed", n.supervisor.KillTenth())
		case <-ctx.Done():
			return nil
		}
	}
}
