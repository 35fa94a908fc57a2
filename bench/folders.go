package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// fileSize is the size of the files of a folder.
const fileSize = 2 << 10

// folderRows put folders of many small files, and get them at another node, by
// the commands that people type. A figure is the time of the whole command.
func folderRows(t schedule) []Benchmark {
	row := func(name string, bar, aim float64, turn func(folderTurn) Measure, ours peers.FolderPeer, peer ...peers.FolderPeer) Benchmark {
		r := Row{Name: fmt.Sprintf("folder of %d files of 2 KiB: %s", t.files, name), Unit: "s", Lower: true, Bar: bar, Aim: aim, Rounds: max(t.rounds-2, 1),
			Ours: folderSide(ours, t.files, turn)}
		for _, one := range peer {
			r.Name += ", beside " + one.Name
			r.Peer = folderSide(one, t.files, turn)
		}
		return r
	}
	return []Benchmark{
		row("put", 0.8, 0.4, folderTurn.put, peers.MicronodeFolders(), peers.KuboFolders()),
		row("put again", 0.2, 0, folderTurn.putAgain, peers.MicronodeFolders()),
		row("put again", 0, 0, folderTurn.putAgain, peers.MicronodeFolders(), peers.KuboFolders()),
		row("get at a second node", 2, 0, folderTurn.get, peers.MicronodeFolders()),
	}
}

// folderTurn is a program with which folders are put and got in turns.
type folderTurn struct {
	testbed *testbed.Testbed
	server  *peers.FolderServer
	files   int
}

func folderSide(peer peers.FolderPeer, files int, turn func(folderTurn) Measure) Side {
	return Side{peer.Name, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		server, err := peer.Start(ctx, g)
		if err != nil {
			return nil, err
		}
		return turn(folderTurn{g, server, files}), nil
	}}
}

// put puts a new folder in each turn.
func (f folderTurn) put() Measure {
	seed := uint64(0)
	return func(ctx context.Context) (Sample, error) {
		seed++
		folder, err := peers.MakeFolder(f.testbed, f.files, fileSize, seed)
		if err != nil {
			return Sample{}, err
		}
		sample, err := timed(func() error { _, err := f.server.Put(ctx, folder); return err })
		return sample, errors.Join(err, os.RemoveAll(folder))
	}
}

// putAgain puts a folder that is stored.
func (f folderTurn) putAgain() Measure {
	folder := ""
	return func(ctx context.Context) (Sample, error) {
		if folder == "" {
			var err error
			if folder, err = peers.MakeFolder(f.testbed, f.files, fileSize, 1); err != nil {
				return Sample{}, err
			}
			if _, err := f.server.Put(ctx, folder); err != nil {
				return Sample{}, err
			}
		}
		return timed(func() error { _, err := f.server.Put(ctx, folder); return err })
	}
}

// get gets a new folder in each turn, and compares what has arrived.
func (f folderTurn) get() Measure {
	seed := uint64(0)
	return func(ctx context.Context) (Sample, error) {
		seed++
		folder, err := peers.MakeFolder(f.testbed, f.files, fileSize, seed)
		if err != nil {
			return Sample{}, err
		}
		address, err := f.server.Put(ctx, folder)
		if err != nil {
			return Sample{}, err
		}
		into := filepath.Join(filepath.Dir(folder), fmt.Sprintf("copy-%d", seed))
		sample, err := timed(func() error { return f.server.Get(ctx, address, into) })
		if err == nil {
			err = sameFiles(folder, into)
		}
		return sample, errors.Join(err, os.RemoveAll(folder), os.RemoveAll(into))
	}
}

// timed is how long something takes, in seconds.
func timed(do func() error) (Sample, error) {
	begin := time.Now()
	err := do()
	return Sample{Value: time.Since(begin).Seconds()}, err
}

// sameFiles compares the files of two folders.
func sameFiles(a, b string) error {
	entries, err := os.ReadDir(a)
	if err != nil {
		return err
	}
	for _, one := range entries {
		want, err := os.ReadFile(filepath.Join(a, one.Name()))
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(b, one.Name()))
		if err != nil {
			return err
		}
		if string(got) != string(want) {
			return fmt.Errorf("%s differs", one.Name())
		}
	}
	return nil
}
