// Command crowd opens many sessions with one node of the overlay and keeps them:
// it says nothing, but answers when it is asked whether it is still there. When
// it is told to, it closes sessions and opens new ones for a while. Every
// session has a key of its own, as if it came from a node of its own.
package main

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/internal/oap"

	"micronode/bench/peers/talk"
)

func main() {
	listener := flag.String("listener", "", "the node, as `ID@HOST:PORT`")
	sessions := flag.Int("sessions", 1, "how `many`")
	rate := flag.Int("rate", 50, "how `many` are replaced in a second of churn")
	flag.Parse()
	_, address, _ := strings.Cut(*listener, "@")
	c := &crowd{address: address}
	if err := c.run(os.Stdin, talk.Reports(), *sessions, *rate); err != nil {
		log.Fatal("crowd: ", err)
	}
}

// atOnce is how many handshakes are under way.
const atOnce = 8

// crowd is the sessions.
type crowd struct {
	address string // set at construction

	lost atomic.Int64 // sessions that the node has ended

	members []*member // owned by run
}

// run fills the crowd, and then obeys: each line is a time to churn for. When
// that is over it reports how many sessions were replaced and how many were
// lost.
func (c *crowd) run(orders io.Reader, reports io.Writer, sessions, rate int) error {
	c.members = make([]*member, sessions)
	if err := c.fill(); err != nil {
		return err
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		length, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		replaced, err := c.churn(length, rate)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(reports, replaced, c.lost.Load()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// fill opens all sessions, a few at a time.
func (c *crowd) fill() error {
	var all sync.WaitGroup
	var opened atomic.Int64
	failed := make(chan error, atOnce)
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < len(c.members) && len(failed) == 0; i += atOnce {
				member, err := c.join()
				if err != nil {
					failed <- fmt.Errorf("after %d sessions: %w", opened.Load(), err)
					return
				}
				c.members[i] = member
				opened.Add(1)
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// churn replaces one session after the other, the oldest first.
func (c *crowd) churn(length time.Duration, rate int) (replaced int, err error) {
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	defer ticks.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); replaced++ {
		<-ticks.C
		i := replaced % len(c.members)
		_ = c.members[i].leave() // one that the node has ended is counted as lost
		if c.members[i], err = c.join(); err != nil {
			return replaced, err
		}
	}
	return replaced, nil
}

// member is one session.
type member struct {
	conn *tls.Conn
	left atomic.Bool // it is we who ended it
}

// tries is how often a member calls. On a busy machine a node ends a handshake
// that takes too long, and a member comes back, as a node would.
const tries = 10

// join opens a session.
func (c *crowd) join() (m *member, err error) {
	for try := range tries {
		if m, err = c.call(); err == nil {
			return m, nil
		}
		time.Sleep(time.Duration(try+1) * 100 * time.Millisecond)
	}
	return nil, err
}

// call opens a session with a new key and starts to answer.
func (c *crowd) call() (*member, error) {
	config, err := newIdentity()
	if err != nil {
		return nil, err
	}
	raw, err := net.DialTimeout("tcp", c.address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	m := &member{conn: tls.Client(raw, config)}
	reader, err := m.greet()
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	go func() {
		err := m.answer(reader)
		defer raw.Close() // a peer that was left closes too, and does not let the node wait
		if !m.left.Load() {
			if c.lost.Add(1) == 1 {
				log.Println("crowd: the first session that was lost:", err)
			}
		}
	}()
	return m, nil
}

// newIdentity is a key and a certificate, as OAP/1 wants them.
func newIdentity() (*tls.Config, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"ron/oap1"},
		InsecureSkipVerify: true, // it is the one process that we were told to call
		Certificates:       []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	}, nil
}

// greet is the handshake of OAP/1, within a while.
func (m *member) greet() (*oap.Reader, error) {
	if err := m.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	hello := &oap.Hello{Versions: []uint64{oap.Version}, Features: oap.Features{PQ: "hybrid"}, MaxFrame: oap.MaxPayload}
	if err := m.say(oap.Req, 1, hello); err != nil {
		return nil, err
	}
	reader := oap.NewReader(m.conn, oap.Codec{Max: oap.MaxPayload})
	frame, err := reader.Next()
	if err != nil {
		return nil, err
	}
	answer, err := oap.Decode(frame.Payload)
	if err != nil {
		return nil, err
	}
	if _, welcome := answer.(*oap.HelloAck); !welcome {
		return nil, fmt.Errorf("the node answered with %s: %+v", oap.KindOf(answer), answer)
	}
	return reader, m.conn.SetDeadline(time.Time{})
}

// answer says that we are there whenever the node asks.
func (m *member) answer(reader *oap.Reader) error {
	for {
		frame, err := reader.Next()
		if err != nil {
			return err
		}
		message, err := oap.Decode(frame.Payload)
		if err != nil {
			return err
		}
		ping, asked := message.(*oap.Ping)
		if !asked {
			continue
		}
		if err := m.say(oap.Resp, frame.Corr, &oap.Pong{TS: ping.TS}); err != nil {
			return err
		}
	}
}

func (m *member) say(flags oap.Flags, corr uint64, message oap.Message) error {
	wire, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, flags, corr, message)
	if err != nil {
		return err
	}
	_, err = m.conn.Write(wire)
	return err
}

func (m *member) leave() error {
	m.left.Store(true)
	return m.conn.Close()
}
