package talk

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

// Least is the size of the smallest letter: its number.
const Least = 8

// noise is what letters of a size are filled with. No compressor gains by it.
func noise(size int) []byte {
	body := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body)
	return body
}

// Publish sends as many letters as it is permitted to, from so many goroutines,
// until the input ends. The letter is valid during the call of publish only.
func Publish(permits io.Reader, size, goroutines int, publish func(letter []byte) error) error {
	writers := make([]writer, goroutines)
	for i := range writers {
		writers[i] = writer{letter: noise(size), publish: publish}
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

// share has the writers send letters, each an equal part of them.
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

// writer is one goroutine's letter.
type writer struct {
	letter  []byte
	publish func([]byte) error
}

// send publishes the letters with the numbers from one to before another.
func (w writer) send(from, to uint64) error {
	for number := from; number < to; number++ {
		binary.BigEndian.PutUint64(w.letter, number)
		if err := w.publish(w.letter); err != nil {
			return err
		}
	}
	return nil
}

// UntilAlone waits for the end of the standard input: the bench is gone.
func UntilAlone() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Reports is where counts go: descriptor 3, which the bench has opened.
func Reports() io.Writer { return os.NewFile(3, "reports") }

// Counter counts letters and reports each full step. One goroutine uses it.
type Counter struct {
	// set at construction
	reports io.Writer
	body    []byte
	step    uint64

	count, sum uint64
	line       []byte // of the last report, kept for the next
}

// NewCounter expects letters of one size.
func NewCounter(reports io.Writer, size, step int) *Counter {
	return &Counter{reports: reports, body: noise(size), step: uint64(step)}
}

// compared is how often the whole of a letter is looked at.
const compared = 64

// Take counts one letter. A wrong one is an error: whoever sends fast what was
// not asked for is not fast.
func (c *Counter) Take(letter []byte) error {
	if len(letter) != len(c.body) {
		return fmt.Errorf("a letter of %d bytes, want %d", len(letter), len(c.body))
	}
	if c.count%compared == 0 && !bytes.Equal(letter[Least:], c.body[Least:]) {
		return fmt.Errorf("letter %d is not what was sent", binary.BigEndian.Uint64(letter))
	}
	c.count++
	c.sum += binary.BigEndian.Uint64(letter)
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
