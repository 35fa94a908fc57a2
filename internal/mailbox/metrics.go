package mailbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"micronode/internal/observe"
)

// service is the label of the mailbox in metrics.
const service = "mailbox"

// registerMetrics registers the usage and the counters of an engine. They are
// read at each scrape.
func registerMetrics(instruments *observe.Instruments, e Engine) {
	gauge := func(name, help string, value func(Usage) int64) {
		instruments.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(e.Usage())) }))
	}
	counter := func(name, help string, value func(Usage) int64) {
		instruments.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(e.Usage())) }))
	}
	gauge("mailbox_depth", "Messages that wait or are leased.", func(u Usage) int64 { return u.Messages })
	gauge("mailbox_leased", "Messages that are leased.", func(u Usage) int64 { return u.Leased })
	gauge("mailbox_dead", "Dead letters that are kept.", func(u Usage) int64 { return u.Dead })
	gauge("mailbox_boxes", "Boxes that are not empty.", func(u Usage) int64 { return u.Boxes })
	gauge("mailbox_notes", "Notes on noticeboards.", func(u Usage) int64 { return u.Notes })
	gauge("mailbox_bytes", "Size of messages, dead letters and notes in their storage: memory, disk, or NATS.", func(u Usage) int64 { return u.Bytes })
	gauge("mailbox_memory_bytes", "Memory of messages, dead letters and notes.", func(u Usage) int64 { return u.Memory })
	counter("mailbox_visibility_timeout_total", "Leases that expired before the message was acknowledged.", func(u Usage) int64 { return u.Timeouts })
	counter("mailbox_dlq_total", "Messages that became dead letters.", func(u Usage) int64 { return u.Died })
	counter("mailbox_read_failures_total", "Deliveries that failed because the body could not be read in time.", func(u Usage) int64 { return u.ReadFailures })
	counter("mailbox_damaged_total", "Messages whose body is damaged on disk. They are dead letters without a body.", func(u Usage) int64 { return u.Damaged })
	counter("mailbox_dlq_dropped_total", "Dead letters that were dropped for newer ones, or expired.", func(u Usage) int64 { return u.Dropped })
}
