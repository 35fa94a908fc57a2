// Command torrent is anacrolix/torrent as a seed or as one that downloads, over
// TCP on an address of its own, without trackers, DHT and anything else that
// looks for machines elsewhere.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"
	"golang.org/x/time/rate"
)

// pieceBytes is how large pieces are; of the usual sizes it is the fastest here.
const pieceBytes = 256 << 10

func main() {
	var address, folder, file, peers string
	flag.StringVar(&address, "listen", "", "the `address` and port to listen on")
	flag.StringVar(&folder, "folder", "", "where the `folder` with the data is")
	flag.StringVar(&file, "torrent", "", "the metainfo `file`; the seed writes it")
	flag.StringVar(&peers, "peers", "", "addresses and ports of the others, by commas; without them this is the seed, of the file \"object\"")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, address, folder, file, peers)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torrent:", err)
		os.Exit(1)
	}
}

// run seeds, or downloads and says so when all is here. Either goes on until it
// is stopped.
func run(ctx context.Context, address, folder, file, peers string) error {
	listen, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	config := torrent.NewDefaultClientConfig()
	config.ListenHost = func(string) string { return listen.Addr().String() }
	config.ListenPort, config.DataDir, config.Seed = int(listen.Port()), folder, true
	config.NoDHT, config.DisableTrackers, config.NoDefaultPortForwarding, config.DisablePEX = true, true, true, true
	config.DisableWebtorrent, config.DisableWebseeds, config.DisableIPv6, config.DisableUTP = true, true, true, true
	config.AcceptPeerConnections, config.DialRateLimiter = true, rate.NewLimiter(rate.Inf, 0)
	client, err := torrent.NewClient(config)
	if err != nil {
		return err
	}
	defer client.Close()
	if peers == "" {
		if err := describe(filepath.Join(folder, "object"), file); err != nil {
			return err
		}
	}
	described, err := metainfo.LoadFromFile(file)
	if err != nil {
		return err
	}
	running, err := client.AddTorrent(described)
	if err != nil {
		return err
	}
	var known []torrent.PeerInfo
	for one := range strings.SplitSeq(peers, ",") {
		if one != "" {
			known = append(known, torrent.PeerInfo{Addr: torrent.StringAddr(one), Trusted: true})
		}
	}
	running.AddPeers(known)
	if peers == "" {
		if err := running.VerifyDataContext(ctx); err != nil {
			return err
		}
	}
	running.DownloadAll()
	select {
	case <-running.Complete().On():
		fmt.Println("complete")
	case <-ctx.Done():
		return nil
	}
	<-ctx.Done()
	return nil
}

// describe writes the metainfo of a file.
func describe(data, file string) error {
	info := metainfo.Info{PieceLength: pieceBytes}
	if err := info.BuildFromFilePath(data); err != nil {
		return err
	}
	encoded, err := bencode.Marshal(info)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	described := metainfo.MetaInfo{InfoBytes: encoded}
	return described.Write(out)
}
