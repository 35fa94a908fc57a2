package mailboxtest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/mailbox"
)

// modelMessage is the expected state of a message.
type modelMessage struct {
	id            string
	deliveries    int
	maxDeliveries int
	receipt       string    // of the lease, if it is leased
	until         time.Time // when the lease or the delay ends
}

// model is the expected state of a box: the messages in the order in which they
// were sent, and the dead ones in that in which they died.
type model struct {
	box          string
	alive        []*modelMessage
	dead         []string
	usedReceipts []string // receipts that are not valid any more
}

// advance advances the model to now. The order of leases that end at one
// instant is undefined, so the model never lets two end at the same one.
func (m *model) advance(now time.Time) {
	for {
		var next *modelMessage
		for _, one := range m.alive {
			if !one.until.IsZero() && !one.until.After(now) && (next == nil || one.until.Before(next.until)) {
				next = one
			}
		}
		if next == nil {
			return
		}
		if next.receipt != "" {
			m.expireLease(next)
		}
		next.until = time.Time{}
	}
}

// expireLease ends a lease.
func (m *model) expireLease(one *modelMessage) {
	m.usedReceipts = append(m.usedReceipts, one.receipt)
	one.receipt = ""
	if one.deliveries >= one.maxDeliveries {
		m.remove(one)
		m.dead = append(m.dead, one.id)
	}
}

func (m *model) remove(one *modelMessage) {
	m.alive = slices.DeleteFunc(m.alive, func(other *modelMessage) bool { return other == one })
}

// ready returns the messages that can be leased.
func (m *model) ready() (list []*modelMessage) {
	for _, one := range m.alive {
		if one.until.IsZero() {
			list = append(list, one)
		}
	}
	return list
}

// leased returns the messages that are leased.
func (m *model) leased() (list []*modelMessage) {
	for _, one := range m.alive {
		if one.receipt != "" {
			list = append(list, one)
		}
	}
	return list
}

// testModel compares an engine with the model, one box for each run. With faked
// time, leases and delays end; without it, they are so long that they do not.
func testModel(b testEnv) {
	e := b.open()
	runs := 0
	rapid.Check(b, func(t *rapid.T) {
		runs++
		m := &model{box: fmt.Sprintf("run %d", runs)}
		moments := 0
		duration := func(t *rapid.T, what string) time.Duration {
			moments++ // no two of them are the same
			if !b.Bubble {
				return longVisibility
			}
			return time.Duration(rapid.IntRange(1, 20).Draw(t, what))*time.Second + time.Duration(moments)*time.Millisecond
		}
		must := func(what string, err error) {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		pick := func(t *rapid.T) *modelMessage {
			list := m.leased()
			if len(list) == 0 {
				return nil
			}
			return rapid.SampledFrom(list).Draw(t, "message")
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				one := &modelMessage{maxDeliveries: rapid.IntRange(1, 3).Draw(t, "deliveries")}
				message := mailbox.Message{Box: m.box, Body: []byte("x"), MaxDeliveries: one.maxDeliveries}
				if rapid.Bool().Draw(t, "delayed") {
					message.Delay = duration(t, "delay")
					one.until = time.Now().Add(message.Delay)
				}
				sent, err := e.Engine.Send(e.ctx, message)
				must("Send", err)
				one.id = sent.ID
				m.alive = append(m.alive, one)
			},
			"receive": func(t *rapid.T) {
				visibility := duration(t, "visibility")
				got, err := e.Engine.Receive(e.ctx, m.box, visibility, 0)
				list := m.ready()
				if len(list) == 0 {
					if fault.KindOf(err) != fault.NotFound {
						t.Fatalf("Receive of nothing: %+v, %v", got, err)
					}
					return
				}
				must("Receive", err)
				at := slices.IndexFunc(list, func(one *modelMessage) bool { return one.id == got.ID })
				if at < 0 || b.Strict && at != 0 {
					t.Fatalf("received %s, which is at %d of those that can be had", got.ID, at)
				}
				one := list[at]
				if one.deliveries++; got.Deliveries != one.deliveries {
					t.Fatalf("delivery %d, want %d", got.Deliveries, one.deliveries)
				}
				one.receipt, one.until = got.Receipt, time.Now().Add(visibility)
			},
			"ack": func(t *rapid.T) {
				one := pick(t)
				if one == nil {
					return // nothing is leased
				}
				must("Ack", e.Engine.Ack(e.ctx, m.box, one.receipt))
				m.usedReceipts = append(m.usedReceipts, one.receipt)
				m.remove(one)
			},
			"nack": func(t *rapid.T) {
				one := pick(t)
				if one == nil {
					return // nothing is leased
				}
				delay := time.Duration(0)
				if rapid.Bool().Draw(t, "delayed") {
					delay = duration(t, "delay")
				}
				must("Nack", e.Engine.Nack(e.ctx, m.box, one.receipt, delay, "no"))
				m.expireLease(one)
				one.until = time.Time{}
				if delay > 0 {
					one.until = time.Now().Add(delay)
				}
			},
			"extend": func(t *rapid.T) {
				one, visibility := pick(t), duration(t, "visibility")
				if one == nil {
					return
				}
				must("Extend", e.Engine.Extend(e.ctx, m.box, one.receipt, visibility))
				one.until = time.Now().Add(visibility)
			},
			"a receipt that is used up": func(t *rapid.T) {
				if len(m.usedReceipts) == 0 {
					return
				}
				receipt := rapid.SampledFrom(m.usedReceipts).Draw(t, "receipt")
				for _, err := range []error{e.Engine.Ack(e.ctx, m.box, receipt), e.Engine.Nack(e.ctx, m.box, receipt, 0, ""),
					e.Engine.Extend(e.ctx, m.box, receipt, longVisibility)} {
					if fault.KindOf(err) != fault.NotFound {
						t.Fatalf("with a receipt that is used up: %v", err)
					}
				}
			},
			"time": func(t *rapid.T) {
				if b.Bubble {
					time.Sleep(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second)
				}
			},
			"": func(t *rapid.T) {
				m.advance(time.Now())
				if got := e.deadIDs(m.box, "", 1000); b.Strict && !slices.Equal(got, m.dead) {
					t.Fatalf("dead letters %q, want %q", got, m.dead)
				}
			},
		})
	})
}
