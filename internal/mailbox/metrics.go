package mailbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"micronode/internal/observe"
)

// service is the label of the mailbox in metrics.
const service = "mailbox"

// register shows how much an engine keeps, and what it has counted, whenever
// somebody looks.
func register(instruments *observe.Instruments, e Engine) {
	gauge := func(name, help string, value func(Usage) int64) {
		instruments.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(e.Usage())) }))
	}
	counter := func(name, help string, value func(Usage) int64) {
		instruments.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(e.Usage())) }))
	}
	gauge("mailbox_depth", "Messages that wait or are leased.", func(u Usage) int64 { return u.Messages })
	gauge("mailbox_leased", "Messages that are leased.", func(u Usage) int64 { return u.Leased })
	gauge("mailbox_dead", "Dead letters that are kept.", func(u Usage) int64 { return u.Dead })
	gauge("mailbox_boxes", "Boxes in which there is something.", func(u Usage) int64 { return u.Boxes })
	gauge("mailbox_notes", "Notes on boards.", func(u Usage) int64 { return u.Notes })
	gauge("mailbox_bytes", "What messages, dead letters and notes take.", func(u Usage) int64 { return u.Bytes })
	counter("mailbox_visibility_timeout_total", "Leases that ended before the message was acknowledged.", func(u Usage) int64 { return u.Timeouts })
	counter("mailbox_dlq_total", "Messages that became dead letters.", func(u Usage) int64 { return u.Died })
	counter("mailbox_dlq_dropped_total", "Dead letters that made room for newer ones, or were too old.", func(u Usage) int64 { return u.Dropped })
}
