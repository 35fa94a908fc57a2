package loopclient

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Least is the size of the smallest message: its number.
const Least = 8

// noise is the content of messages of a size. It is incompressible.
func noise(size int) []byte {
	body := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body)
	return body
}

// Publish sends as many messages as it has permits for, from several
// goroutines, until the input ends. The message is valid during the call of
// publish only.
func Publish(permits io.Reader, size, goroutines int, publish func(message []byte) error) error {
	writers := make([]writer, goroutines)
	for i := range writers {
		writers[i] = writer{message: noise(size), publish: publish}
	}
	lines := bufio.NewReader(permits)
	for next := uint64(0); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		more, err := strconv.ParseUint(strings.TrimSpace(line), 10, 32)
		if err != nil {
			return fmt.Errorf("a permit: %w", err)
		}
		if err := share(writers, next, more); err != nil {
			return err
		}
		next += more
	}
}

// share has the writers send messages, each an equal part of them.
func share(writers []writer, next, more uint64) error {
	n := uint64(len(writers))
	if n == 1 {
		return writers[0].send(next, next+more)
	}
	var all sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		all.Go(func() { failed[i] = writers[i].send(next+more*i/n, next+more*(i+1)/n) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// writer is one goroutine's message.
type writer struct {
	message []byte
	publish func([]byte) error
}

// send publishes the messages with the numbers in [from, to).
func (w writer) send(from, to uint64) error {
	for number := from; number < to; number++ {
		binary.BigEndian.PutUint64(w.message, number)
		if err := w.publish(w.message); err != nil {
			return err
		}
	}
	return nil
}

// UntilAlone waits for the end of the standard input, which means that the
// bench has ended.
func UntilAlone() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Reports is where counts are written: descriptor 3, which the bench has
// opened.
func Reports() io.Writer { return os.NewFile(3, "reports") }

// Counter counts messages and reports each full step. One goroutine uses it.
type Counter struct {
	// set at construction
	reports io.Writer
	body    []byte
	step    uint64

	count, sum uint64
	line       []byte // of the last report, reused
}

// NewCounter expects messages of one size.
func NewCounter(reports io.Writer, size, step int) *Counter {
	return &Counter{reports: reports, body: noise(size), step: uint64(step)}
}

// compared is how often the whole of a message is compared.
const compared = 64

// Take counts one message. A wrong one is an error: a system that delivers
// wrong messages must not be measured as fast.
func (c *Counter) Take(message []byte) error {
	if len(message) != len(c.body) {
		return fmt.Errorf("a message of %d bytes, want %d", len(message), len(c.body))
	}
	if c.count%compared == 0 && !bytes.Equal(message[Least:], c.body[Least:]) {
		return fmt.Errorf("message %d is not what was sent", binary.BigEndian.Uint64(message))
	}
	c.count++
	c.sum += binary.BigEndian.Uint64(message)
	if c.count%c.step != 0 {
		return nil
	}
	c.line = strconv.AppendUint(c.line[:0], c.count, 10)
	c.line = append(c.line, ' ')
	c.line = strconv.AppendUint(c.line, c.sum, 10)
	c.line = append(c.line, '\n')
	_, err := c.reports.Write(c.line)
	return err
}
