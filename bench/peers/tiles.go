package peers

import (
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"micronode/bench/load"
	"micronode/bench/testbed"
	"micronode/internal/edge/pack/packtest"
)

// Map is a pack of vector tiles from zoom 0 to 6, of about 46 MB: random bytes
// in gzip, so that no side gains by compressing or by deduplication.
type Map struct {
	File  string       // where it is
	tiles []tileTarget // of zoom 6
}

type tileTarget struct {
	target string // {z}/{x}/{y}.mvt
	body   []byte
}

// mapName is the name of the pack, and so part of its URLs.
const mapName = "bench"

// PMTilesMap writes the map as PMTiles.
func PMTilesMap(g *testbed.Testbed) (*Map, error) {
	return writeMap(g, ".pmtiles", packtest.WriteBenchPMTiles)
}

// MBTilesMap writes the same map as MBTiles.
func MBTilesMap(g *testbed.Testbed) (*Map, error) {
	return writeMap(g, ".mbtiles", packtest.WriteBenchMBTiles)
}

func writeMap(g *testbed.Testbed, extension string, write func(path string) error) (*Map, error) {
	folder, err := g.Folder("map")
	if err != nil {
		return nil, err
	}
	m := &Map{File: filepath.Join(folder, mapName+extension)}
	const zoom = 6
	for x := range uint32(1 << zoom) {
		for y := range uint32(1 << zoom) {
			target := strings.Join([]string{strconv.Itoa(zoom), strconv.Itoa(int(x)), strconv.Itoa(int(y))}, "/") + ".mvt"
			m.tiles = append(m.tiles, tileTarget{target, packtest.BenchTile(zoom, x, y)})
		}
	}
	return m, write(m.File)
}

// Tiles returns the requests for each tile of zoom 6.
func (s *Server) Tiles(m *Map, prefix string) []load.Exchange {
	exchanges := make([]load.Exchange, len(m.tiles))
	for i, one := range m.tiles {
		exchanges[i] = load.Exchange{
			Request: request("GET", prefix+one.target, s.Address, []string{"Accept-Encoding: gzip"}, nil),
			Status:  http.StatusOK, Length: len(one.body), Body: one.body,
		}
	}
	return exchanges
}

// TileServer is a program that serves tiles.
type TileServer struct {
	Name  string
	Start func(ctx context.Context, g *testbed.Testbed, m *Map) (*Server, []load.Exchange, error)
}

// MicronodeTiles is our own node with a pack.
func MicronodeTiles() TileServer {
	return TileServer{"micronode", func(ctx context.Context, g *testbed.Testbed, m *Map) (*Server, []load.Exchange, error) {
		server, err := startEdge(ctx, g, raisedLimits, "--pack", m.File)
		if err != nil {
			return nil, nil, err
		}
		return server, server.Tiles(m, "/edge/tiles/"+mapName+"/"), nil
	}}
}

// GoPMTiles is the reference server, on a folder with the pack, with its
// defaults.
func GoPMTiles() TileServer {
	return TileServer{"go-pmtiles " + pmtilesVersion, startGoPMTiles}
}

// pmtilesVersion is the one that peers/pmtiles/go.mod requires.
const pmtilesVersion = "v1.30.0"

func startGoPMTiles(ctx context.Context, g *testbed.Testbed, m *Map) (*Server, []load.Exchange, error) {
	binary, err := g.BuildOnce(ctx, "pmtiles-"+pmtilesVersion, filepath.Join("bench", "peers", "pmtiles"), "github.com/protomaps/go-pmtiles")
	if err != nil {
		return nil, nil, err
	}
	address, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	process, err := g.Start("go-pmtiles", nil, binary, "serve", filepath.Dir(m.File), "--interface", "127.0.0.1", "--port", port)
	if err != nil {
		return nil, nil, err
	}
	server := &Server{Process: process, Address: address}
	return server, server.Tiles(m, "/"+mapName+"/"), awaitOK(ctx, "http://"+address+"/"+mapName+"/0/0/0.mvt")
}
