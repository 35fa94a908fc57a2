package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"micronode/client"
)

// topView is one view of a node: what top shows, and what it prints as JSON.
type topView struct {
	At      time.Time `json:"at"`
	Answers bool      `json:"answers"`
	Error   string    `json:"error,omitempty"` // why it does not
	Next    string    `json:"next,omitempty"`

	LastAnswer *time.Time `json:"last_answer,omitempty"` // of a node that answers no more

	*nodeView // nil if it does not answer
}

// nodeView is what a node does. Rates are those of the seconds since the last
// look, of which there is none at first.
type nodeView struct {
	Seconds    float64         `json:"seconds"`
	PeerID     string          `json:"peer_id"`
	Version    string          `json:"version"`
	Profile    string          `json:"profile"`
	Amnesia    bool            `json:"amnesia"`
	Ready      bool            `json:"ready"`
	WriteReady bool            `json:"write_ready"`
	Degraded   bool            `json:"degraded"`
	Reasons    []client.Reason `json:"reasons"`

	Routes   []routeView      `json:"routes"`   // the busiest first
	Queues   []queueView      `json:"queues"`   // the fullest first
	Refusals []refusalView    `json:"refusals"` // those that go on first; without those that never were
	Process  *processView     `json:"process,omitempty"`
	Sessions *sessionsView    `json:"sessions,omitempty"` // of an overlay in this process
	Store    client.Store     `json:"store"`
	Mailbox  *mailboxView     `json:"mailbox,omitempty"` // of a mailbox in this process
	Parts    []client.Part    `json:"parts"`             // of a node that runs as several processes
	Services []client.Service `json:"services"`          // those in trouble first
	Blind    string           `json:"blind,omitempty"`   // why there are no figures
}

// routeView is how many requests of a route were answered in a second, by the
// class of the status, and how long they took. Without a request there is no
// such time.
type routeView struct {
	Route string   `json:"route"`
	Rate  float64  `json:"rate"`
	OK    float64  `json:"rate_2xx"`
	Moved float64  `json:"rate_3xx"`
	Wrong float64  `json:"rate_4xx"`
	Ours  float64  `json:"rate_5xx"`
	P50   *float64 `json:"p50_ms"`
	P99   *float64 `json:"p99_ms"`
}

type queueView struct {
	Service  string  `json:"service"`
	Name     string  `json:"name"`
	Depth    int     `json:"depth"`
	Cap      int     `json:"cap"`
	Dropped  float64 `json:"dropped_total"`
	DropRate float64 `json:"drop_rate"`
}

// refusalView is how often something was refused. One request may be counted by
// a queue and by its route, so there is no sum.
type refusalView struct {
	Service string  `json:"service"`
	What    string  `json:"what"` // the queue or route that was full, or the reason
	Total   float64 `json:"total"`
	Rate    float64 `json:"rate"`
}

type processView struct {
	Seconds     float64 `json:"up_seconds"`
	Memory      float64 `json:"memory_bytes"` // resident
	Tasks       float64 `json:"tasks"`        // goroutines
	Descriptors float64 `json:"descriptors"`
	Most        float64 `json:"most_descriptors"`
}

type sessionsView struct {
	Active float64 `json:"active"`
	Opened float64 `json:"open_rate"`
	Closed float64 `json:"close_rate"`
}

type mailboxView struct {
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`
	Dead     float64 `json:"dead"`
}

// compare makes a view of two looks. There may be no earlier one.
func compare(before, now *look) topView {
	if before != nil && (before.status.PeerID != now.status.PeerID || before.blind != "" || before.figures.alone[startFigure] != now.figures.alone[startFigure]) {
		before = nil // what another process has counted says nothing of this one
	}
	seconds := 0.0
	if before != nil {
		seconds = now.at.Sub(before.at).Seconds()
	}
	d := difference{newFigures(), now.figures, seconds}
	if before != nil {
		d.before = before.figures
	}
	s, r := now.status, now.readiness
	return topView{At: now.at, Answers: true, nodeView: &nodeView{
		Seconds: seconds, PeerID: s.PeerID, Version: s.Version, Profile: s.Profile, Amnesia: s.Amnesia,
		Ready: r.Ready, WriteReady: r.WriteReady, Degraded: r.Degraded, Reasons: urgentFirst(r),
		Routes: d.routes(), Queues: d.queues(s.Queues), Services: troubledFirst(s.Services), Store: s.Store, Blind: now.blind,
		Refusals: d.refusals(), Process: now.process(), Sessions: d.sessions(), Mailbox: now.mailbox(), Parts: append([]client.Part{}, s.Parts...),
	}}
}

// process, sessions and mailbox are nil where the process has no such figures.

func (l *look) process() *processView {
	of := l.figures.alone
	began, known := of[startFigure]
	if !known {
		return nil
	}
	up := l.at.Sub(time.UnixMilli(int64(began * 1000))).Seconds()
	return &processView{max(up, 0), of["process_resident_memory_bytes"], of["go_goroutines"], of["process_open_fds"], of["process_max_fds"]}
}

func (l *look) mailbox() *mailboxView {
	of := l.figures.alone
	messages, known := of["mailbox_depth"]
	if !known {
		return nil
	}
	return &mailboxView{messages, of["mailbox_bytes"], of["mailbox_dead"]}
}

func (d difference) sessions() *sessionsView {
	active, known := d.now.alone["sessions_active"]
	if !known {
		return nil
	}
	return &sessionsView{active, d.alone("session_open_total"), d.alone("session_close_total")}
}

// difference is what was counted between two looks.
type difference struct {
	before, now figures
	seconds     float64 // 0 without an earlier look: then all rates are
}

// grown is by how much a counter has grown. One that is smaller than it was
// began anew with its node, so all of it is new.
func grown(before, now float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

func (d difference) rate(before, now float64) float64 {
	if d.seconds <= 0 {
		return 0
	}
	return grown(before, now) / d.seconds
}

func (d difference) alone(name string) float64 {
	return d.rate(d.before.alone[name], d.now.alone[name])
}

// routes are those that answered something since the last look.
func (d difference) routes() []routeView {
	byRoute := map[string]*routeView{}
	for key, count := range d.now.answers {
		rate := d.rate(d.before.answers[key], count)
		if rate == 0 {
			continue
		}
		one := byRoute[key.route]
		if one == nil {
			one = &routeView{Route: key.route}
			one.P50, one.P99 = d.quantile(key.route, 0.5), d.quantile(key.route, 0.99)
			byRoute[key.route] = one
		}
		one.Rate += rate
		switch key.class {
		case '2':
			one.OK += rate
		case '3':
			one.Moved += rate
		case '4':
			one.Wrong += rate
		case '5':
			one.Ours += rate
		}
	}
	list := []routeView{}
	for _, route := range slices.Sorted(maps.Keys(byRoute)) {
		list = append(list, *byRoute[route])
	}
	slices.SortStableFunc(list, func(a, b routeView) int {
		return cmp.Or(cmp.Compare(watching(a.Route), watching(b.Route)), cmp.Compare(b.Rate, a.Rate))
	})
	return list
}

// watching is 1 for routes by which a node is watched, also by this view: they
// say the least about what it does.
func watching(route string) int {
	switch route {
	case "/admin/status", "/metrics", "/readyz", "/healthz":
		return 1
	}
	return 0
}

// quantile is the time in milliseconds in which a share of the requests of a
// route was answered since the last look, estimated within its bucket. It is nil
// if there was none.
func (d difference) quantile(route string, share float64) *float64 {
	before, now := d.before.latency[route], d.now.latency[route]
	wanted := share * grown(before[math.Inf(1)], now[math.Inf(1)])
	if wanted <= 0 {
		return nil
	}
	lower, below := 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(now)) {
		count := grown(before[bound], now[bound])
		if count >= wanted {
			if !math.IsInf(bound, 1) && count > below {
				lower += (bound - lower) * (wanted - below) / (count - below)
			}
			break // beyond the last bucket nobody knows how far
		}
		lower, below = bound, count
	}
	milliseconds := lower * 1000
	return &milliseconds
}

// queues are all queues, the fullest first.
func (d difference) queues(all []client.Queue) []queueView {
	list := []queueView{}
	for _, one := range all {
		key := queueKey{one.Service, one.Name}
		list = append(list, queueView{one.Service, one.Name, one.Depth, one.Cap, d.now.dropped[key], d.rate(d.before.dropped[key], d.now.dropped[key])})
	}
	slices.SortStableFunc(list, func(a, b queueView) int {
		return cmp.Or(cmp.Compare(b.fullness(), a.fullness()), cmp.Compare(b.DropRate, a.DropRate), cmp.Compare(b.Dropped, a.Dropped))
	})
	return list
}

// refusals are all that there ever were, those that go on first.
func (d difference) refusals() []refusalView {
	list := []refusalView{}
	for key, total := range d.now.refused {
		if total > 0 {
			list = append(list, refusalView{key.service, key.name, total, d.rate(d.before.refused[key], total)})
		}
	}
	slices.SortFunc(list, func(a, b refusalView) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Service, b.Service), cmp.Compare(a.What, b.What))
	})
	return list
}

// fullness is from 0 to 1.
func (q queueView) fullness() float64 {
	if q.Cap <= 0 {
		return 0
	}
	return float64(q.Depth) / float64(q.Cap)
}

// troubledFirst puts services that do not run, or were restarted, before those
// of which there is nothing to say.
func troubledFirst(all []client.Service) []client.Service {
	list := append([]client.Service{}, all...)
	slices.SortStableFunc(list, func(a, b client.Service) int {
		return cmp.Or(cmp.Compare(trouble(b), trouble(a)), cmp.Compare(b.Restarts, a.Restarts))
	})
	return list
}

func trouble(s client.Service) int {
	switch {
	case s.State != "running" && s.State != "finished":
		return 2
	case s.Restarts > 0:
		return 1
	default:
		return 0
	}
}
