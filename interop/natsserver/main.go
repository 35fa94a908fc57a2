// Command natsserver is one server of a NATS cluster for the tests of this
// module. It is a program of its own, so that a test can kill it and pause it
// as an operator or a power cut would, and so that its many packages need not
// be compiled with the race detector.
//
// It prints a line when it can serve requests, and then serves until it is
// killed.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	folder := flag.String("folder", "", "where the server keeps its data")
	name := flag.String("name", "", "its name")
	client := flag.String("client", "", "host:port that clients use")
	peer := flag.String("peer", "", "host:port that other servers use; empty for a server of its own")
	routes := flag.String("routes", "", "all servers of the cluster, as URLs with commas")
	token := flag.String("token", "", "what clients have to know")
	payload := flag.Int("payload", 0, "how large a message may be; 0 for the default of NATS")
	store := flag.Int64("store", 1<<40, "how many bytes all streams may take")
	cert := flag.String("cert", "", "certificate for clients to see")
	key := flag.String("key", "", "its key")
	authority := flag.String("authority", "", "who must have signed the certificates of clients")
	flag.Parse()

	options := &server.Options{
		ServerName: *name, JetStream: true, StoreDir: *folder, Authorization: *token, MaxPayload: int32(*payload),
		NoLog: true, NoSigs: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: *store,
	}
	options.Host, options.Port = address(*client)
	if *peer != "" {
		options.Cluster.Name, options.Routes = "test", server.RoutesFromStr(*routes)
		options.Cluster.Host, options.Cluster.Port = address(*peer)
	}
	if *cert != "" {
		secrets, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: *cert, KeyFile: *key, CaFile: *authority, Verify: *authority != ""})
		check(err)
		options.TLS, options.TLSConfig, options.TLSVerify = true, secrets, *authority != ""
	}
	s, err := server.NewServer(options)
	check(err)
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		check(fmt.Errorf("it does not become ready"))
	}
	fmt.Println("ready")
	s.WaitForShutdown()
}

func address(text string) (host string, port int) {
	host, number, err := net.SplitHostPort(text)
	check(err)
	port, err = strconv.Atoi(number)
	check(err)
	return host, port
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "natsserver:", err)
		os.Exit(1)
	}
}
