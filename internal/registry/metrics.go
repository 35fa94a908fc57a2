package registry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/fault"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
)

// service is the label of the registry in metrics.
const service = "registry"

// metrics is what the registry counts.
type metrics struct {
	instruments *observe.Instruments

	proposed, approved, committed prometheus.Counter
	updates                       *prometheus.CounterVec // commits, by result
	rejected                      *prometheus.CounterVec // by action and kind
	casFailed                     prometheus.Counter
	storageFailed                 *prometheus.CounterVec // by operation
	reloaded, reloadFailed        *prometheus.CounterVec

	version, size, items, openProposals prometheus.Gauge
	groups                              prometheus.Histogram // how many versions shared one sync
	appendSeconds                       prometheus.Histogram

	checkpoints, checkpointsFailed prometheus.Counter
	pruned                         prometheus.Counter
	pruneSkipped                   prometheus.Counter
	verified                       prometheus.Gauge // up to which version the round has come
	verifyRounds                   *prometheus.CounterVec
	verifySeconds                  prometheus.Histogram
	tornBytes, recoveries          prometheus.Counter
	subscribers                    prometheus.Gauge
}

// newMetrics registers the registry's metrics.
func newMetrics(instruments *observe.Instruments) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		instruments:   instruments,
		proposed:      counter("registry_proposals_total", "Proposals that were taken."),
		approved:      counter("registry_approvals_total", "Approvals that were taken."),
		updates:       vector("registry_updates_total", "Commits that were asked for, by result: committed or refused.", "result"),
		rejected:      vector("registry_rejected_total", "What was asked for and refused, by action and kind.", "action", "kind"),
		casFailed:     counter("commit_cas_fail_total", "Commits that found another head than they had built on."),
		storageFailed: vector("storage_backoff_total", "Calls to the storage that failed, by operation.", "op"),
		reloaded:      vector("registry_reload_success_total", "Configurations that were taken, by source.", "source"),
		reloadFailed:  vector("registry_reload_fail_total", "Configurations that were not, by reason.", "reason"),
		version:       gauge("registry_version", "The version of the head."),
		size:          gauge("registry_checkpoint_size", "How many versions the last kept checkpoint covers."),
		items:         gauge("registry_items", "Items at the head."),
		openProposals: gauge("registry_pending_proposals", "Proposals that wait for approvals or for their commit."),
		groups: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "registry_commit_group_versions", Help: "Versions that shared one sync.", Buckets: prometheus.ExponentialBuckets(1, 2, 9)}),
		appendSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "registry_append_seconds", Help: "How long the storage took for a group.", Buckets: prometheus.ExponentialBuckets(0.0001, 3, 11)}),
		checkpoints:       counter("registry_checkpoints_total", "Checkpoints that were kept."),
		checkpointsFailed: counter("registry_checkpoints_failed_total", "Checkpoints that could not be kept."),
		pruned:            counter("registry_pruned_versions_total", "Versions that were given up."),
		pruneSkipped:      counter("registry_prune_skipped_total", "Rounds of pruning that were skipped because the registry was busy."),
		verified:          gauge("registry_verified_version", "Up to which version this round has verified the log."),
		verifyRounds:      vector("registry_verify_rounds_total", "Rounds over the whole log, by outcome.", "outcome"),
		verifySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "audit_chain_verify_seconds", Help: "How long a round over the whole log took.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)}),
		recoveries:  counter("registry_recoveries_total", "Times that the log was put right or looked up: a torn write cut off, an outcome that was not known."),
		tornBytes:   counter("registry_torn_bytes_total", "Bytes of a write that a crash had torn, cut off at the start."),
		subscribers: gauge("registry_subscribers", "Followers of the stream."),
	}
	m.prepare()
	instruments.Register(m.proposed, m.approved, m.updates, m.rejected, m.casFailed, m.storageFailed, m.reloaded, m.reloadFailed,
		m.version, m.size, m.items, m.openProposals, m.groups, m.appendSeconds, m.checkpoints, m.checkpointsFailed, m.pruned, m.pruneSkipped,
		m.verified, m.verifyRounds, m.verifySeconds, m.tornBytes, m.recoveries, m.subscribers)
	return m
}

// prepare makes the series that are known, so that a query finds a zero and not
// a gap.
func (m *metrics) prepare() {
	m.committed = m.updates.WithLabelValues("committed")
	m.updates.WithLabelValues("refused")
	for _, op := range []string{"read", "write", "commit"} {
		m.instruments.IOTimeouts.WithLabelValues(op)
		m.storageFailed.WithLabelValues(op)
	}
	m.reloaded.WithLabelValues("config")
	m.reloadFailed.WithLabelValues("full")
	m.verifyRounds.WithLabelValues("ok")
	m.verifyRounds.WithLabelValues("damaged")
}

// failed counts a call to the storage that failed.
func (m *metrics) failed(op string, err error) {
	if fault.KindOf(err) == fault.Timeout {
		m.instruments.IOTimeouts.WithLabelValues(op).Inc()
	}
	m.storageFailed.WithLabelValues(op).Inc()
}

// watchStorage shows how much the log takes, and how old its last checkpoint is,
// whenever somebody looks.
func (r *Registry) watchStorage() {
	show := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	r.metrics.instruments.Register(
		show("registry_checkpoint_age_seconds", "How long ago the last checkpoint was kept; zero if nothing came since.", r.checkpointAge),
		show("registry_storage_bytes", "How much the log takes where it is kept; zero if that is on other machines.", func() float64 { return float64(r.usage().Bytes) }),
		show("registry_log_segments", "In how many files the log is.", func() float64 { return float64(r.usage().Segments) }),
	)
}

// usage is what a journal on this machine takes.
func (r *Registry) usage() journal.Stats {
	switch j := r.journal.(type) {
	case *journal.Files:
		return j.Stats()
	case *journal.RAM:
		return journal.Stats{Bytes: j.Bytes()}
	}
	return journal.Stats{}
}

// checkpointAge is zero while the last checkpoint covers everything.
func (r *Registry) checkpointAge() float64 {
	v := r.view.Load()
	if v.state == nil || v.next() <= r.kept.Load() {
		return 0
	}
	return time.Since(time.Unix(0, r.keptAt.Load())).Seconds()
}
