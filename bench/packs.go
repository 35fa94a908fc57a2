package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// changedPiece is how long the pieces of a pack are that another version has
// others for: about what the tiles of a town take.
const changedPiece = 256 << 10

// packRows get a new version of a large file at a node that has the old one. The
// figure is how much of it moves.
func packRows(t schedule) []Benchmark {
	return []Benchmark{Row{
		Name: fmt.Sprintf("pack of %d MiB with 5 %% changed: share of its bytes that moves", t.pack>>20), Unit: "%", Lower: true, Bar: 7, Aim: 5.5, Rounds: 2,
		Ours: Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
			folder, err := newDiskFolder(g, "packs")
			if err != nil {
				return nil, err
			}
			server, err := peers.StartPacks(ctx, g, folder)
			if err != nil {
				return nil, err
			}
			return packTurn{server, folder, t.pack}.measure(), nil
		}},
	}}
}

// packTurn is a node that publishes versions of a pack, and another one that gets
// them.
type packTurn struct {
	server *peers.PackServer
	folder string
	size   int
}

// measure publishes a new pack in each turn, and then a new version of it.
func (p packTurn) measure() Measure {
	seed := byte(0)
	return func(ctx context.Context) (sample Sample, err error) {
		seed++
		file, into := filepath.Join(p.folder, "pack"), filepath.Join(p.folder, "copy")
		defer func() { err = errors.Join(err, os.Remove(file), os.Remove(into)) }()
		name := fmt.Sprintf("pack-%d", seed)
		size := int64(0)
		var before float64
		for version := range byte(2) {
			if size, err = writePack(file, p.size, seed, version); err != nil {
				return sample, err
			}
			shared, err := p.server.Put(ctx, file, name)
			if err != nil {
				return sample, err
			}
			if before, err = p.server.Sent(ctx); err != nil {
				return sample, err
			}
			if err := p.server.Get(ctx, shared, into); err != nil {
				return sample, err
			}
		}
		after, err := p.server.Sent(ctx)
		return Sample{Value: 100 * (after - before) / float64(size)}, err
	}
}

// writePack writes a version of a pack, and returns its size. It is a little less
// than the given one.
func writePack(file string, size int, seed, version byte) (int64, error) {
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	old, fresh, random := rand.NewChaCha8([32]byte{seed}), rand.NewChaCha8([32]byte{seed, version}), rand.New(rand.NewPCG(uint64(seed), uint64(version)))
	buffered := bufio.NewWriterSize(out, 1<<20)
	if version > 0 {
		fmt.Fprintf(buffered, "version %d", version)
	}
	every, piece := 20*changedPiece, make([]byte, changedPiece)
	for at := every; at <= size; at += every {
		cut := random.IntN(every - changedPiece)
		if _, err := io.CopyN(buffered, old, int64(cut)); err != nil {
			return 0, err
		}
		_, _ = old.Read(piece) // it never fails
		if version > 0 {
			_, _ = fresh.Read(piece) // it never fails
			piece = piece[:changedPiece-1-random.IntN(1000)]
		}
		_, _ = buffered.Write(piece) // Flush returns its error
		piece = piece[:changedPiece]
		if _, err := io.CopyN(buffered, old, int64(every-changedPiece-cut)); err != nil {
			return 0, err
		}
	}
	if err := buffered.Flush(); err != nil {
		return 0, err
	}
	return out.Seek(0, io.SeekCurrent)
}
