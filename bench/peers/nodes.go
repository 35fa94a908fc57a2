package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"micronode/bench/testbed"
	"micronode/fault"
)

// Node is our own node on a machine of a network, with its defaults; but for how
// much memory objects may take, where they are larger than that.
type Node struct {
	Process *testbed.Process
	host    *testbed.Host
	binary  string
	socket  string
}

// NodeSettings are what nodes of a network have besides their defaults.
type NodeSettings struct {
	Environment []string
	Persist     bool // keep objects on the disk
}

// RAM is settings for nodes that keep objects of so many bytes in memory.
func RAM(bytes int64) NodeSettings {
	return NodeSettings{Environment: []string{fmt.Sprintf("MICRO_STORE__RAM_BYTES=%d", bytes+bytes/4+256<<20)}}
}

// Disk is settings for nodes that keep objects of so many bytes on the disk.
func Disk(bytes int64) NodeSettings {
	return NodeSettings{Environment: []string{fmt.Sprintf("MICRO_STORE__MAX_OBJECT_BYTES=%d", bytes)}, Persist: true}
}

// gatewayPort is where the gateway of a node listens, for everybody, with TLS.
const gatewayPort = 8443

// StartNodes starts a node on each machine. Each knows all others, and is
// connected to them when it returns.
func StartNodes(ctx context.Context, g *testbed.Testbed, hosts []*testbed.Host, settings NodeSettings) ([]*Node, error) {
	binary, err := buildMicronode(ctx, g)
	if err != nil {
		return nil, err
	}
	keys, err := g.Folder("keys")
	if err != nil {
		return nil, err
	}
	certificate, err := writeCertificate(keys, hosts)
	if err != nil {
		return nil, err
	}
	peers := make([]string, len(hosts))
	for i, host := range hosts {
		id, err := g.RunBounded(ctx, nil, binary, "identity", "new", "--out", filepath.Join(keys, fmt.Sprint(i)))
		if err != nil {
			return nil, err
		}
		peers[i] = strings.TrimSpace(id) + "@" + host.Address + ":9500"
	}
	environment := append(append(settings.Environment, certificate...), raisedLimits...)
	nodes := make([]*Node, len(hosts))
	for i, host := range hosts {
		one := &Node{host: host, binary: binary, socket: fmt.Sprintf("micronode-bench-%d-%d", os.Getpid(), socketSerial.Add(1))}
		arguments := []string{"run", "--http", fmt.Sprintf("%s:%d", host.Address, gatewayPort), "--public", "--admin", "127.0.0.1:9600",
			"--overlay", host.Address + ":9500", "--socket", one.socket}
		if settings.Persist {
			folder, err := g.Folder("node")
			if err != nil {
				return nil, err
			}
			arguments = append(arguments, "--persist", folder)
		}
		arguments = append(arguments, "--identity", "file:"+filepath.Join(keys, fmt.Sprint(i)))
		for j, other := range peers {
			if j != i {
				arguments = append(arguments, "--peer", other)
			}
		}
		if one.Process, err = host.Start("micronode", environment, binary, arguments...); err != nil {
			return nil, err
		}
		nodes[i] = one
	}
	for _, one := range nodes {
		if err := one.awaitPeers(ctx, len(hosts)-1); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// writeCertificate writes a certificate for the gateways of all hosts, and
// returns the settings that name it.
func writeCertificate(folder string, hosts []*testbed.Host) ([]string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	for _, host := range hosts {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(host.Address))
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var settings []string
	for _, one := range []struct {
		setting, file, kind string
		bytes               []byte
	}{{"MICRO_HTTP__CERT_FILE", "cert.pem", "CERTIFICATE", certificate}, {"MICRO_HTTP__KEY_FILE", "key.pem", "PRIVATE KEY", secret}} {
		path := filepath.Join(folder, one.file)
		settings = append(settings, one.setting+"="+path)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: one.kind, Bytes: one.bytes}), 0o600); err != nil {
			return nil, err
		}
	}
	return settings, nil
}

// connectTimeout is how long nodes may take to connect to each other.
const connectTimeout = time.Minute

// awaitPeers waits until the node is connected to so many others.
func (n *Node) awaitPeers(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := n.run(ctx, "status", "--wait", "30s"); err != nil {
		return err
	}
	for {
		text, err := n.run(ctx, "peers", "--json")
		if err != nil {
			return err
		}
		var peers []struct {
			State string `json:"state"`
		}
		if err := json.Unmarshal([]byte(text), &peers); err != nil {
			return fmt.Errorf("the peers of a node: %w", err)
		}
		active := 0
		for _, one := range peers {
			if one.State == "active" {
				active++
			}
		}
		if active >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a node is connected to %d of %d others: %w", active, want, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run runs a command of ours on the machine of the node.
func (n *Node) run(ctx context.Context, arguments ...string) (string, error) {
	return n.host.RunLong(ctx, nil, n.binary, append(arguments, "--socket", n.socket)...)
}

// Put stores a file and returns its address.
func (n *Node) Put(ctx context.Context, file string) (string, error) {
	text, err := n.run(ctx, "put", file)
	address, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return address, err
}

// Get gets an object into a file, as people type it.
func (n *Node) Get(ctx context.Context, address, into string) error {
	_, err := n.run(ctx, "get", address, "-o", into)
	return err
}

// Forget removes an object, if the node has it.
func (n *Node) Forget(ctx context.Context, address string) error {
	_, err := n.run(ctx, "rm", address)
	if ended, failed := errors.AsType[*exec.ExitError](err); failed && ended.ExitCode() == fault.NotFound.Exit() {
		return nil
	}
	return err
}

// Curl gets an object from the gateway of another node into a file, with curl.
func (n *Node) Curl(ctx context.Context, from *Node, address, into string) error {
	_, err := n.host.RunLong(ctx, nil, "curl", "--silent", "--show-error", "--fail", "--insecure", "--output", into,
		fmt.Sprintf("https://%s:%d/o/%s", from.host.Address, gatewayPort, address))
	return err
}
