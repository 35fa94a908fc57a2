package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"micronode/bench/testbed"
)

// natsVersion is the one that peers/nats/go.mod requires.
const natsVersion = "v2.15.2"

var natsModule = filepath.Join("bench", "peers", "nats")

// NATS is core NATS over TLS 1.3, with the defaults of its server and its
// client: publisher, server and subscribers, each a process of its own. Every
// message makes two hops.
func NATS() PubSub {
	return PubSub{Name: "NATS " + natsVersion, MaxMessages: natsWindow, MaxBytes: natsBytes, Start: startNATS}
}

// NATSInside is NATS with one hop: its server runs in the process of the
// subscriber, which is how NATS is embedded, and the publisher connects to it
// over TLS.
func NATSInside() PubSub {
	return PubSub{Name: "NATS inside", MaxMessages: natsWindow, MaxBytes: natsBytes, Start: startNATSInside}
}

// These do not limit NATS: with more it is no faster.
const (
	natsWindow = 8192
	natsBytes  = 8 << 20
)

const natsConfig = `listen: 127.0.0.1:-1
tls {
  cert_file: "%[1]s/cert.pem"
  key_file: "%[1]s/key.pem"
  min_version: "1.3"
}
`

var natsAddress = regexp.MustCompile(`Listening for client connections on (127\.0\.0\.1:\d+)`)

func startNATS(ctx context.Context, g *testbed.Testbed, task PubSubTask) (*Pipeline, error) {
	binary, err := g.BuildOnce(ctx, "nats-server-"+natsVersion, natsModule, "github.com/nats-io/nats-server/v2")
	if err != nil {
		return nil, err
	}
	folder, err := natsFolder(g)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "nats.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, natsConfig, folder), 0o644); err != nil {
		return nil, err
	}
	server, err := g.Start("nats-server", nil, binary, "-c", config)
	if err != nil {
		return nil, err
	}
	found, err := server.Await(ctx, natsAddress)
	if err != nil {
		return nil, err
	}
	var counters []*testbed.Process
	for range task.Counters {
		counter, _, err := startNATSClient(ctx, g, task, "count", "-server", found[1], "-certificates", folder)
		if err != nil {
			return nil, err
		}
		counters = append(counters, counter)
	}
	publisher, _, err := startNATSClient(ctx, g, task, "publish", "-server", found[1], "-certificates", folder)
	if err != nil {
		return nil, err
	}
	return newPipeline(task, publisher, counters, server), nil
}

// startNATSInside has one counter, the one with the server in it.
func startNATSInside(ctx context.Context, g *testbed.Testbed, task PubSubTask) (*Pipeline, error) {
	folder, err := natsFolder(g)
	if err != nil {
		return nil, err
	}
	counter, address, err := startNATSClient(ctx, g, task, "count", "-inside", "-certificates", folder)
	if err != nil {
		return nil, err
	}
	publisher, _, err := startNATSClient(ctx, g, task, "publish", "-server", address, "-certificates", folder)
	if err != nil {
		return nil, err
	}
	return newPipeline(task, publisher, []*testbed.Process{counter}), nil
}

func startNATSClient(ctx context.Context, g *testbed.Testbed, task PubSubTask, role string, more ...string) (*testbed.Process, string, error) {
	binary, err := g.Build(ctx, "nats", natsModule, ".")
	if err != nil {
		return nil, "", err
	}
	return startReady(ctx, g, "nats "+role, binary, append(task.arguments(role), more...)...)
}

// natsFolder holds a key and its certificate, made on the spot.
func natsFolder(g *testbed.Testbed) (string, error) {
	folder, err := g.Folder("nats")
	if err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	if err := writePEM(filepath.Join(folder, "cert.pem"), "CERTIFICATE", certificate); err != nil {
		return "", err
	}
	return folder, writePEM(filepath.Join(folder, "key.pem"), "PRIVATE KEY", secret)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
