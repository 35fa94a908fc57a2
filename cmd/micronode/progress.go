package main

import (
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
)

// minProgressBytes is the smallest size of a transfer that gets a progress
// bar.
const minProgressBytes = 1 << 20

// progressBar shows the progress of a transfer on a terminal, and nothing
// elsewhere. set is safe for concurrent use.
type progressBar struct {
	bar     *progressbar.ProgressBar // set at construction; nil without a terminal
	cleared bool                     // owned by the command
}

// newProgressBar makes a progress bar for a transfer of a size, -1 if unknown.
func (c *console) newProgressBar(name string, size int64) *progressBar {
	if !c.errTerminal || c.json || size >= 0 && size < minProgressBytes {
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
}

// clear removes the bar from the screen, once.
func (p *progressBar) clear() {
	if p.bar != nil && !p.cleared {
		_ = p.bar.Clear()
	}
	p.cleared = true
}
