// Command sessions opens many sessions with one node of the overlay and keeps them
// idle: it only answers pings. On command it closes sessions and opens new ones
// for a while. Every session has a key of its own, as if it came from a node of
// its own.
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

	"micronode/bench/peers/loopclient"
)

func main() {
	listener := flag.String("listener", "", "the node, as `ID@HOST:PORT`")
	sessions := flag.Int("sessions", 1, "how `many`")
	rate := flag.Int("rate", 50, "how `many` are replaced in a second of churn")
	flag.Parse()
	_, address, _ := strings.Cut(*listener, "@")
	c := &sessionHolder{address: address}
	if err := c.run(os.Stdin, loopclient.Reports(), *sessions, *rate); err != nil {
		log.Fatal("sessions: ", err)
	}
}

// parallelHandshakes is how many handshakes run at a time.
const parallelHandshakes = 8

// sessionHolder holds the sessions.
type sessionHolder struct {
	address string // set at construction

	lost atomic.Int64 // sessions that the node has ended

	sessions []*idleSession // owned by run
}

// run opens the sessions, and then reads commands: each line is a time to churn
// for. When that is over it reports how many sessions were replaced and how
// many were lost.
func (s *sessionHolder) run(orders io.Reader, reports io.Writer, sessions, rate int) error {
	s.sessions = make([]*idleSession, sessions)
	if err := s.fill(); err != nil {
		return err
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		length, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		replaced, err := s.churn(length, rate)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(reports, replaced, s.lost.Load()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// fill opens all sessions, a few at a time.
func (s *sessionHolder) fill() error {
	var all sync.WaitGroup
	var opened atomic.Int64
	failed := make(chan error, parallelHandshakes)
	for worker := range parallelHandshakes {
		all.Go(func() {
			for i := worker; i < len(s.sessions) && len(failed) == 0; i += parallelHandshakes {
				member, err := s.openWithRetry()
				if err != nil {
					failed <- fmt.Errorf("after %d sessions: %w", opened.Load(), err)
					return
				}
				s.sessions[i] = member
				opened.Add(1)
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// churn replaces one session after the other, the oldest first.
func (s *sessionHolder) churn(length time.Duration, rate int) (replaced int, err error) {
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	defer ticks.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); replaced++ {
		<-ticks.C
		i := replaced % len(s.sessions)
		_ = s.sessions[i].close() // one that the node has ended is counted as lost
		if s.sessions[i], err = s.openWithRetry(); err != nil {
			return replaced, err
		}
	}
	return replaced, nil
}

// idleSession is one session.
type idleSession struct {
	conn    *tls.Conn
	closing atomic.Bool // it was closed by this side
}

// maxAttempts is how often a session is tried. On a busy machine a node ends a
// handshake that takes too long, and the client retries, as a node would.
const maxAttempts = 10

// openWithRetry opens a session.
func (s *sessionHolder) openWithRetry() (m *idleSession, err error) {
	for try := range maxAttempts {
		if m, err = s.open(); err == nil {
			return m, nil
		}
		time.Sleep(time.Duration(try+1) * 100 * time.Millisecond)
	}
	return nil, err
}

// open opens a session with a new key and starts to answer pings.
func (s *sessionHolder) open() (*idleSession, error) {
	config, err := newIdentity()
	if err != nil {
		return nil, err
	}
	raw, err := net.DialTimeout("tcp", s.address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	m := &idleSession{conn: tls.Client(raw, config)}
	reader, err := m.handshake()
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	go func() {
		err := m.answerPings(reader)
		defer raw.Close() // when the node ends the session, this side closes too, and does not make it wait
		if !m.closing.Load() {
			if s.lost.Add(1) == 1 {
				log.Println("sessions: the first session that was lost:", err)
			}
		}
	}()
	return m, nil
}

// newIdentity makes a key and a certificate as OAP/1 requires.
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
		InsecureSkipVerify: true, // it is the one process that was given as an argument
		Certificates:       []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	}, nil
}

// handshake does the handshake of OAP/1, with a timeout.
func (i *idleSession) handshake() (*oap.Reader, error) {
	if err := i.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	hello := &oap.Hello{Versions: []uint64{oap.Version}, Features: oap.Features{PQ: "hybrid"}, MaxFrame: oap.MaxPayload}
	if err := i.send(oap.Req, 1, hello); err != nil {
		return nil, err
	}
	reader := oap.NewReader(i.conn, oap.Codec{Max: oap.MaxPayload})
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
	return reader, i.conn.SetDeadline(time.Time{})
}

// answerPings answers the pings of the node.
func (i *idleSession) answerPings(reader *oap.Reader) error {
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
		if err := i.send(oap.Resp, frame.Corr, &oap.Pong{TS: ping.TS}); err != nil {
			return err
		}
	}
}

func (i *idleSession) send(flags oap.Flags, corr uint64, message oap.Message) error {
	frame, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, flags, corr, message)
	if err != nil {
		return err
	}
	_, err = i.conn.Write(frame)
	return err
}

func (i *idleSession) close() error {
	i.closing.Store(true)
	return i.conn.Close()
}
