package demo

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"micronode/fault"
	"micronode/internal/config"
	micronode "micronode/internal/node"
	"micronode/internal/observe"
	"micronode/internal/terminal"
	"micronode/internal/testkit"
)

// nodeRole is the role in which the test binary is a node of the demo.
const nodeRole = "node"

// TestMain lets the test binary play the nodes of the demo: the program itself
// is on a higher floor. The tests of cmd/micronode run the demo with it.
func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func([]string) int{nodeRole: playNode})
}

// playNode is micronode run --json, as far as the demo sees it.
func playNode(args []string) (exit int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runNode(ctx, args); err != nil {
		problem := observe.ProblemOf(err, "")
		problem.Detail = terminal.ErrorText(err)
		_ = json.NewEncoder(os.Stderr).Encode(problem)
		return fault.KindOf(err).Exit()
	}
	return 0
}

func runNode(ctx context.Context, args []string) error {
	keys := map[string]string{"--http": "http.addr", "--admin": "admin.addr", "--overlay": "overlay.addr"}
	options := micronode.Options{Profile: "micronode", Sources: config.Sources{Environ: os.Environ()}, Log: os.Stderr}
	for rest := args[2:]; len(rest) >= 2; rest = rest[2:] { // after run --json
		if rest[0] == "--socket" {
			options.Socket = rest[1]
		} else {
			options.Sources.Flags = append(options.Sources.Flags, config.Flag{Key: keys[rest[0]], Name: rest[0], Value: rest[1]})
		}
	}
	n, err := micronode.New(ctx, options)
	if err != nil {
		return err
	}
	out, info := json.NewEncoder(os.Stdout), n.Info()
	_ = out.Encode(map[string]any{"event": "started", "peer_id": info.PeerID, "http": info.HTTP, "admin": info.Admin,
		"overlay": info.PeerID + "@" + n.Status().Listen.Overlay, "dht": info.DHT})
	report, err := n.Run(ctx)
	if report != nil {
		_ = out.Encode(map[string]any{"event": "stopped", "took_ms": report.Took.Milliseconds(), "aborted": report.Aborted, "left_running": report.LeftRunning})
	}
	return err
}
