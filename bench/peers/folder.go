package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"micronode/bench/testbed"
)

// FolderPeer is a program that stores folders by a command of its own, as people
// type it.
type FolderPeer struct {
	Name string
	// Start starts the program, and others that can fetch from it.
	Start func(ctx context.Context, g *testbed.Testbed) (*FolderServer, error)
}

// FolderServer is a FolderPeer that runs.
type FolderServer struct {
	Put func(ctx context.Context, folder string) (address string, err error)

	// Get fetches a folder into another one, at a second node that does not have
	// it; nil if there is none.
	Get func(ctx context.Context, address, into string) error
}

// MicronodeFolders is our own node in RAM with all its defaults, rate limits
// included, and a second one that has joined it by an invitation.
func MicronodeFolders() FolderPeer { return FolderPeer{"micronode", startMicronodeFolders} }

func startMicronodeFolders(ctx context.Context, g *testbed.Testbed) (*FolderServer, error) {
	nodes, err := joinedMicronodes(ctx, g, nil, func(int) []string { return nil })
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, node micronode, arguments ...string) (string, error) {
		return g.RunBounded(ctx, nil, node.binary, append(arguments, "--socket", node.socket)...)
	}
	return &FolderServer{
		Put: func(ctx context.Context, folder string) (string, error) {
			text, err := run(ctx, nodes[0], "put", folder)
			lines := strings.Split(strings.TrimSpace(text), "\n")
			address, _, _ := strings.Cut(lines[len(lines)-1], " ")
			return address, err
		},
		Get: func(ctx context.Context, address, into string) error {
			_, err := run(ctx, nodes[1], "get", address, "-o", into+"/")
			return err
		},
	}, nil
}

// joinedMicronodes starts two nodes, each with arguments of its own. The second
// has joined the first by an invitation.
func joinedMicronodes(ctx context.Context, g *testbed.Testbed, environment []string, arguments func(i int) []string) (nodes [2]micronode, err error) {
	for i := range nodes {
		if nodes[i], err = launchMicronode(ctx, g, environment, append(arguments(i), "--overlay", "127.0.0.1:0")...); err != nil {
			return nodes, err
		}
		if err := nodes[i].awaitReady(ctx); err != nil {
			return nodes, err
		}
	}
	text, err := g.RunBounded(ctx, nil, nodes[0].binary, "invite", "--json", "--socket", nodes[0].socket)
	if err != nil {
		return nodes, err
	}
	var invited struct {
		Invitation string `json:"invitation"`
	}
	if err := json.Unmarshal([]byte(text), &invited); err != nil {
		return nodes, fmt.Errorf("an invitation: %w", err)
	}
	_, err = g.RunBounded(ctx, nil, nodes[1].binary, "join", invited.Invitation, "--socket", nodes[1].socket)
	return nodes, err
}

// KuboFolders is Kubo as in Kubo, and its command that adds a folder.
func KuboFolders() FolderPeer { return FolderPeer{"Kubo " + kuboVersion, startKuboFolders} }

func startKuboFolders(ctx context.Context, g *testbed.Testbed) (*FolderServer, error) {
	binary, environment, _, err := launchKubo(ctx, g)
	if err != nil {
		return nil, err
	}
	return &FolderServer{Put: func(ctx context.Context, folder string) (string, error) {
		text, err := g.RunBounded(ctx, environment, binary, "add", "--recursive", "--raw-leaves", "--progress=false", "--quieter", folder)
		return strings.TrimSpace(text), err
	}}, nil
}

// MakeFolder writes n files of a size. The same seed makes the same files.
func MakeFolder(g *testbed.Testbed, n, size int, seed uint64) (string, error) {
	folder, err := g.Folder("folder")
	if err != nil {
		return "", err
	}
	for i, one := range Objects(n, size, seed) {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%05d", i)), one.Body, 0o644); err != nil {
			return "", err
		}
	}
	return folder, nil
}
