package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/demo"
)

// temporaryNode is a node in RAM that runs for as long as a command takes. It is a
// process of its own, because a node gives up the right to write files, which the
// command needs.
type temporaryNode struct {
	client  *client.Client
	command *exec.Cmd
	log     *bytes.Buffer
	cancel  context.CancelFunc
}

// stopPatience is how long a temporary node may drain.
const stopPatience = 10 * time.Second

// startTemporaryNode starts a node on free ports of loopback, and waits until it
// answers. It ends with ctx; on Linux the kernel ends it with this process, too.
func startTemporaryNode(ctx context.Context) (*temporaryNode, error) {
	const op = "get.node"
	program, err := os.Executable()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	socket := fmt.Sprintf("micronode-%d.get-%d", os.Geteuid(), os.Getpid())
	ctx, cancel := context.WithCancel(ctx)
	n := &temporaryNode{log: &bytes.Buffer{}, cancel: cancel}
	n.command = exec.CommandContext(ctx, program, "run", "--json", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket)
	n.command.Args[0], n.command.Stderr = "micronode", n.log
	n.command.SysProcAttr = demo.OwnGroup() // a Ctrl-C reaches this process only
	n.client, err = client.New(client.Options{Socket: socket})
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := n.command.StdoutPipe()
	if err == nil {
		err = n.command.Start()
	}
	if err != nil {
		cancel()
		return nil, fault.Wrap(op, err)
	}
	var banner startedEvent
	if err := json.NewDecoder(out).Decode(&banner); err != nil { // its listeners are open when it prints that; of a cancelled one it is the end of the file
		n.stop()
		return nil, &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the node for this command did not start: " + sanitize(bytes.TrimSpace(n.log.Bytes())), Err: err,
			Next: "Start a node yourself with micronode run, and type the line again."}
	}
	return n, nil
}

// stop drains the node and waits for its end.
func (n *temporaryNode) stop() {
	ctx, done := context.WithTimeout(context.Background(), stopPatience)
	defer done()
	defer n.cancel()
	if err := n.client.Shutdown(ctx, "the command is done"); err != nil {
		n.cancel() // it does not answer: it is killed, and has nothing to lose
	}
	n.client.Close()
	stop := context.AfterFunc(ctx, n.cancel) //lockblock:allow it only ends the process that is waited for
	defer stop()
	_ = n.command.Wait() // it was told to end
}
