//go:build chaos

package node

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"micronode/internal/supervise"
)

// addChaos lets another process kill workers of this one: at each SIGUSR1, a
// tenth of them. It is for the reliability gates, which build a node of their
// own with the tag "chaos"; one that people run has nothing of it.
func (n *Node) addChaos() error {
	return n.supervisor.Add(supervise.Service{Service: service, Name: "chaos", Stage: stageWatch, Serve: n.serveChaos})
}

func (n *Node) serveChaos(ctx context.Context) error {
	orders := make(chan os.Signal, 1)
	signal.Notify(orders, syscall.SIGUSR1)
	defer signal.Stop(orders)
	for {
		select {
		case <-orders:
			n.tell(slog.LevelInfo, "chaos", "killed", n.supervisor.Decimate())
		case <-ctx.Done():
			return nil
		}
	}
}
