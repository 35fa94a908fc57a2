package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"micronode/bench/testbed"
)

// torrentVersion is the one that peers/torrent/go.mod requires. The next one, of
// the day, needs a module that the proxy withholds.
const torrentVersion = "v1.61.0"

// TorrentName is what is beside ours.
const TorrentName = "anacrolix/torrent " + torrentVersion

const torrentPort = 42069

var torrentComplete = regexp.MustCompile("complete")

// Torrent is a seed and those that download from it and from each other: BitTorrent
// over TCP. All know all from the beginning, as our nodes do.
type Torrent struct {
	testbed *testbed.Testbed
	binary  string
	seed    *testbed.Host
	hosts   []*testbed.Host // the others
}

// NewTorrent prepares it on machines of a network, the first of which is the seed.
func NewTorrent(ctx context.Context, g *testbed.Testbed, hosts []*testbed.Host) (*Torrent, error) {
	binary, err := g.BuildOnce(ctx, "torrent-"+torrentVersion, filepath.Join("bench", "peers", "torrent"), ".")
	return &Torrent{g, binary, hosts[0], hosts[1:]}, err
}

// Download starts the seed with a file, which it takes, and then the others, and
// waits until all have the file: that is measured. Then it compares their files.
func (t *Torrent) Download(ctx context.Context, file string, measure func(func() error) error, compare func(path string) error) (err error) {
	folder, err := t.testbed.Folder("torrent")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	of := func(i int) string { return filepath.Join(folder, fmt.Sprint(i)) }
	for i := range len(t.hosts) + 1 {
		if err := os.Mkdir(of(i), 0o755); err != nil {
			return err
		}
	}
	if err := os.Rename(file, filepath.Join(of(0), "object")); err != nil {
		return err
	}
	at := func(h *testbed.Host) string { return fmt.Sprintf("%s:%d", h.Address, torrentPort) }
	described := filepath.Join(folder, "object.torrent")
	seed, err := t.seed.Start("torrent seed", nil, t.binary, "-listen", at(t.seed), "-folder", of(0), "-torrent", described)
	if err != nil {
		return err
	}
	running := []*testbed.Process{seed}
	defer func() {
		for _, one := range running {
			err = errors.Join(err, one.Stop())
		}
	}()
	if _, err := seed.Await(ctx, torrentComplete); err != nil {
		return err
	}
	peers := []string{at(t.seed)}
	for _, host := range t.hosts {
		peers = append(peers, at(host))
	}
	err = measure(func() error {
		for i, host := range t.hosts {
			one, err := host.Start("torrent", nil, t.binary, "-listen", at(host), "-folder", of(i+1), "-torrent", described, "-peers", strings.Join(peers, ","))
			if err != nil {
				return err
			}
			running = append(running, one)
		}
		for _, one := range running[1:] {
			if _, err := one.Await(ctx, torrentComplete); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range t.hosts {
		if err == nil {
			err = compare(filepath.Join(of(i+1), "object"))
		}
	}
	return err
}
