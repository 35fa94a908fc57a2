// Command etcdserver is one member of an etcd cluster for the tests of this
// module. It is a program of its own, so that a test can kill it and pause it
// as an operator or a power cut would, and so that its many packages need not
// be compiled with the race detector.
//
// It prints a line when it is a member that can serve requests, and then serves
// until it is killed.
package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	folder := flag.String("folder", "", "where the member keeps its data")
	name := flag.String("name", "", "its name")
	client := flag.String("client", "", "URL that clients use")
	peer := flag.String("peer", "", "URL that other members use")
	cluster := flag.String("cluster", "", "all members, as name=URL,name=URL")
	quota := flag.Int64("quota", 0, "how many bytes the database may have; 0 for etcd's default")
	tokens := flag.Uint("tokens", 300, "how many seconds a token is good for")
	cert := flag.String("cert", "", "certificate for clients to see")
	key := flag.String("key", "", "its key")
	authority := flag.String("authority", "", "who must have signed the certificates of clients")
	flag.Parse()

	config := embed.NewConfig()
	config.Dir, config.Name, config.InitialCluster = *folder, *name, *cluster
	config.ListenClientUrls, config.AdvertiseClientUrls = urls(*client), urls(*client)
	config.ListenPeerUrls, config.AdvertisePeerUrls = urls(*peer), urls(*peer)
	config.QuotaBackendBytes, config.AuthTokenTTL = *quota, *tokens
	config.TickMs, config.ElectionMs = 50, 500
	config.LogLevel, config.LogOutputs = "error", []string{"stderr"}
	config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = *cert, *key
	config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = *authority, *authority != ""
	if err := serve(config); err != nil {
		fmt.Fprintln(os.Stderr, "etcdserver:", err)
		os.Exit(1)
	}
}

func serve(config *embed.Config) error {
	member, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	<-member.Server.ReadyNotify()
	fmt.Println("ready")
	return <-member.Err()
}

func urls(text string) []url.URL {
	u, err := url.Parse(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdserver:", err)
		os.Exit(2)
	}
	return []url.URL{*u}
}
