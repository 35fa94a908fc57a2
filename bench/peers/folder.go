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
	var nodes [2]micronode
	for i := range nodes {
		var err error
		if nodes[i], err = launchMicronode(ctx, g, nil, "--overlay", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		if err := nodes[i].awaitReady(ctx); err != nil {
			return nil, err
		}
	}
	run := func(ctx context.Context, node micronode, arguments ...string) (string, error) {
		return g.RunBounded(ctx, nil, node.binary, append(arguments, "--socket", node.socket)...)
	}
	text, err := run(ctx, nodes[0], "invite", "--json")
	if err != nil {
		return nil, err
	}
	var invited struct {
		Invitation string `json:"invitation"`
	}
	if err := json.Unmarshal([]byte(text), &invited); err != nil {
		return nil, fmt.Errorf("an invitation: %w", err)
	}
	if _, err := run(ctx, nodes[1], "join", invited.Invitation); err != nil {
		return nil, err
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
