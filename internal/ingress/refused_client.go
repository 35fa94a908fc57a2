package ingress

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"micronode/fault"
)

// limitSetting is a limit in words, and the setting that an operator changes.
type limitSetting struct{ limit, setting string }

// The limits of connections, by the reasons for which they are counted.
var connLimits = map[string]limitSetting{
	"conns_per_ip": {"connections of one client", "limits.conns_per_ip"},
	"open_rate":    {"new connections of one client in a second", "limits.open_rate (limits.handshake_rate with TLS)"},
	"max_conns":    {"connections in all", "limits.max_conns"},
}

// The limits of requests, by the errors that they are rejected with.
var limitsOfErrors = []struct {
	err error
	limitSetting
}{
	{errRate, limitSetting{"requests of one client in a second", "limits.rate"}},
	{errWork, limitSetting{"requests for queued work in a second", "limits.work_rate"}},
	{errWorkShare, limitSetting{"a client's share of the queued work in a second", "limits.work_rate"}},
	{errPublicWork, limitSetting{"look-ups for strangers in a second", "limits.public_work"}},
	{errHeld, limitSetting{"memory for the content of requests", "limits.memory"}},
	{errHeldLarge, limitSetting{"memory for the content of one client's requests", "limits.memory"}},
	{errReads, limitSetting{"concurrent reads", "limits.reads"}},
	{errReadsShare, limitSetting{"a client's share of the reads that wait", "limits.reads_waiting"}},
	{errLaneShare, limitSetting{"a client's share of what a route does at a time", ""}},
}

// limitOf returns the limit by which a request was rejected; none for other
// errors.
func (m *mountedRoute) limitOf(err error) (limitSetting, bool) {
	if named, ok := errors.AsType[*limitError](err); ok {
		return named.limitSetting, true
	}
	for _, one := range limitsOfErrors {
		if errors.Is(err, one.err) {
			return one.limitSetting, true
		}
	}
	requests, setting := "concurrent requests", m.slotSetting()
	if m.route.Class == Stream {
		requests = "open streams"
	}
	switch kind := fault.KindOf(err); {
	case errors.Is(err, errClientShare):
		return limitSetting{"a client's share of the " + requests, setting}, true
	case errors.Is(err, errInflight):
		return limitSetting{requests, setting}, true
	case kind == fault.RateLimited, kind == fault.QuotaExceeded:
		return limitSetting{fault.DetailOf(err), ""}, true
	}
	return limitSetting{}, false
}

// slotSetting is the setting of the pool in which a request has its slot.
func (m *mountedRoute) slotSetting() string {
	switch {
	case m.route.Cheap:
		return "limits.reads"
	case m.route.Class == Stream:
		return "limits.streams"
	default:
		return "limits.inflight"
	}
}

// limitError is an error with the limit behind it.
type limitError struct {
	limitSetting
	error
}

func (e *limitError) Unwrap() error { return e.error }

// Limited says which limit of a service rejected a request, in words, and which
// setting changes it: the log and the status name both.
func Limited(limit, setting string, err error) error {
	return &limitError{limitSetting{limit, setting}, err}
}

// noteRefusedClient notes for the status that a limit rejected a client, and
// writes a line when that is the first time in a minute: who it is, which limit,
// and which setting changes it.
func (s *Server) noteRefusedClient(ip netip.Addr, what limitSetting) {
	network := "local"
	if ip.IsValid() {
		network = clientNetwork(ip.Unmap()).String()
	}
	if ip.Is6() && !ip.Is4In6() {
		network += "/64"
	}
	held, first := s.refusals.Note(network, what.limit, what.setting, time.Now())
	if !first {
		return
	}
	args := []any{"client", network, "limit", what.limit}
	if what.setting != "" {
		args = append(args, "setting", what.setting)
	}
	if held > 0 {
		args = append(args, "also_refused", held)
	}
	s.logger.Log(context.Background(), slog.LevelWarn, "a limit rejects a client", args...)
}
