package overlay

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/overlay/ask"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/introduce"
	"micronode/internal/overlay/nearby"
	"micronode/internal/overlay/session"
	"micronode/internal/overlay/stream"
)

// service is the label of the overlay in metrics.
const service = "overlay"

// metrics is what the overlay counts. The series are looked up once.
type metrics struct {
	instruments *observe.Instruments

	// sessions
	opened, handshakeTimeouts  prometheus.Counter
	closed, failed, negotiated *prometheus.CounterVec
	rejected                   map[oap.Reason]prometheus.Counter

	// gossip
	frames, bytes, messages, dropped *prometheus.CounterVec
	tx, rx, txBytes, rxBytes         prometheus.Counter
	taken, duplicates, delivered     prometheus.Counter
	relayed, repaired, expired       prometheus.Counter
	announced, wanted, pruned        prometheus.Counter

	// object streams
	streamEnds, streamBytes *prometheus.CounterVec
	resumed, corrupt        prometheus.Counter

	// nodes nearby
	nearby *prometheus.CounterVec

	// friends of friends
	introductions *prometheus.CounterVec

	// questions
	questions      *prometheus.CounterVec
	unsent, strays prometheus.Counter
}

// newMetrics registers the overlay's metrics. Every reason exists from the
// start, so that a query finds a zero and not a gap.
func newMetrics(instruments *observe.Instruments) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		instruments:       instruments,
		opened:            counter("session_open_total", "Sessions that were opened."),
		closed:            vector("session_close_total", "Sessions that ended, by reason.", "reason"),
		handshakeTimeouts: counter("handshake_timeouts_total", "Handshakes that timed out."),
		failed:            vector("overlay_handshake_failures_total", "Handshakes that failed, by reason.", "reason"),
		negotiated:        vector("overlay_pq_negotiations_total", "Key exchanges: hybrid is post-quantum, classical is not.", "outcome"),
		frames:            vector("gossip_frames_total", "Frames of gossip, by direction.", "dir"),
		bytes:             vector("gossip_bytes_total", "Bytes of gossip, by direction.", "dir"),
		messages:          vector("gossip_letters_total", "Messages, by outcome: taken, duplicate, delivered, relayed, announced, wanted, repaired.", "outcome"),
		dropped:           vector("gossip_dropped_total", "Messages that were dropped, by reason.", "reason"),
		streamEnds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "object_streams_total", Help: "Object streams that ended, by direction and status.",
		}, []string{"dir", "status"}),
		streamBytes: vector("object_stream_bytes_total", "Bytes of objects, by direction.", "dir"),
		resumed:     counter("object_streams_resumed_total", "Fetches that resumed after an interruption."),
		corrupt:     counter("object_streams_corrupt_total", "Fetched objects whose bytes did not match their address."),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overlay_questions_total", Help: "Questions that ended, by direction (tx: sent by this node) and outcome.",
		}, []string{"dir", "outcome"}),
		nearby:        vector("overlay_nearby_total", "What nodes of private networks announced, by outcome.", "outcome"),
		introductions: vector("overlay_introductions_total", "What peers said of themselves and of other nodes, by outcome.", "outcome"),
		unsent:        counter("overlay_answers_unsaid_total", "Answers and refusals that were not sent: the queue was full, or the deadline had passed."),
		strays:        counter("overlay_answers_stray_total", "Unexpected answers of peers: late, duplicate, or without a question."),
		pruned:        counter("gossip_peers_spared_total", "Times that a busy peer was pruned."),
		rejected:      map[oap.Reason]prometheus.Counter{},
	}
	rejects := vector("frame_reject_total", "Frames and messages that broke a rule, by rule.", "reason")
	for _, reason := range oap.Reasons() {
		m.rejected[reason] = rejects.WithLabelValues(reason.Label())
	}
	m.initSeries()
	instruments.Register(m.opened, m.closed, m.handshakeTimeouts, m.failed, m.negotiated, m.frames, m.bytes, m.messages, m.dropped, m.pruned,
		m.streamEnds, m.streamBytes, m.resumed, m.corrupt, m.questions, m.unsent, m.strays, m.nearby, m.introductions, rejects)
	return m
}

// initSeries makes every series, and stores those of the hot path.
func (m *metrics) initSeries() {
	m.tx, m.rx = m.frames.WithLabelValues("tx"), m.frames.WithLabelValues("rx")
	m.txBytes, m.rxBytes = m.bytes.WithLabelValues("tx"), m.bytes.WithLabelValues("rx")
	m.taken, m.duplicates = m.messages.WithLabelValues("taken"), m.messages.WithLabelValues("duplicate")
	m.relayed, m.repaired = m.messages.WithLabelValues("relayed"), m.messages.WithLabelValues("repaired")
	m.announced, m.wanted = m.messages.WithLabelValues("announced"), m.messages.WithLabelValues("wanted")
	m.delivered = m.messages.WithLabelValues("delivered")
	m.expired = m.dropped.WithLabelValues("expired")
	for _, outcome := range []string{"hybrid", "classical"} {
		m.negotiated.WithLabelValues(outcome)
	}
	for _, reason := range session.CloseReasons() {
		m.closed.WithLabelValues(string(reason))
	}
	for _, reason := range session.FailReasons() {
		m.failed.WithLabelValues(string(reason))
	}
	for _, reason := range gossip.DropReasons() {
		m.dropped.WithLabelValues(reason)
	}
	for _, dir := range []string{stream.Tx, stream.Rx} {
		m.streamBytes.WithLabelValues(dir)
		for _, status := range stream.Statuses() {
			m.streamEnds.WithLabelValues(dir, status)
		}
	}
	for _, outcome := range ask.AskOutcomes() {
		m.questions.WithLabelValues("tx", outcome)
	}
	for _, outcome := range ask.AnswerOutcomes() {
		m.questions.WithLabelValues("rx", outcome)
	}
	for _, outcome := range nearby.Outcomes() {
		m.nearby.WithLabelValues(string(outcome))
	}
	for _, outcome := range introduce.Outcomes() {
		m.introductions.WithLabelValues(string(outcome))
	}
	for _, op := range []string{"read", "write", "idle", "handshake", "connect"} {
		m.instruments.IOTimeouts.WithLabelValues(op)
	}
	for _, op := range []string{"read", "write", "connect"} {
		m.instruments.IOErrors.WithLabelValues(op)
	}
	m.instruments.BackoffRetries.WithLabelValues("dial")
	for _, size := range []string{"tiny", "small", "med", "large"} {
		m.instruments.BackpressureEvents.WithLabelValues(size)
	}
}

func (m *metrics) reject(reason oap.Reason) {
	if series, known := m.rejected[reason]; known {
		series.Inc()
	}
}

// sessionCounters is what the sessions count, and how many there are.
func (o *Overlay) sessionCounters() session.Counters {
	m := o.metrics
	m.instruments.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sessions_active", Help: "Sessions that are open."},
		func() float64 { return float64(len(o.sessions.Active())) }))
	return session.Counters{
		Opened:           m.opened.Inc,
		Closed:           func(reason session.CloseReason) { m.closed.WithLabelValues(string(reason)).Inc() },
		HandshakeTimeout: m.handshakeTimeouts.Inc,
		HandshakeFailed:  func(reason session.FailReason) { m.failed.WithLabelValues(string(reason)).Inc() },
		Negotiated:       func(outcome string) { m.negotiated.WithLabelValues(outcome).Inc() },
		Rejected:         m.reject,
		Gossip:           m.countGossip,
		Timeout:          func(op string) { m.instruments.IOTimeouts.WithLabelValues(op).Inc() },
		IOFailed:         func(op string) { m.instruments.IOErrors.WithLabelValues(op).Inc() },
		Backpressure:     func(size string) { m.instruments.BackpressureEvents.WithLabelValues(size).Inc() },
		Expired:          func(n int) { m.expired.Add(float64(n)) },
		RateLimited:      o.noteLimitedPeer,
		Retry:            m.instruments.BackoffRetries.WithLabelValues("dial").Inc,
	}
}

// noteLimitedPeer counts a frame of a peer that sends too many. The peer is an event
// when that is the first time in a minute.
func (o *Overlay) noteLimitedPeer(s *session.Session, limit int) {
	o.metrics.dropped.WithLabelValues(gossip.DropQuota).Inc()
	const what, setting = "frames of one peer in a second", "overlay.peer.max_rps"
	if _, first := o.spec.Refusals.Note(s.Peer().String(), what, setting, time.Now()); first {
		(*sessionHandler)(o).emit(Event{Type: PeerLimited, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ(), Detail: fmt.Sprintf("it sends more than %d frames a second; the setting is %s", limit, setting)})
	}
}

func (m *metrics) countGossip(dir string, frames, bytes int) {
	if dir == "tx" {
		m.tx.Add(float64(frames))
		m.txBytes.Add(float64(bytes))
		return
	}
	m.rx.Add(float64(frames))
	m.rxBytes.Add(float64(bytes))
}

// gossip is what the gossip engine counts.
func (m *metrics) gossip() gossip.Counters {
	return gossip.Counters{
		Taken:     func(n int) { m.taken.Add(float64(n)) },
		Duplicate: func(n int) { m.duplicates.Add(float64(n)) },
		Relayed:   func(n int) { m.relayed.Add(float64(n)) },
		Repaired:  func(n int) { m.repaired.Add(float64(n)) },
		Announced: func(n int) { m.announced.Add(float64(n)) },
		Wanted:    func(n int) { m.wanted.Add(float64(n)) },
		Delivered: func(n int) { m.delivered.Add(float64(n)) },
		Pruned:    m.pruned.Inc,
		Rejected:  m.reject,
		Dropped:   func(reason string, n int) { m.dropped.WithLabelValues(reason).Add(float64(n)) },
	}
}

// streams is what the object streams count.
func (m *metrics) streams() stream.Counters {
	return stream.Counters{
		Ended:   func(dir, status string) { m.streamEnds.WithLabelValues(dir, status).Inc() },
		Bytes:   func(dir string, n int) { m.streamBytes.WithLabelValues(dir).Add(float64(n)) },
		Resumed: m.resumed.Inc,
		Corrupt: m.corrupt.Inc,
	}
}

// asks is what questions count.
func (m *metrics) asks() ask.Counters {
	return ask.Counters{
		Asked:    func(outcome string) { m.questions.WithLabelValues("tx", outcome).Inc() },
		Answered: func(outcome string) { m.questions.WithLabelValues("rx", outcome).Inc() },
		Unsent:   m.unsent.Inc,
		Stray:    m.strays.Inc,
	}
}
