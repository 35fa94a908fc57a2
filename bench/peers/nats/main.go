// Command nats publishes messages to a NATS server, or receives and counts
// them. With -inside, the server runs in the same process and speaks TLS to the
// other side: this saves the second hop that NATS otherwise has.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"micronode/bench/peers/loopclient"
)

const subject = "bench.messages"

// options are the flags.
type options struct {
	role   string
	server string // address, if it runs elsewhere
	folder string // with cert.pem and key.pem
	inside bool
	size   int
	step   int
}

func main() {
	var o options
	flag.StringVar(&o.role, "role", "", "`publish` or count")
	flag.StringVar(&o.server, "server", "", "`address` of the server")
	flag.StringVar(&o.folder, "certificates", "", "`folder` with cert.pem and key.pem")
	flag.BoolVar(&o.inside, "inside", false, "run the server in this process")
	flag.IntVar(&o.size, "size", 1024, "`bytes` of a message")
	flag.IntVar(&o.step, "step", 1, "report when so `many` have come")
	flag.Parse()
	if err := run(&o); err != nil {
		log.Fatal("nats: ", err)
	}
}

func run(o *options) error {
	connection, err := o.connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	switch o.role {
	case "publish":
		fmt.Println("ready")
		return loopclient.Publish(os.Stdin, o.size, 1, func(message []byte) error { return connection.Publish(subject, message) })
	case "count":
		return o.count(connection)
	}
	return fmt.Errorf("role %q: publish or count, please", o.role)
}

// connect connects with TLS 1.3 to a remote server, or to the one in this
// process. The client buffers and flushes by itself, as is its default.
func (o *options) connect() (*nats.Conn, error) {
	if o.inside {
		return o.runInside()
	}
	pool, err := o.trusted()
	if err != nil {
		return nil, err
	}
	return nats.Connect("tls://"+o.server, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}), nats.NoReconnect())
}

func (o *options) trusted() (*x509.CertPool, error) {
	text, err := os.ReadFile(o.folder + "/cert.pem")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool, nil
}

// runInside runs the server here, on any port. Other processes reach it over
// TLS, this process without.
func (o *options) runInside() (*nats.Conn, error) {
	certificate, err := tls.LoadX509KeyPair(o.folder+"/cert.pem", o.folder+"/key.pem")
	if err != nil {
		return nil, err
	}
	running, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, TLSTimeout: 5,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
	})
	if err != nil {
		return nil, err
	}
	go running.Start()
	if !running.ReadyForConnections(10 * time.Second) {
		return nil, fmt.Errorf("the server in this process is not ready")
	}
	o.server = running.Addr().String()
	return nats.Connect("", nats.InProcessServer(running), nats.NoReconnect())
}

// count receives messages until its input ends. The bench bounds how many may
// be pending, so the client need not drop any.
func (o *options) count(connection *nats.Conn) error {
	counter := loopclient.NewCounter(loopclient.Reports(), o.size, o.step)
	failed := make(chan error, 1)
	subscription, err := connection.Subscribe(subject, func(m *nats.Msg) {
		if err := counter.Take(m.Data); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	if err := subscription.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if err := connection.Flush(); err != nil {
		return err
	}
	fmt.Println("ready at", o.server)
	go func() { failed <- loopclient.UntilAlone() }()
	return <-failed
}
