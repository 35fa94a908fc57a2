// Command s3server is an S3 server for the tests of this module: the gateway of
// the Versity project over a folder. It is a program of its own, so that a test
// can kill it and pause it as an operator or a power cut would, and so that its
// many packages need not be compiled with the race detector.
//
// It prints the address that it listens on, and then serves until it is killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

func main() {
	folder := flag.String("folder", "", "where buckets are kept; each is a folder in it")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	access := flag.String("access", "access", "access key")
	secret := flag.String("secret", "secret", "secret key")
	flag.Parse()
	if err := serve(*folder, *listen, *access, *secret); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func serve(folder, listen, access, secret string) error {
	backend, err := posix.New(folder, meta.XattrMeta{}, posix.PosixOpts{Concurrency: 256, CopyObjectThreshold: 5 << 30})
	if err != nil {
		return err
	}
	address, err := pickPort(listen)
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), backend, &embedgw.Config{
		RootUserAccess: access, RootUserSecret: secret, Ports: []string{address},
		MaxConnections: 1024, MaxRequests: 1024, MultipartMaxParts: 10_000,
		KeepAlive: true, Quiet: true,
		S3Options: []s3api.Option{s3api.WithOnListen(func() { fmt.Println(address) })},
	})
}

// pickPort turns port zero into a free one. The gateway listens by itself and
// does not report where, so the port is closed for a moment; should another
// process take it then, the program fails and so does the test.
func pickPort(listen string) (string, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
