package main

import (
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
)

// worthShowing is the size from which on somebody may wonder how long a
// transfer takes.
const worthShowing = 1 << 20

// meter shows how a transfer gets on. It shows nothing unless a person is
// there to see it. Any goroutine may set it.
type meter struct {
	bar     *progressbar.ProgressBar // set at construction; nil: nobody looks
	cleared bool                     // owned by the command
}

// newMeter makes a meter for a transfer of a size, -1 if that is not known.
func (c *console) newMeter(name string, size int64) *meter {
	if !c.errTerminal || c.json || size >= 0 && size < worthShowing {
		return &meter{}
	}
	if name == "-" {
		name = "standard input"
	}
	return &meter{bar: progressbar.NewOptions64(size,
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

// set tells how far it is. It may go back, when a transfer is tried again.
func (m *meter) set(done, _ int64) {
	if m.bar != nil {
		_ = m.bar.Set64(done) // a terminal that cannot be written to is no reason to stop
	}
}

// clear takes the meter off the screen, once.
func (m *meter) clear() {
	if m.bar != nil && !m.cleared {
		_ = m.bar.Clear()
	}
	m.cleared = true
}
