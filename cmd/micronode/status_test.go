package main

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

// Somebody who looks because something is wrong finds it at the top; what runs
// is one line, and where the node is comes after it.
func TestTheOrderOfAStatus(t *testing.T) {
	report := statusReport{
		Status: client.Status{
			Version: "1.2.3", Profile: "micronode", PeerID: "giqe", Listen: client.Listen{HTTP: "127.0.0.1:8080"}, Amnesia: true,
			Services: []client.Service{{Name: "http", State: "running"}, {Name: "config file", State: "waiting", Restarts: 2, LastErr: "config.watch:\ngone"}, {Name: "bus", State: "finished"}},
			Queues:   []client.Queue{{Service: "node", Name: "work", Depth: 256, Cap: 256}, {Service: "node", Name: "bus", Cap: 9}},
			Parts:    []client.Part{{Name: "index", At: "@other"}, {Name: "mailbox", Up: true}},
		},
		Reasons: []client.Reason{{Dep: "node/disk", Reason: "it is full", Next: "Free space."}},
	}
	show := func(every bool) string {
		c := newTestConsole(t)
		report.print(c.console, every)
		return c.stdout.String()
	}
	wrong := `micronode 1.2.3, profile micronode, is not ready

  node/disk: it is full
  Free space.

  part     state  where
  index    away   @other
  mailbox  up     here
`
	running := `
  queue      holds  of
  node.work  256    256

  peer ID  giqe
  gateway  http://127.0.0.1:8080

  ` + amnesiaLine + "\n"
	testkit.Equal(t, "the status", show(false), wrong+`
  service      state    restarts
  config file  waiting  2

  last errors
  config file: config.watch: gone

  without trouble: 2 services; --all lists them
`+running)
	testkit.Equal(t, "with --all", show(true), wrong+`
  last errors
  config file: config.watch: gone
`+running+`
  service      state     restarts
  http         running   0
  config file  waiting   2
  bus          finished  0
`)
	report.Parts[0].Up, report.Reasons, report.Ready, report.WriteReady = true, nil, true, true
	report.Services, report.Queues = report.Services[:1], nil
	testkit.Equal(t, "all is well", show(false), `micronode 1.2.3, profile micronode, is ready

  without trouble: 1 service; --all lists them; all queues are empty

  peer ID  giqe
  gateway  http://127.0.0.1:8080

  `+amnesiaLine+`

  part     state  where
  index    up     @other
  mailbox  up     here
`)
}
