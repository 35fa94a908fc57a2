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

// metrics are the metrics of the registry.
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
	verified                       prometheus.Gauge // up to which version the round has verified
	verifiedCommits                prometheus.Counter
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
		proposed:      counter("registry_proposals_total", "Accepted proposals."),
		approved:      counter("registry_approvals_total", "Accepted approvals."),
		updates:       vector("registry_updates_total", "Commit requests, by result: committed or refused.", "result"),
		rejected:      vector("registry_rejected_total", "Refused requests, by action and kind.", "action", "kind"),
		casFailed:     counter("commit_cas_fail_total", "Commits whose base was no longer the head."),
		storageFailed: vector("storage_backoff_total", "Failed calls to the storage, by operation: it was busy, full, unreachable, or timed out.", "op"),
		reloaded:      vector("registry_reload_success_total", "Accepted configurations, by source.", "source"),
		reloadFailed:  vector("registry_reload_fail_total", "Rejected configurations, by reason: rejected, and the old one stays in effect; or draining.", "reason"),
		version:       gauge("registry_version", "The version of the head."),
		size:          gauge("registry_checkpoint_size", "Versions that the last stored checkpoint covers."),
		items:         gauge("registry_items", "Items at the head."),
		openProposals: gauge("registry_pending_proposals", "Proposals that wait for approvals or for their commit."),
		groups: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "registry_commit_group_versions", Help: "Versions that shared one sync.", Buckets: prometheus.ExponentialBuckets(1, 2, 9)}),
		appendSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "registry_append_seconds", Help: "Duration of one group commit in the storage.", Buckets: prometheus.ExponentialBuckets(0.0001, 3, 11)}),
		checkpoints:       counter("registry_checkpoints_total", "Stored checkpoints."),
		checkpointsFailed: counter("registry_checkpoints_failed_total", "Checkpoints that could not be stored."),
		pruned:            counter("registry_pruned_versions_total", "Versions that were pruned."),
		pruneSkipped:      counter("registry_prune_skipped_total", "Rounds of pruning that were skipped because the registry was busy."),
		verified:          gauge("registry_verified_version", "The version up to which the current round has verified the log."),
		verifiedCommits:   counter("registry_verified_commits_total", "Versions that were read back and verified after their commit."),
		verifyRounds:      vector("registry_verify_rounds_total", "Rounds over the whole log, by outcome.", "outcome"),
		verifySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "audit_chain_verify_seconds", Help: "Duration of a verification of the whole log.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)}),
		recoveries:  counter("registry_recoveries_total", "Recoveries of the log: a torn write was cut off, or an unknown outcome was looked up."),
		tornBytes:   counter("registry_torn_bytes_total", "Bytes of a write that a crash had torn, cut off at the start."),
		subscribers: gauge("registry_subscribers", "Subscribers of the stream."),
	}
	m.initSeries()
	instruments.Register(m.proposed, m.approved, m.updates, m.rejected, m.casFailed, m.storageFailed, m.reloaded, m.reloadFailed,
		m.version, m.size, m.items, m.openProposals, m.groups, m.appendSeconds, m.checkpoints, m.checkpointsFailed, m.pruned, m.pruneSkipped,
		m.verified, m.verifiedCommits, m.verifyRounds, m.verifySeconds, m.tornBytes, m.recoveries, m.subscribers)
	return m
}

// initSeries makes the known series, so that a query finds a zero and not a gap.
func (m *metrics) initSeries() {
	m.committed = m.updates.WithLabelValues("committed")
	m.updates.WithLabelValues("refused")
	for _, op := range []string{"read", "write", "commit"} {
		m.instruments.IOTimeouts.WithLabelValues(op)
		m.instruments.IOErrors.WithLabelValues(op)
		m.storageFailed.WithLabelValues(op)
	}
	m.reloaded.WithLabelValues("config")
	m.reloadFailed.WithLabelValues(reloadRejected)
	m.reloadFailed.WithLabelValues(reloadDraining)
	m.instruments.BackoffRetries.WithLabelValues("storage")
	m.verifyRounds.WithLabelValues("ok")
	m.verifyRounds.WithLabelValues("damaged")
}

// Why a configuration was not accepted.
const (
	reloadRejected = "rejected"
	reloadDraining = "draining"
)

// countFailure counts a call to the storage that failed: the storage pushed back, or
// returned something wrong. A missing version, a lost race and a cancelled call are
// no failures.
func (m *metrics) countFailure(op string, err error) {
	switch fault.KindOf(err) {
	case 0, fault.Canceled, fault.NotFound, fault.Expired, fault.ChainMismatch:
	case fault.Timeout:
		m.instruments.IOTimeouts.WithLabelValues(op).Inc()
		m.storageFailed.WithLabelValues(op).Inc()
	case fault.StorageBusy, fault.StoreFull, fault.UpstreamFailed, fault.NotReady:
		m.storageFailed.WithLabelValues(op).Inc()
	default:
		m.instruments.IOErrors.WithLabelValues(op).Inc()
	}
}

// remoteCalls returns the results of calls to a storage on other machines.
func remoteCalls(j Journal) journal.Calls {
	if remote, ok := j.(interface{ Calls() journal.Calls }); ok {
		return remote.Calls()
	}
	return journal.Calls{}
}

// registerStorageMetrics registers gauges for the size of the log and the age of its last
// checkpoint, which are computed when they are collected.
func (r *Registry) registerStorageMetrics() {
	show := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	r.metrics.instruments.Register(
		show("registry_checkpoint_age_seconds", "Age of the last checkpoint; zero if it covers all versions.", r.checkpointAge),
		show("registry_storage_bytes", "Size of the log in memory or on disk; zero if it is on other machines.", func() float64 { return float64(r.journalStats().Bytes) }),
		show("registry_log_segments", "Number of files of the log.", func() float64 { return float64(r.journalStats().Segments) }),
	)
}

// journalStats returns what a journal on this machine takes.
func (r *Registry) journalStats() journal.Stats {
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
	if v.state == nil || v.nextVersion() <= r.checkpointSize.Load() {
		return 0
	}
	return time.Since(time.Unix(0, r.checkpointAt.Load())).Seconds()
}
