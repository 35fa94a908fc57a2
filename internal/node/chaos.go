//go:build chaos

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

// addChaos lets another process do this one harm: at each SIGUSR1, a tenth of
// its workers is killed, and at each SIGUSR2 it tries to write to disk, wherever
// that may be done, and says what came of it. It is for the reliability gates,
// which build a node of their own with the tag "chaos"; one that people run has
// nothing of it.
func (n *Node) addChaos() error {
	return n.supervisor.Add(supervise.Service{Service: service, Name: "chaos", Stage: stageWatch, Serve: n.serveChaos})
}

func (n *Node) serveChaos(ctx context.Context) error {
	orders := make(chan os.Signal, 1)
	signal.Notify(orders, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(orders)
	for {
		select {
		case order := <-orders:
			if order == syscall.SIGUSR2 {
				proof := amnesia.Prove()
				n.tell(slog.LevelInfo, "chaos", "attempts", len(proof.Attempts), "err", proof.Err())
				continue
			}
			n.tell(slog.LevelInfo, "chaos", "killed", n.supervisor.Decimate())
		case <-ctx.Done():
			return nil
		}
	}
}
