package mailboxtest

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testKey(b testEnv) {
	e := b.open()
	m := mailbox.Message{Box: "jobs", Key: "k1", Body: []byte("once"), Delay: 0, MaxDeliveries: 3}
	id := e.send(m)
	repeat := func() {
		e.Helper()
		if again, err := e.Send(e.ctx, m); err != nil || again.ID != id || !again.Repeated {
			e.Fatalf("sent again: %+v, %v; want %s", again, err, id)
		}
	}
	repeat()
	for name, change := range map[string]func(*mailbox.Message){
		"another body":       func(m *mailbox.Message) { m.Body = []byte("twice") },
		"another delay":      func(m *mailbox.Message) { m.Delay = time.Second },
		"another number":     func(m *mailbox.Message) { m.MaxDeliveries = 4 },
		"the default number": func(m *mailbox.Message) { m.MaxDeliveries = 0 },
	} {
		other := m
		change(&other)
		_, err := e.Send(e.ctx, other)
		e.expectKind("the same key with "+name, err, fault.Conflict)
	}
	got := e.receive("jobs", longVisibility)
	e.expectEmpty("jobs")
	repeat()
	e.ack("jobs", got)
	repeat()
	e.expectEmpty("jobs")

	m.Key = "k2"
	if second := e.send(m); second == id {
		e.Error("another key is another message")
	}
	m.Key = ""
	e.send(m)
	e.send(m)
	e.expectUsage("three messages", func(u mailbox.Usage) bool { return u.Messages == 3 })
	m.Key = strings.Repeat("k", 256)
	_, err := e.Send(e.ctx, m)
	e.expectKind("a key of 256 characters", err, fault.Malformed)
}

func testKeyRace(b testEnv) {
	e := b.open()
	const at = 8
	var senders sync.WaitGroup
	answers := make([]mailbox.Sent, at)
	for i := range at {
		senders.Go(func() { //lockblock:allow this package is a test; all are waited for below
			var err error
			if answers[i], err = e.Engine.Send(e.ctx, mailbox.Message{Box: "jobs", Key: "same", Body: []byte("once")}); err != nil {
				e.Errorf("Send: %v", err)
			}
		})
	}
	senders.Wait()
	first := 0
	for _, one := range answers {
		if one.ID != answers[0].ID {
			e.Errorf("IDs %s and %s", one.ID, answers[0].ID)
		}
		if !one.Repeated {
			first++
		}
	}
	if first != 1 {
		e.Errorf("%d of them were the first", first)
	}
	e.ack("jobs", e.receive("jobs", longVisibility))
	e.expectEmpty("jobs")
}

// keyLife is short, so that a task that runs every second of faked time runs
// less often, but longer than an engine remembers a message anyway.
const keyLife = 30 * time.Minute

func testKeyLife(b testEnv) {
	limits := Limits()
	limits.KeyLife = keyLife
	e := b.openWith(limits)
	m := mailbox.Message{Box: "jobs", Key: "k", Body: []byte("a")}
	first := e.send(m)
	time.Sleep(keyLife - time.Second)
	if again, err := e.Send(e.ctx, m); err != nil || !again.Repeated {
		e.Fatalf("just before its end: %+v, %v", again, err)
	}
	time.Sleep(time.Second)
	m.Body = []byte("b")
	if again := e.send(m); again == first {
		e.Fatal("the key is remembered after its life")
	}
}

// testKeyOwners: a key belongs to its sender and its box. Nobody else can take
// it, or learn that it was used.
func testKeyOwners(b testEnv) {
	e := b.open()
	m := mailbox.Message{Box: "jobs", Key: "order-4711", Sender: "one", Body: []byte("pay")}
	id := e.send(m)
	for name, other := range map[string]mailbox.Message{
		"another box":                  {Box: "other", Key: "order-4711", Sender: "one"},
		"another sender":               {Box: "jobs", Key: "order-4711", Sender: "two"},
		"another sender, box and body": {Box: "other", Key: "order-4711", Sender: "two", Body: []byte("stop")},
		"nobody":                       {Box: "jobs", Key: "order-4711", Body: []byte("pay")},
		"a sender that ends otherwise": {Box: "jobs", Key: "eorder-4711", Sender: "on", Body: []byte("pay")},
		"a box that begins otherwise":  {Box: "ejobs", Key: "order-4711", Sender: "on", Body: []byte("pay")},
	} {
		if sent, err := e.Send(e.ctx, other); err != nil || sent.Repeated || sent.ID == id {
			e.Errorf("%s: %+v, %v", name, sent, err)
		}
	}
	if again, err := e.Send(e.ctx, m); err != nil || again.ID != id || !again.Repeated {
		e.Errorf("sent again: %+v, %v; want %s", again, err, id)
	}
}

// testKeyShares: however many keys a sender uses for a box, those of others are
// remembered for their time.
func testKeyShares(b testEnv) {
	const most = 16
	limits := Limits()
	limits.Keys, limits.KeyLife = most, keyLife
	e := b.openWith(limits)
	flood := func(sender, box string) {
		for i := range 2 * most {
			if _, err := e.Send(e.ctx, mailbox.Message{Box: box, Key: strconv.Itoa(i), Sender: sender}); err != nil {
				e.expectKind("a key too many", err, fault.Busy)
			}
		}
	}
	flood("greedy", "floods")
	payment := mailbox.Message{Box: "payments", Key: "order-4711", Sender: "till", Body: []byte("pay")}
	sibling := mailbox.Message{Box: "payments", Key: "order-4711", Sender: "greedy", Body: []byte("pay")}
	first, second := e.send(payment), e.send(sibling)
	for range 2 {
		flood("greedy", "floods")
		for id, m := range map[string]mailbox.Message{first: payment, second: sibling} {
			if again, err := e.Send(e.ctx, m); err != nil || again.ID != id || !again.Repeated {
				e.Errorf("%s: sent again: %+v, %v; want %s", m.Sender, again, err, id)
			}
		}
	}
	time.Sleep(keyLife)
	if again, err := e.Send(e.ctx, payment); err != nil || again.Repeated {
		e.Errorf("after the life of the key: %+v, %v", again, err)
	}
}
