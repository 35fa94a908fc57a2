package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"micronode/internal/node"
)

func TestWhatTheSystemWants(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for name, c := range map[string]struct {
		environ map[string]string
		want    node.System
	}{
		"nothing":            {nil, node.System{}},
		"systemd":            {map[string]string{"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": own}, node.System{NotifySocket: "@x", Watchdog: time.Minute}},
		"a parent's":         {map[string]string{"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, node.System{}},
		"no number":          {map[string]string{"WATCHDOG_USEC": "soon"}, node.System{}},
		"never":              {map[string]string{"WATCHDOG_USEC": "0"}, node.System{}},
		"a parent's journal": {map[string]string{"JOURNAL_STREAM": "1:2"}, node.System{}},
	} {
		if got := systemOf(func(name string) string { return c.environ[name] }); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
