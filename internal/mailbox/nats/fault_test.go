package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/fault"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

// writes reports whether a request puts a message or a note.
func writes(subject string) bool { return strings.HasPrefix(subject, "micronode.") }

// firstN is a verdict for the first so many requests of a kind.
func firstN(n int, of func(subject string) bool, v verdict) func(subject string) verdict {
	return func(subject string) verdict {
		if n == 0 || !of(subject) {
			return verdict{}
		}
		n--
		return v
	}
}

func send(t *testing.T, m *Mailbox, box, body string) mailbox.Sent {
	t.Helper()
	sent, err := m.Send(t.Context(), mailbox.Message{Box: box, Body: []byte(body)})
	testkit.Must(t, err)
	return sent
}

func receive(t *testing.T, m *Mailbox, box string) mailbox.Delivery {
	t.Helper()
	got, err := m.Receive(t.Context(), box, time.Hour, 0)
	testkit.Must(t, err)
	return got
}

func expectEmpty(t *testing.T, m *Mailbox, box string) {
	t.Helper()
	got, err := m.Receive(t.Context(), box, time.Hour, 0)
	if fault.KindOf(err) != fault.NotFound {
		t.Fatalf("Receive(%q) of a box with nothing to be had: %+v, %v", box, got, err)
	}
}

// TestLost loses a request or its answer at each step of a message's life. In
// the end, everything has happened once.
func TestLost(t *testing.T) {
	for name, v := range map[string]verdict{
		"the request":       {dropRequest: true},
		"the answer":        {dropResponse: true},
		"who leads":         {code: int(codeUnavailable)},
		"a mark in process": {code: int(codeInProcess)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer()
				m := f.open(t, Spec{})
				lose := func() { f.setIntercept(firstN(1, writes, v)) }
				lose()
				first := send(t, m, "jobs", "1")
				lose()
				got := receive(t, m, "jobs")
				if got.ID != first.ID || got.Deliveries != 1 {
					t.Fatalf("received %+v", got)
				}
				expectEmpty(t, m, "jobs")
				lose()
				testkit.Must(t, m.Extend(t.Context(), "jobs", got.Receipt, time.Hour))
				lose()
				testkit.Must(t, m.Nack(t.Context(), "jobs", got.Receipt, 0, ""))
				got = receive(t, m, "jobs")
				if got.ID != first.ID || got.Deliveries != 2 {
					t.Fatalf("received again %+v", got)
				}
				lose()
				testkit.Must(t, m.Ack(t.Context(), "jobs", got.Receipt))
				testkit.WantKind(t, m.Ack(t.Context(), "jobs", got.Receipt), fault.NotFound, "a second Ack")
				expectEmpty(t, m, "jobs")
				lose()
				testkit.Must(t, m.Post(t.Context(), []string{"wall", "door"}, mailbox.Note{ID: "1", Body: []byte("x")}))
				if notes, err := m.Notes(t.Context(), "wall", "", 10); err != nil || len(notes) != 1 {
					t.Errorf("notes: %+v, %v", notes, err)
				}
			})
		})
	}
}

// TestForgotten loses an answer, and JetStream has forgotten the change ID when
// it is sent again. The change ID of the stored record decides.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "0")
		f.setIntercept(func(subject string) verdict {
			if !writes(subject) {
				return verdict{}
			}
			f.intercept = func(string) verdict {
				clear(f.streams["micronode-mail"].msgIDs)
				return verdict{}
			}
			return verdict{dropResponse: true}
		})
		first := receive(t, m, "jobs")
		expectEmpty(t, m, "jobs")
		testkit.Must(t, m.Ack(t.Context(), "jobs", first.Receipt))
	})
}

// TestInProcess has JetStream say that a message is being changed, which is the
// same as that it has changed.
func TestInProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "1")
		f.setIntercept(firstN(3, writes, verdict{code: int(jetstream.JSErrCodeStreamWrongLastSequenceConstant)}))
		got := receive(t, m, "jobs")
		f.setIntercept(firstN(3, writes, verdict{code: int(jetstream.JSErrCodeStreamWrongLastSequence)}))
		testkit.Must(t, m.Ack(t.Context(), "jobs", got.Receipt))
	})
}

// TestSilence has a server that neither answers nor closes the connection.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "1")
		got := receive(t, m, "jobs")
		send(t, m, "jobs", "2")
		testkit.Must(t, m.Post(t.Context(), []string{"wall"}, mailbox.Note{ID: "1"}))
		f.setIntercept(func(string) verdict { return verdict{dropRequest: true} })
		for what, do := range map[string]func(ctx context.Context) error{
			"send":    func(ctx context.Context) error { _, err := m.Send(ctx, mailbox.Message{Box: "jobs"}); return err },
			"receive": func(ctx context.Context) error { _, err := m.Receive(ctx, "jobs", 0, 0); return err },
			"empty":   func(ctx context.Context) error { _, err := m.Receive(ctx, "none", 0, 0); return err },
			"ack":     func(ctx context.Context) error { return m.Ack(ctx, "jobs", got.Receipt) },
			"nack":    func(ctx context.Context) error { return m.Nack(ctx, "jobs", got.Receipt, 0, "") },
			"extend":  func(ctx context.Context) error { return m.Extend(ctx, "jobs", got.Receipt, 0) },
			"dead":    func(ctx context.Context) error { _, err := m.Dead(ctx, "jobs", "", 1); return err },
			"post":    func(ctx context.Context) error { return m.Post(ctx, []string{"wall"}, mailbox.Note{ID: "2"}) },
			"board":   func(ctx context.Context) error { _, err := m.Notes(ctx, "wall", "", 1); return err },
		} {
			for _, limit := range []time.Duration{time.Second, time.Hour} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				began := time.Now()
				testkit.WantKind(t, do(ctx), fault.Timeout, what+" in silence")
				if took := time.Since(began); took > min(limit, 5*time.Second) {
					t.Errorf("%s came back after %v", what, took)
				}
				cancel()
			}
		}
		f.setIntercept(nil)
		testkit.Must(t, m.Ack(t.Context(), "jobs", got.Receipt))
		if again := receive(t, m, "jobs"); string(again.Body) != "2" {
			t.Errorf("received %+v", again)
		}
		expectEmpty(t, m, "jobs")
	})
}

// TestAway opens a mailbox without a server, and loses the server later. It is
// not in a bubble: when it reconnects, the client library uses timers of other
// connections, that is, of other bubbles.
func TestAway(t *testing.T) {
	f := newFakeServer()
	f.disconnect(true)
	m := f.open(t, Spec{Timeout: 5 * time.Second})
	_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"})
	testkit.WantKind(t, err, fault.StorageBusy, "send without a server")
	testkit.WantKind(t, m.Health(), fault.StorageBusy, "health without a server")
	f.disconnect(false)
	testkit.WaitFor(t, "it is well", func() bool { return m.Health() == nil })
	first := send(t, m, "jobs", "1")

	waiting := make(chan error, 1)
	go func() {
		_, err := m.Receive(t.Context(), "other", 0, 10*time.Second)
		waiting <- err
	}()
	testkit.WaitFor(t, "somebody waits", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.waiters) > 0 })
	f.disconnect(true)
	testkit.WaitFor(t, "it is unwell", func() bool { return m.Health() != nil })
	testkit.WantKind(t, m.Health(), fault.StorageBusy, "health when the server is lost")
	testkit.WantKind(t, <-waiting, fault.StorageBusy, "waiting when the server is lost")
	f.disconnect(false)
	testkit.WaitFor(t, "it is well again", func() bool { return m.Health() == nil })
	if got := receive(t, m, "jobs"); got.ID != first.ID {
		t.Errorf("received %+v", got)
	}
}

// TestAwayWhileItIsGone has a message removed, and forgotten by JetStream,
// while a node is not connected.
func TestAwayWhileItIsGone(t *testing.T) {
	f := newFakeServer()
	m := f.open(t, Spec{})
	send(t, m, "jobs", "1")
	got := receive(t, m, "jobs")
	send(t, m, "jobs", "2")
	f.disconnect(true)
	f.mu.Lock()
	f.streams["micronode-mail"].messages = nil // as when both were acknowledged long ago
	f.mu.Unlock()
	f.disconnect(false)
	testkit.WaitFor(t, "nobody counts what is gone", func() bool { u := m.Usage(); return u.Messages == 0 && u.Leased == 0 && u.Boxes == 0 })
	testkit.WantKind(t, m.Ack(t.Context(), "jobs", got.Receipt), fault.NotFound, "an Ack of what is gone")
	expectEmpty(t, m, "jobs")
}

// TestRemoved has the streams removed.
func TestRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "1")
		f.mu.Lock()
		clear(f.streams)
		clear(f.consumers)
		f.mu.Unlock()
		_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"})
		testkit.WantKind(t, err, fault.StorageBusy, "send without streams")
		time.Sleep(time.Minute)
		if u := m.Usage(); u.Messages != 0 {
			t.Errorf("what is gone is still counted: %+v", u)
		}
		send(t, m, "jobs", "2")
		if got := receive(t, m, "jobs"); string(got.Body) != "2" {
			t.Errorf("received %+v", got)
		}
	})
}

// TestManyNodes has nodes receive from one box at the same time. They compete
// for messages, and still each message is received once.
func TestManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		const messages = 40
		var mu sync.Mutex
		seen := map[string]int{}
		var nodes []*Mailbox
		for range 3 {
			nodes = append(nodes, f.open(t, Spec{}))
		}
		var receiving sync.WaitGroup
		for _, m := range nodes {
			for range 3 {
				receiving.Go(func() {
					for {
						got, err := m.Receive(t.Context(), "jobs", time.Hour, time.Minute)
						if fault.KindOf(err) == fault.NotFound {
							return
						}
						if err == nil {
							err = nodes[got.Deliveries%3].Ack(t.Context(), "jobs", got.Receipt)
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						seen[string(got.Body)]++
						mu.Unlock()
					}
				})
			}
		}
		for i := range messages {
			send(t, nodes[i%3], "jobs", fmt.Sprint(i))
		}
		receiving.Wait()
		if len(seen) != messages {
			t.Errorf("%d letters of %d", len(seen), messages)
		}
		for body, n := range seen {
			if n != 1 {
				t.Errorf("%q was received %d times", body, n)
			}
		}
		for _, m := range nodes {
			if u := m.Usage(); u.Messages != 0 || u.Leased != 0 || u.Boxes != 0 || u.Bytes != 0 {
				t.Errorf("something is left: %+v", u)
			}
		}
	})
}

// TestDeadOnce has the last lease of a message end at two nodes: it dies once.
func TestDeadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		limits := mailboxtest.Limits()
		limits.DeadLife = time.Hour
		nodes := []*Mailbox{f.open(t, Spec{Limits: limits}), f.open(t, Spec{Limits: limits})}
		_, err := nodes[0].Send(t.Context(), mailbox.Message{Box: "jobs", Body: []byte("poison"), MaxDeliveries: 1})
		testkit.Must(t, err)
		_, err = nodes[1].Receive(t.Context(), "jobs", time.Second, 0)
		testkit.Must(t, err)
		time.Sleep(time.Minute)
		died := int64(0)
		for _, m := range nodes {
			u := m.Usage()
			died += u.Died
			if letters, err := m.Dead(t.Context(), "jobs", "", 10); err != nil || len(letters) != 1 || u.Dead != 1 || u.Messages != 0 {
				t.Errorf("dead letters: %+v, %v; %+v", letters, err, u)
			}
		}
		if died != 1 || nodes[0].Usage().Timeouts != 0 || nodes[1].Usage().Timeouts != 1 {
			t.Errorf("it died %d times; %+v", died, nodes[1].Usage())
		}
		time.Sleep(time.Hour)
		for _, m := range nodes {
			if letters, err := m.Dead(t.Context(), "jobs", "", 10); err != nil || len(letters) != 0 || m.Usage().Dead != 0 {
				t.Errorf("after its life: %+v, %v", letters, err)
			}
		}
	})
}

// TestDeathIsMadeUpFor has the server be silent when a message should die.
func TestDeathIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs", MaxDeliveries: 1})
		testkit.Must(t, err)
		_, err = m.Receive(t.Context(), "jobs", time.Second, 0)
		testkit.Must(t, err)
		f.setIntercept(func(string) verdict { return verdict{dropRequest: true} })
		time.Sleep(time.Minute)
		if u := m.Usage(); u.Dead != 0 || u.Messages != 1 || u.Timeouts != 1 {
			t.Errorf("nobody could write it down: %+v", u)
		}
		f.setIntercept(nil)
		time.Sleep(time.Minute)
		if u := m.Usage(); u.Dead != 1 || u.Messages != 0 || u.Timeouts != 1 || u.Died != 1 {
			t.Errorf("it is not dead: %+v", u)
		}
	})
}

// TestDeathThatIsRefused has messages that should die, and a server that
// refuses the writes. They are retried again and again, but not without a
// pause, also when something else is due.
func TestDeathThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		for range 3 {
			_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs", MaxDeliveries: 1})
			testkit.Must(t, err)
			_, err = m.Receive(t.Context(), "jobs", time.Second, 0)
			testkit.Must(t, err)
		}
		for i := range 100 {
			_, err := m.Send(t.Context(), mailbox.Message{Box: "later", Delay: time.Duration(i) * 300 * time.Millisecond})
			testkit.Must(t, err)
		}
		tries := 0
		f.setIntercept(func(subject string) verdict {
			if tries > 1000 {
				return verdict{dropRequest: true} // so that time goes on
			}
			if writes(subject) {
				tries++
				return verdict{code: int(codeStorage)}
			}
			return verdict{}
		})
		for range 600 {
			time.Sleep(50 * time.Millisecond)
			m.Usage() // as a scrape of the metrics does
		}
		f.mu.Lock()
		got := tries
		f.mu.Unlock()
		if got < 20 || got > 40 {
			t.Errorf("it was tried %d times within half a minute", got)
		}
		f.setIntercept(nil)
		time.Sleep(10 * time.Second)
		if u := m.Usage(); u.Dead != 3 || u.Messages != 100 {
			t.Errorf("when there is room: %+v", u)
		}
	})
}

// TestADamagedMessageDoesNotBlockOthers has two messages that should die. The
// record of the first is damaged; the other one dies all the same.
func TestADamagedMessageDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		for _, box := range []string{"damaged", "jobs"} {
			_, err := m.Send(t.Context(), mailbox.Message{Box: box, MaxDeliveries: 1})
			testkit.Must(t, err)
			_, err = m.Receive(t.Context(), box, time.Second, 0)
			testkit.Must(t, err)
		}
		asked := 0
		f.setIntercept(func(subject string) verdict {
			asked++
			return verdict{dropRequest: asked > 1000} // so that time goes on
		})
		f.mu.Lock()
		f.streams["micronode-mail"].messages[0].header.Set(metadataHeader, "boo")
		f.mu.Unlock()
		time.Sleep(time.Minute + sweepRetryDelay/2) // between two tries of the sweeper, which has claimed it meanwhile
		if u := m.Usage(); u.Dead != 1 {
			t.Errorf("the other one does not die: %+v", u)
		}
		if letters, err := m.Dead(t.Context(), "jobs", "", 10); err != nil || len(letters) != 1 {
			t.Errorf("dead letters: %+v, %v", letters, err)
		}
		_, err := m.Dead(t.Context(), "damaged", "", 10)
		testkit.WantKind(t, err, fault.IntegrityFail, "dead letters of the box with the damaged one")
		f.mu.Lock()
		defer f.mu.Unlock()
		if asked > 200 {
			t.Errorf("the server was asked %d times within a minute", asked)
		}
	})
}

// TestTheLastRecordEnds has the last record of the stream expire. No call waits
// for it.
func TestTheLastRecordEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "1")
		testkit.Must(t, m.Ack(t.Context(), "jobs", receive(t, m, "jobs").Receipt))
		testkit.Must(t, m.Close())
		time.Sleep(time.Hour)
		m = f.open(t, Spec{})
		expectEmpty(t, m, "jobs")
		expectEmpty(t, m, "jobs")
		f.mu.Lock()
		got := f.requests["$JS.API.STREAM.MSG"]
		f.mu.Unlock()
		if got > 20 {
			t.Errorf("it was asked %d times", got)
		}
	})
}

// TestStrangeRecords has another client write to our subjects.
func TestStrangeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "1")
		f.mu.Lock()
		f.store("micronode.mail.kstrange", nil, []byte("boo"))
		f.store(layout{"micronode"}.noteSubject("wall", "strange"), nil, []byte("boo"))
		f.mu.Unlock()
		synctest.Wait()
		testkit.WantKind(t, m.Health(), fault.IntegrityFail, "health")
		testkit.WantKind(t, m.Ack(t.Context(), "jobs", "kstrange.ABCDEFGHIJKLMNOPQRSTUVWXYZ"), fault.IntegrityFail, "an Ack of it")
		_, err := m.Notes(t.Context(), "wall", "", 10)
		testkit.WantKind(t, err, fault.IntegrityFail, "a board with it")
		receive(t, m, "jobs")
		for range 100 {
			time.Sleep(time.Second)
			testkit.WantKind(t, m.Health(), fault.IntegrityFail, "health as long as it is there")
		}
		f.mu.Lock()
		mail := f.streams["micronode-mail"]
		mail.messages = slices.DeleteFunc(mail.messages, func(one *fakeMessage) bool { return string(one.body) == "boo" })
		f.mu.Unlock()
		time.Sleep(time.Minute)
		testkit.Must(t, m.Health())
	})
}

// TestToken is not in a bubble: the client library holds a lock while it waits
// for a server to authenticate it.
func TestToken(t *testing.T) {
	f := newFakeServer()
	f.token = "right"
	m := f.open(t, Spec{Token: "swordfish", Timeout: 5 * time.Second})
	_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"})
	for what, err := range map[string]error{"send": err, "health": m.Health()} {
		testkit.WantKind(t, err, fault.NotReady, what)
		if !strings.Contains(fault.NextOf(err), "mailbox.token") || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("%s: %v; %s", what, err, fault.NextOf(err))
		}
	}
	send(t, f.open(t, Spec{Token: "right"}), "jobs", "1")
}

func TestRefusals(t *testing.T) {
	l := &jsClient{}
	for err, want := range map[error]fault.Kind{
		&jetstream.APIError{ErrorCode: codeStorage}:                      fault.StoreFull,
		&jetstream.APIError{ErrorCode: codeStoreFailed}:                  fault.StoreFull,
		&jetstream.APIError{ErrorCode: codeNoPeers}:                      fault.NotReady,
		&jetstream.APIError{ErrorCode: 1}:                                fault.UpstreamFailed,
		nats.ErrMaxPayload:                                               fault.BodyTooLarge,
		nats.ErrNoResponders:                                             fault.StorageBusy,
		nats.ErrReconnectBufExceeded:                                     fault.StorageBusy,
		nats.ErrTimeout:                                                  fault.Timeout,
		nats.ErrPermissionViolation:                                      fault.NotReady,
		errors.New("nats: Authorization Violation"):                      fault.NotReady,
		jetstream.ErrJetStreamNotEnabled:                                 fault.NotReady,
		fmt.Errorf("x: %w", damagedRecord("k", errors.New("no"))):        fault.IntegrityFail,
		errors.New("tls: failed to verify certificate: x509: no reason"): fault.StorageBusy,
	} {
		testkit.WantKind(t, l.refusal(t.Context(), "op", err), want, err.Error())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.WantKind(t, l.refusal(ended, "op", nats.ErrTimeout), fault.Canceled, "who asked has left")
	if err := l.refusal(t.Context(), "op", errors.New("x509: unknown authority")); !strings.Contains(fault.NextOf(err), "mailbox.ca_file") {
		t.Errorf("the next step is %q", fault.NextOf(err))
	}
}

// TestRefusedForGood has a server refuse for good.
func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		limits := mailboxtest.Limits()
		limits.BoxMessages = 2
		m := f.open(t, Spec{Limits: limits})
		send(t, m, "jobs", "1")
		for what, code := range map[fault.Kind]int{fault.StoreFull: int(codeStorage), fault.BodyTooLarge: int(jetstream.JSErrCodeStreamMessageExceedsMaximum)} {
			f.setIntercept(firstN(10, writes, verdict{code: code}))
			_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"})
			testkit.WantKind(t, err, what, "send")
			testkit.WantKind(t, m.Post(t.Context(), []string{"wall"}, mailbox.Note{ID: "1"}), what, "post")
		}
		f.setIntercept(firstN(1, func(subject string) bool { return strings.Contains(subject, "MSG.GET") }, verdict{code: int(codeStorage)}))
		_, err := m.Receive(t.Context(), "jobs", 0, 0)
		testkit.WantKind(t, err, fault.StoreFull, "receive")
		receive(t, m, "jobs")
		if u := m.Usage(); u.Messages != 1 || u.Boxes != 1 {
			t.Errorf("what was refused is counted: %+v", u)
		}
		send(t, m, "jobs", "there is room for one more")
	})
}

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := mailboxtest.Limits()
		limits.Boxes, limits.Bytes, limits.BoxBytes, limits.Boards, limits.DeadLetters = 2, 4000, 3000, 2, 0
		f := newFakeServer()
		m := f.open(t, Spec{Limits: limits})
		try := func(box string, n int) error {
			_, err := m.Send(t.Context(), mailbox.Message{Box: box, Body: make([]byte, n)})
			return err
		}
		testkit.WantKind(t, try("a", 3000), fault.Busy, "more than a box holds")
		testkit.Must(t, try("a", 2000))
		testkit.WantKind(t, try("a", 2000), fault.Busy, "more than is left in the box")
		testkit.Must(t, try("b", 500))
		testkit.WantKind(t, try("c", 0), fault.Busy, "one box too many")
		testkit.WantKind(t, try("b", 2000), fault.Busy, "more than the mailbox holds")

		testkit.Must(t, m.Post(t.Context(), []string{"a", "b"}, mailbox.Note{ID: "1"}))
		time.Sleep(time.Minute)
		testkit.Must(t, m.Post(t.Context(), []string{"b", "a"}, mailbox.Note{ID: "2"}))
		testkit.WantKind(t, m.Post(t.Context(), []string{"a", "c"}, mailbox.Note{ID: "3"}), fault.Busy, "one board too many")
		time.Sleep(time.Minute)
		if u := m.Usage(); u.Boards != 2 || u.Notes != 4 {
			t.Errorf("%+v", u)
		}

		got := receive(t, m, "b")
		testkit.Must(t, m.Nack(t.Context(), "b", got.Receipt, 0, ""))
		for range limits.MaxDeliveries - 1 {
			testkit.Must(t, m.Nack(t.Context(), "b", receive(t, m, "b").Receipt, 0, ""))
		}
		if u := m.Usage(); u.Dead != 0 || u.Died != 1 || u.Dropped != 1 {
			t.Errorf("where none is kept, a dead letter is: %+v", u)
		}
	})
}

// TestKeysOutlived uses a key again and again, while messages that had it
// before still exist.
func TestKeysOutlived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := mailboxtest.Limits()
		limits.KeyLife = 10 * time.Minute
		f := newFakeServer()
		here, there := f.open(t, Spec{Limits: limits}), f.open(t, Spec{Limits: limits})
		seen := map[string]bool{}
		for i := range 3 {
			m := mailbox.Message{Box: "jobs", Key: "k", Body: []byte(fmt.Sprint(i))}
			first, err := here.Send(t.Context(), m)
			again, errAgain := there.Send(t.Context(), m)
			if err != nil || errAgain != nil || seen[first.ID] || !again.Repeated || again.ID != first.ID {
				t.Fatalf("%d: %+v, %v; again %+v, %v", i, first, err, again, errAgain)
			}
			seen[first.ID] = true
			if i == 1 {
				// The message with the first name of the key is removed, and
				// the one with the second is the one that counts.
				testkit.Must(t, here.Ack(t.Context(), "jobs", receive(t, here, "jobs").Receipt))
				for _, node := range []*Mailbox{here, there} {
					if again, err := node.Send(t.Context(), m); err != nil || again.ID != first.ID {
						t.Fatalf("it is another one now: %+v, %v", again, err)
					}
				}
			}
			time.Sleep(limits.KeyLife)
		}
	})
}

// TestBehind has a node whose index lacks what another one sent. It does not
// report an empty box.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		here, there := f.open(t, Spec{}), f.open(t, Spec{})
		expectEmpty(t, here, "jobs")
		expectEmpty(t, there, "jobs")
		synctest.Wait()
		f.setPaused(true)
		sent := send(t, here, "jobs", "1")
		got := make(chan mailbox.Delivery, 1)
		go func() { got <- receive(t, there, "jobs") }()
		synctest.Wait()
		f.setPaused(false)
		if d := <-got; d.ID != sent.ID {
			t.Errorf("received %+v", d)
		}
	})
}

// TestLeftOut has a node miss a message that another one sent: the last one,
// and one before others.
func TestLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		here, there := f.open(t, Spec{}), f.open(t, Spec{})
		expectEmpty(t, here, "jobs")
		expectEmpty(t, there, "jobs")
		for _, more := range []bool{false, true} {
			synctest.Wait()
			f.mu.Lock()
			for _, c := range f.consumers {
				c.skip = true
			}
			f.mu.Unlock()
			waiting := make(chan mailbox.Delivery, 1)
			if more {
				go func() {
					got, _ := there.Receive(t.Context(), "jobs", time.Hour, time.Minute)
					waiting <- got
				}()
				synctest.Wait()
			}
			first := send(t, here, "jobs", "1")
			if more {
				send(t, here, "other", "2")
			} else {
				waiting <- receive(t, there, "jobs")
			}
			if got := <-waiting; got.ID != first.ID {
				t.Errorf("received %+v", got)
			}
		}
	})
}

// TestTheSameInstant has waits end in the moment in which there is a message.
// It goes to one of the receivers, or to the next.
func TestTheSameInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		for range 100 {
			_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs", Delay: time.Second})
			testkit.Must(t, err)
			var leaving sync.WaitGroup
			had := make(chan mailbox.Delivery, 2)
			for range 2 {
				leaving.Go(func() {
					if got, err := m.Receive(t.Context(), "jobs", time.Hour, time.Second); err == nil {
						had <- got
					}
				})
			}
			leaving.Wait()
			if len(had) == 0 {
				had <- receive(t, m, "jobs")
			}
			got := <-had
			if got.Deliveries != 1 || len(had) > 0 {
				t.Fatalf("received %+v, and %d more", got, len(had))
			}
			testkit.Must(t, m.Ack(t.Context(), "jobs", got.Receipt))
		}
	})
}

// TestOrder returns a message, which is then the first again, and lets a lease
// expire, after which it is so too.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m, other := f.open(t, Spec{}), f.open(t, Spec{})
		first := send(t, m, "jobs", "1")
		send(t, m, "jobs", "2")
		for range 2 {
			got := receive(t, m, "jobs")
			if got.ID != first.ID {
				t.Fatalf("received %q", got.Body)
			}
			testkit.Must(t, m.Nack(t.Context(), "jobs", got.Receipt, 0, ""))
		}
		synctest.Wait() // until the other one has consumed it
		if got, err := other.Receive(t.Context(), "jobs", time.Second, 0); err != nil || got.ID != first.ID {
			t.Fatalf("received %q, %v", got.Body, err)
		}
		time.Sleep(time.Second)
		if got := receive(t, m, "jobs"); got.ID != first.ID || got.Deliveries != 4 {
			t.Fatalf("received %q, delivery %d", got.Body, got.Deliveries)
		}
	})
}

// TestPostedLater posts a note again when JetStream has forgotten the first.
func TestPostedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		for _, body := range []string{"first", "second"} {
			testkit.Must(t, m.Post(t.Context(), []string{"wall"}, mailbox.Note{ID: "1", Body: []byte(body)}))
			f.mu.Lock()
			clear(f.streams["micronode-notes"].msgIDs)
			f.mu.Unlock()
		}
		if notes, err := m.Notes(t.Context(), "wall", "", 10); err != nil || len(notes) != 1 || string(notes[0].Body) != "first" {
			t.Errorf("notes: %+v, %v", notes, err)
		}
	})
}
