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

// requestLimit returns the limit by which a request was rejected; none for
// other errors.
func requestLimit(err error) (limitSetting, bool) {
	switch {
	case errors.Is(err, errRate):
		return limitSetting{"requests of one client in a second", "limits.rate"}, true
	case errors.Is(err, errWork):
		return limitSetting{"requests for queued work in a second", "limits.work_rate"}, true
	case errors.Is(err, errWorkShare):
		return limitSetting{"a client's share of the queued work in a second", "limits.work_rate"}, true
	case errors.Is(err, errClientShare):
		return limitSetting{"a client's share of the concurrent requests", "limits.inflight"}, true
	case errors.Is(err, errInflight):
		return limitSetting{"concurrent requests", "limits.inflight"}, true
	}
	if kind := fault.KindOf(err); kind == fault.RateLimited || kind == fault.QuotaExceeded {
		return limitSetting{fault.DetailOf(err), ""}, true
	}
	return limitSetting{}, false
}

// noteRefusedClient writes a line when a limit rejects a client for the first
// time in a minute: who it is, which limit, and which setting changes it. The
// metrics count all of them, and never say who.
func (s *Server) noteRefusedClient(ip netip.Addr, what limitSetting) {
	network := "local"
	if ip.IsValid() {
		network = clientNetwork(ip.Unmap()).String()
	}
	if ip.Is6() && !ip.Is4In6() {
		network += "/64"
	}
	held, ok := s.refused.AdmitExact(network+" "+what.limit, time.Now())
	if !ok {
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
