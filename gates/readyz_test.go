//go:build gates

package gates

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// readyz is the answer of /readyz.
type readyz struct {
	status     int
	Ready      bool     `json:"ready"`
	WriteReady bool     `json:"write_ready"`
	Degraded   bool     `json:"degraded"`
	Missing    []string `json:"missing"`
	Reasons    []struct {
		Dep    string `json:"dep"`
		Reason string `json:"reason"`
		Next   string `json:"next"`
	} `json:"reasons"`
}

// whole reports whether the node is fully ready.
func (r readyz) whole() bool { return r.Ready && r.WriteReady && !r.Degraded }

// hasReason reports whether a dependency is among the reasons, each of which
// must have a text and a next step.
func (r readyz) hasReason(dep string) bool {
	return slices.ContainsFunc(r.Reasons, func(one struct {
		Dep    string `json:"dep"`
		Reason string `json:"reason"`
		Next   string `json:"next"`
	}) bool {
		return one.Dep == dep && one.Reason != "" && one.Next != ""
	})
}

// readyz requests it from the gateway, which always answers it.
func (p *process) readyz() (now readyz) {
	p.t.Helper()
	answer, body, err := fetch(p.http + "/readyz")
	if err != nil {
		p.t.Fatalf("/readyz: %v", err)
	}
	if err := json.Unmarshal(body, &now); err != nil {
		p.t.Fatalf("/readyz: %v: %s", err, body)
	}
	now.status = answer.StatusCode
	return now
}

// awaitReadyz polls /readyz until holds returns true, and returns how long that
// took.
func (p *process) awaitReadyz(what string, patience time.Duration, holds func(readyz) bool) (time.Duration, readyz) {
	p.t.Helper()
	begun := time.Now()
	for {
		now := p.readyz()
		if holds(now) {
			return time.Since(begun), now
		}
		if time.Since(begun) > patience {
			p.t.Fatalf("%s was not told by /readyz within %s: %+v", what, patience, now)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitNotWriteReady waits until /readyz reports that writes are not served
// because of a dependency, and checks that reads still are.
func (p *process) awaitNotWriteReady(dep string, patience time.Duration) time.Duration {
	p.t.Helper()
	took, now := p.awaitReadyz(dep, patience, func(r readyz) bool { return !r.WriteReady && slices.Contains(r.Missing, dep) })
	if !now.Ready || now.status != http.StatusServiceUnavailable || !now.hasReason(dep) {
		p.t.Errorf("/readyz while %s is down: %+v", dep, now)
	}
	if answer, body, err := fetch(p.http + "/readyz?for=read"); err != nil || answer.StatusCode != http.StatusOK {
		p.t.Errorf("/readyz?for=read while %s is down: %v %v %s", dep, answer, err, body)
	}
	return took
}

// awaitWhole waits until the node is fully ready again.
func (p *process) awaitWhole(patience time.Duration) time.Duration {
	p.t.Helper()
	took, now := p.awaitReadyz("that all is well again", patience, readyz.whole)
	if now.status != http.StatusOK {
		p.t.Errorf("/readyz: %+v", now)
	}
	return took
}

// reasons is what /readyz names, for people.
func (r readyz) reasons() string {
	var all []string
	for _, one := range r.Reasons {
		all = append(all, fmt.Sprintf("%s: %s", one.Dep, one.Reason))
	}
	return strings.Join(all, "; ")
}
