package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"micronode/bench/testbed"
)

// PackServer is two nodes of ours on disk: one publishes files under names, and
// the other gets them.
type PackServer struct {
	testbed *testbed.Testbed
	nodes   [2]micronode
	admin   string // of the first
}

// StartPacks starts them. Their folders are in the given one.
func StartPacks(ctx context.Context, g *testbed.Testbed, folder string) (*PackServer, error) {
	p := &PackServer{testbed: g}
	var err error
	streamsOnly := []string{"MICRO_NODE__ADVERTISE=http://127.0.0.1:1"} // what comes by HTTP would not be in what Sent returns
	p.nodes, err = joinedMicronodes(ctx, g, streamsOnly, func(i int) []string { return []string{"--persist", filepath.Join(folder, fmt.Sprint("node-", i))} })
	if err != nil {
		return nil, err
	}
	var status struct {
		Listen struct {
			Admin string `json:"admin"`
		} `json:"listen"`
	}
	err = p.run(ctx, 0, &status, "status")
	p.admin = status.Listen.Admin
	return p, err
}

// packTimeout bounds a command that stores or gets a pack.
const packTimeout = 5 * time.Minute

// run runs a command with --json at one of the nodes.
func (p *PackServer) run(ctx context.Context, node int, answer any, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, packTimeout)
	defer cancel()
	text, err := p.testbed.Run(ctx, ".", nil, p.nodes[node].binary, append(arguments, "--json", "--socket", p.nodes[node].socket)...)
	if err != nil {
		return err
	}
	if first := strings.IndexByte(text, '{'); first > 0 {
		text = text[first:] // behind what it says on the way
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(answer); err != nil {
		return fmt.Errorf("the answer to %s: %w in %s", arguments[0], err, text)
	}
	return nil
}

// Put publishes a file under a name, and returns that as the other node knows it.
func (p *PackServer) Put(ctx context.Context, file, name string) (shared string, err error) {
	var stored struct {
		Address string `json:"address"`
		Shared  string `json:"shared"`
	}
	if err := p.run(ctx, 0, &stored, "put", file, "--name", name); err != nil {
		return "", err
	}
	// The other node may know for a few seconds what the name stood for before.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var resolved struct {
			Manifest string `json:"manifest"`
		}
		err := p.run(ctx, 1, &resolved, "name", "get", stored.Shared)
		if err == nil && resolved.Manifest == stored.Address {
			return stored.Shared, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s does not stand for %s: %w", stored.Shared, stored.Address, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Get gets what a name stands for into a file, at the node that did not publish
// it. The command compares it with its address.
func (p *PackServer) Get(ctx context.Context, shared, into string) error {
	var got struct{}
	return p.run(ctx, 1, &got, "get", shared, "-o", into)
}

// Sent is how many bytes of objects, and of what belongs to them, the publishing
// node has sent to the other one.
func (p *PackServer) Sent(ctx context.Context) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if labels, number, found := strings.Cut(strings.TrimSpace(string(line)), "} "); found && strings.HasPrefix(labels, "object_stream_bytes_total{") && strings.Contains(labels, `dir="tx"`) {
			return strconv.ParseFloat(number, 64)
		}
	}
	return 0, fmt.Errorf("the node counts no object_stream_bytes_total")
}
