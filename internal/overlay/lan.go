package overlay

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/overlay/nearby"
)

// makeLAN makes what finds nodes in private networks, if the operator wants that.
func (o *Overlay) makeLAN() {
	if !o.config.LAN {
		return
	}
	o.lanReady = o.spec.Readiness.Dependency(service, "lan", observe.ForReads)
	o.lanReady.Up()
	o.lan = nearby.New(nearby.Spec{Self: o.ID(), Port: o.lanPort, Report: o.reportLAN,
		Count: func(outcome nearby.Outcome) { o.metrics.nearby.WithLabelValues(string(outcome)).Inc() }})
}

// lanPort is where nodes of private networks reach this one; zero if they cannot.
func (o *Overlay) lanPort() uint16 {
	at := o.Addr()
	if at == nil || loopback(at.String()) {
		return 0
	}
	_, text, _ := net.SplitHostPort(at.String()) // it listens there
	port, _ := strconv.ParseUint(text, 10, 16)
	return uint16(port)
}

// reportLAN says how finding others fares. The node works without it.
func (o *Overlay) reportLAN(now nearby.State) {
	event := Event{Type: LANFound, Peer: o.ID(), Detail: "in " + strings.Join(now.Networks, ", ")}
	switch {
	case len(now.Networks) == 0:
		o.lanReady.UpWithRemark("nodes nearby are not found: "+lanProblem(now.Problem), fault.NextOf(now.Problem))
		event.Type, event.Detail = LANTrouble, lanProblem(now.Problem)
	case now.Problem != nil:
		o.lanReady.UpWithRemark("nodes nearby are found in "+strings.Join(now.Networks, ", ")+" only: "+lanProblem(now.Problem), fault.NextOf(now.Problem))
		event.Detail += " only: " + lanProblem(now.Problem)
	case !now.Announced:
		o.lanReady.UpWithRemark("nodes nearby are found, but do not find this one: "+o.describeReach(), "Set --overlay to an address of a private network, or leave it out.")
	default:
		o.lanReady.Up()
	}
	(*sessionHandler)(o).emit(event)
}

// lanProblem is what is wrong, in words.
func lanProblem(err error) string {
	if joined, several := err.(interface{ Unwrap() []error }); several {
		var texts []string
		for _, one := range joined.Unwrap() {
			texts = append(texts, lanProblem(one))
		}
		return strings.Join(texts, "; ")
	}
	if problem, ok := errors.AsType[*fault.Error](err); ok {
		return problem.Detail
	}
	return err.Error()
}

// Nearby lists the nodes in the private networks of this one that are no peers of
// it, by ID. One that has knocked is among the knocks.
func (o *Overlay) Nearby() []client.Nearby {
	list := []client.Nearby{}
	if o.lan == nil {
		return list
	}
	now := time.Now()
	for _, one := range o.lan.Nodes(now) {
		if o.contacts.contains(one.ID) || o.knocks.contains(one.ID, now) {
			continue
		}
		shape := client.Nearby{ID: one.ID.String(), First: one.First.UTC(), Last: one.Last.UTC(), Accept: "micronode peers accept " + one.ID.String()}
		for _, at := range one.Addrs {
			shape.Addrs = append(shape.Addrs, at.String())
		}
		list = append(list, shape)
	}
	return list
}

// addrsNearby are where a node listens, if it is nearby.
func (o *Overlay) addrsNearby(id oap.PeerID) []string {
	if o.lan == nil {
		return nil
	}
	return o.lan.Addrs(id, time.Now())
}

// hideNearby takes a node from what is shown, and reports whether it was there.
func (o *Overlay) hideNearby(id oap.PeerID) bool {
	return o.lan != nil && o.lan.Hide(id, time.Now())
}

func (o *Overlay) handleListNearby(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, client.NearbyList{Nearby: o.Nearby()})
}
