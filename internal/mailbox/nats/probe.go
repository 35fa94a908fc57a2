package nats

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/internal/mailbox"
)

var _ mailbox.Prober = (*Mailbox)(nil)

// probeLife is how long the record of a probe stays.
const probeLife = 5 * time.Second

// Probe implements mailbox.Prober: it writes the tombstone of a message that never
// was. As with every message, a majority of the replicas has to store it.
func (m *Mailbox) Probe(ctx context.Context) error {
	const op = "mailbox.nats.probe"
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	return m.client.probe(ctx, op)
}

// Address implements mailbox.Prober.
func (m *Mailbox) Address() string { return m.address }

// Calls implements mailbox.Prober.
func (m *Mailbox) Calls() mailbox.Calls {
	c := m.client
	return mailbox.Calls{Retries: c.retries.Load(), Timeouts: c.timeouts.Load(), Failures: c.failures.Load()}
}

// addressOf lists the hosts of the servers.
func addressOf(servers []string) string {
	var hosts []string
	for _, server := range servers {
		_, host, found := strings.Cut(server, "://")
		if !found {
			host = server
		}
		hosts = append(hosts, host)
	}
	return strings.Join(hosts, ", ")
}

// probe writes the record of a probe. Each node has one subject for it.
func (j *jsClient) probe(ctx context.Context, op string) error {
	record := metadata{ID: "probe", State: stateGone, Due: time.Now().Add(probeLife).UnixNano(), ChangeID: rand.Text()}
	return j.retry(ctx, op, func(ctx context.Context) error {
		_, err := j.js.PublishMsg(ctx, &nats.Msg{Subject: j.layout.messageSubject(j.probeToken), Header: nats.Header{metadataHeader: {record.encode()}}},
			jetstream.WithMsgID(record.ChangeID), jetstream.WithExpectStream(j.layout.mailStream()), jetstream.WithMsgTTL(probeLife))
		return err
	})
}
