package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"micronode/internal/terminal"
)

// console is the environment of a command: the three streams, and whether they
// are terminals.
type console struct {
	// set at construction
	in                                   io.Reader
	out, err                             io.Writer
	inTerminal, outTerminal, errTerminal bool
	colours                              bool
	exit                                 func(code int)          // ends the process at once
	restoreTerminal                      *atomic.Pointer[func()] // restores the terminal before exit; set by the code that changes the terminal

	json bool // set by the parser: print JSON

	outputErr error // the first failure to write to out; owned by the command
}

func newConsole() *console {
	outTerminal := term.IsTerminal(int(os.Stdout.Fd()))
	return &console{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, exit: os.Exit, restoreTerminal: new(atomic.Pointer[func()]),
		inTerminal: term.IsTerminal(int(os.Stdin.Fd())), outTerminal: outTerminal, errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		colours: outTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// outputFlags has the flag of every command that prints.
type outputFlags struct {
	JSON jsonFlag `name:"json" help:"Print JSON, errors too."`
}

type jsonFlag bool

// AfterApply sets the mode of the console. The parser calls it if the flag was
// given.
func (f jsonFlag) AfterApply(c *console) error {
	c.json = bool(f)
	return nil
}

// wantsJSON looks for the flag in a command line that may not parse, so that
// the error about it has the requested format.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json":
			return true
		case "--":
			return false
		}
	}
	return false
}

// print writes to standard output. A failure is recorded and fails the
// command.
func (c *console) print(format string, args ...any) {
	_, err := fmt.Fprintf(c.safeOut(), format, args...)
	c.recordWriteErr(err)
}

// printWriter is standard output for code that prints by itself.
type printWriter struct{ *console }

// Write does what print does.
func (p printWriter) Write(text []byte) (int, error) {
	n, err := p.safeOut().Write(text)
	p.recordWriteErr(err)
	return n, err
}

// printJSON writes one document on a line of its own.
func (c *console) printJSON(document any) {
	encoder := json.NewEncoder(c.safeOut())
	encoder.SetEscapeHTML(false) // it is not HTML
	c.recordWriteErr(encoder.Encode(document))
}

// notice prints a message that is not an error on standard error. It prints
// nothing with --json, where a program could not use it.
func (c *console) notice(format string, args ...any) {
	if !c.json {
		fmt.Fprintf(c.safeErr(), "micronode: "+format+"\n", args...)
	}
}

func (c *console) recordWriteErr(err error) {
	if err == nil || c.outputErr != nil {
		return
	}
	c.outputErr = newWriteError("print", "standard output", err)
}

func (c *console) paint(colour terminal.Colour, text string) string {
	if !c.colours {
		return text
	}
	return colour.Paint(text)
}

// minProgressBytes is the smallest size of a transfer that gets a progress
// bar.
const minProgressBytes = 1 << 20

// progressBar shows the progress of a transfer on a terminal, writes it as JSON
// with --json, and shows nothing elsewhere. set is safe for concurrent use.
type progressBar struct {
	bar     *progressbar.ProgressBar // set at construction; nil without a terminal
	lines   *progressLines           // set at construction; nil without --json
	cleared bool                     // owned by the command
}

// progressInterval is how often a line of progress is written.
const progressInterval = time.Second

// progressLine is the progress of a transfer with --json, on standard error: a
// line a second, from the first second on.
type progressLine struct {
	Progress string `json:"progress"` // the file or folder
	Done     int64  `json:"done"`     // bytes
	Total    int64  `json:"total"`    // bytes; -1 if it is not known
	Rate     int64  `json:"bytes_per_s"`
	Left     int64  `json:"left_s"` // at the rate so far; -1 if it is not known
}

// progressLines writes progressLine.
type progressLines struct {
	// set at construction
	out   io.Writer
	name  string
	total int64
	begun time.Time

	mu   sync.Mutex
	next time.Time // when the next line is due
	had  int64     // what was there before; -1 until something is known
}

func (p *progressLines) set(done int64) {
	now := time.Now()
	had, due := p.isDue(done, now)
	if !due {
		return
	}
	line := progressLine{Progress: p.name, Done: done, Total: p.total, Rate: int64(float64(max(0, done-had)) / now.Sub(p.begun).Seconds()), Left: -1}
	if p.total >= done && line.Rate > 0 {
		line.Left = (p.total - done) / line.Rate
	}
	_ = json.NewEncoder(p.out).Encode(line) // that it cannot be written does not fail the transfer
}

// isDue reports whether a line is due, and sets when the next one is. A transfer
// that goes on has bytes from the beginning, which did not come at its rate.
func (p *progressLines) isDue(done int64, now time.Time) (had int64, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.had < 0 {
		p.had = 0
		if done > minProgressBytes {
			p.had = done
		}
	}
	if now.Before(p.next) {
		return p.had, false
	}
	p.next = now.Add(progressInterval)
	return p.had, true
}

// newProgressBar makes a progress bar for a transfer of a size, -1 if unknown.
func (c *console) newProgressBar(name string, size int64) *progressBar {
	if c.json {
		now := time.Now()
		return &progressBar{lines: &progressLines{out: c.safeErr(), name: name, total: size, begun: now, next: now.Add(progressInterval), had: -1}}
	}
	if !c.errTerminal || size >= 0 && size < minProgressBytes {
		return &progressBar{}
	}
	if name == "-" {
		name = "standard input"
	}
	return &progressBar{bar: progressbar.NewOptions64(size,
		progressbar.OptionSetDescription(filepath.Base(name)),
		progressbar.OptionSetWriter(c.err),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionSetSpinnerChangeInterval(0), // it would keep a goroutine
		progressbar.OptionSetPredictTime(size > 0),
		progressbar.OptionClearOnFinish(),
	)}
}

// set updates the progress. It may go back, when a transfer is retried.
func (p *progressBar) set(done, _ int64) {
	if p.bar != nil {
		_ = p.bar.Set64(done) // a terminal that cannot be written to does not fail the transfer
	}
	if p.lines != nil {
		p.lines.set(done)
	}
}

// clear removes the bar from the screen, once.
func (p *progressBar) clear() {
	if p.bar != nil && !p.cleared {
		_ = p.bar.Clear()
	}
	p.cleared = true
}
