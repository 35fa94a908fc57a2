package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

// How a call that failed temporarily is retried.
var backoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: time.Second}

const (
	// attemptsPerCall is into how many parts the time of a call is divided. One
	// attempt gets one of them, so that a server that died before it answered
	// does not use up the time in which another one would answer.
	attemptsPerCall   = 4
	minAttemptTimeout = 50 * time.Millisecond
)

// How connections are kept. A server that does not answer two pings is
// disconnected.
const (
	connectTimeout = 2 * time.Second
	keepAlive      = 15 * time.Second
	pingEvery      = 4 * time.Second
	maxPingsOut    = 2
	reconnectPause = 100 * time.Millisecond
	writeTimeout   = 2 * time.Second
)

// How a consumer is kept: one without messages for two heartbeats is restarted.
const (
	consumeExpiry    = 10 * time.Second
	consumeHeartbeat = 2 * time.Second
	consumeBatch     = 512
)

// How notes are posted: so many at a time, and so many pending in all.
const (
	postBatchSize   = 64
	maxPostsPending = 1024
)

// sizeHeader has the length of a body that was left out.
const sizeHeader = "Nats-Msg-Size"

// tombstoneTTL is how long the tombstone of a message without a key is kept, so
// that every node sees it.
const tombstoneTTL = 5 * time.Minute

// errWrongSequence says that a message has changed since it was read.
var errWrongSequence = errors.New("the message has changed meanwhile")

// jsClient makes the calls to JetStream: each with a time limit of its own,
// retried where that is harmless, and with an error that says what to do.
type jsClient struct {
	// set at construction
	layout     layout
	timeout    time.Duration
	replicas   int
	probeToken string // the message that probes of this node are written over
	limits     mailbox.Limits
	conn       *nats.Conn
	js         jetstream.JetStream
	closed     chan struct{} // when the connection is

	mailStream    atomic.Pointer[jetstream.Stream] // of the messages, once it exists
	connected     atomic.Bool
	disconnectErr atomic.Pointer[error] // why it is not
	needsResync   atomic.Bool           // everything has to be read again

	retries, timeouts, failures atomic.Uint64
}

// dial connects, in the background if no server answers at once: a node must be
// able to start before its servers. It calls onReconnect when a lost connection
// is restored.
func dial(spec Spec, servers []string, secure bool, onReconnect func()) (*jsClient, error) {
	l := &jsClient{layout: layout{spec.Name}, timeout: spec.Timeout, replicas: spec.Replicas, probeToken: "p" + strings.ToLower(rand.Text()), limits: spec.Limits, closed: make(chan struct{})}
	options := nats.GetDefaultOptions()
	options.Servers, options.Token = servers, spec.Token
	options.Name = "micronode mailbox"
	options.Timeout, options.FlusherTimeout, options.CustomDialer = connectTimeout, writeTimeout, spec.dialer
	options.PingInterval, options.MaxPingsOut = pingEvery, maxPingsOut
	options.RetryOnFailedConnect, options.IgnoreAuthErrorAbort = true, true
	options.MaxReconnect, options.ReconnectWait = -1, reconnectPause
	options.ReconnectJitter, options.ReconnectJitterTLS = reconnectPause, reconnectPause
	options.ReconnectBufSize = -1                                        // what cannot be sent now fails now
	options.IgnoreDiscoveredServers, options.SkipHostLookup = true, true // only the configuration names servers
	options.ConnectedCB = func(*nats.Conn) { l.connected.Store(true) }
	options.ReconnectedCB = func(*nats.Conn) {
		l.needsResync.Store(true) // it is unknown what was missed
		l.connected.Store(true)
		onReconnect()
	}
	options.DisconnectedErrCB = func(_ *nats.Conn, err error) { l.onDisconnect(err) }
	options.ReconnectErrCB = func(_ *nats.Conn, err error) { l.onDisconnect(err) }
	options.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // the default would print it
	options.ClosedCB = func(*nats.Conn) { close(l.closed) }
	if spec.CredsFile != "" {
		if err := nats.UserCredentials(spec.CredsFile)(&options); err != nil {
			return nil, &fault.Error{Op: opOpen, Kind: fault.Malformed, Detail: "the file that " + settingCreds + " names cannot be used", Next: "Check " + settingCreds + ".", Err: err}
		}
	}
	if secure {
		tlsConfig, err := spec.trust().TLS(opOpen)
		if err != nil {
			return nil, err
		}
		options.Secure, options.TLSConfig = true, tlsConfig
	}
	conn, err := options.Connect()
	if err != nil {
		return nil, fault.WrapKind(opOpen, fault.NotReady, err)
	}
	l.conn = conn
	l.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(maxPostsPending), jetstream.WithPublishAsyncTimeout(spec.Timeout))
	return l, fault.WrapKind(opOpen, fault.Internal, err)
}

func (j *jsClient) onDisconnect(err error) {
	if err != nil {
		j.disconnectErr.Store(&err)
	}
	j.connected.Store(false)
}

func (j *jsClient) close() {
	j.conn.Close()
	<-j.closed
}

// retry makes a call that may be repeated, and repeats it after a transient
// error.
func (j *jsClient) retry(ctx context.Context, op string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	for try := 1; ; try++ {
		one, stop := context.WithTimeout(ctx, j.attemptTimeout(ctx))
		err := do(one)
		stop()
		if err == nil || errors.Is(err, errWrongSequence) {
			return err
		}
		err = j.refusal(ctx, op, err)
		switch fault.KindOf(err) {
		case fault.Timeout:
			j.timeouts.Add(1)
		case fault.UpstreamFailed, fault.StorageBusy:
			j.failures.Add(1)
		}
		if !isTransient(err) || !backoff.Wait(ctx, try-1) {
			return err
		}
		j.retries.Add(1)
	}
}

// attemptTimeout returns how long one attempt may take: a part of the limit,
// and at most half of what is left.
func (j *jsClient) attemptTimeout(ctx context.Context) time.Duration {
	left, _ := flow.Remaining(ctx)
	return max(minAttemptTimeout, min(j.timeout/attemptsPerCall, left/2))
}

// ensureStreams creates the streams or updates their configuration. It never
// reduces the number of replicas.
func (j *jsClient) ensureStreams(ctx context.Context, op string) error {
	mail := jetstream.StreamConfig{
		Name: j.layout.mailStream(), Subjects: []string{j.layout.messageSubjects()}, Description: "micronode: one message for each letter of the mailbox",
		MaxMsgsPerSubject: 1, AllowMsgTTL: true,
		// The nodes count messages, which is not exact among several of them.
		// This bound is for miscounts; acknowledging needs room as well.
		MaxBytes: 2*j.limits.Bytes + 64<<20, Discard: jetstream.DiscardNew,
	}
	notes := jetstream.StreamConfig{
		Name: j.layout.notesStream(), Subjects: []string{j.layout.name + ".notes.*.*", j.layout.name + ".boards.*"},
		Description:       "micronode: one message for each note of a board of the mailbox, and one for each board",
		MaxMsgsPerSubject: 1, AllowDirect: true,
		MaxBytes: max(1, j.limits.Bytes/2), Discard: jetstream.DiscardOld,
	}
	for _, stream := range []jetstream.StreamConfig{notes, mail} {
		stream.Storage, stream.Replicas, stream.MaxMsgs, stream.MaxConsumers = jetstream.FileStorage, j.replicas, -1, -1
		err := j.retry(ctx, op, func(ctx context.Context) error {
			made, err := j.ensureStream(ctx, stream)
			if err == nil && stream.Name == mail.Name {
				j.mailStream.Store(&made)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ensureStream creates a stream, unless it exists with the right configuration.
func (j *jsClient) ensureStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	found, err := j.js.Stream(ctx, want.Name)
	if err == nil {
		have := found.CachedInfo().Config
		want.Replicas = max(want.Replicas, have.Replicas)
		if sameStreamConfig(have, want) {
			return found, nil
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	return j.js.CreateOrUpdateStream(ctx, want)
}

// sameStreamConfig reports whether a stream has the right configuration, as far
// as it matters here.
func sameStreamConfig(have, want jetstream.StreamConfig) bool {
	return have.MaxMsgsPerSubject == want.MaxMsgsPerSubject && have.MaxBytes == want.MaxBytes && have.AllowMsgTTL == want.AllowMsgTTL &&
		have.AllowDirect == want.AllowDirect && have.Discard == want.Discard && have.Replicas == want.Replicas
}

// put writes a record and a body over the one with the expected sequence; with
// zero, there must be none. It returns the new sequence, or errWrongSequence.
//
// An answer may be lost, so the same is sent again with the same change ID:
// JetStream deduplicates those of the last two minutes. Should it have
// forgotten, the ID of the stored record tells which change made it.
func (j *jsClient) put(ctx context.Context, op string, e storedMessage, expect uint64, life time.Duration) (seq uint64, err error) {
	options := []jetstream.PublishOpt{
		jetstream.WithMsgID(e.ChangeID), jetstream.WithExpectStream(j.layout.mailStream()), jetstream.WithExpectLastSequencePerSubject(expect),
	}
	if life > 0 {
		options = append(options, jetstream.WithMsgTTL(max(time.Second, life.Round(time.Second))))
	}
	err = j.retry(ctx, op, func(ctx context.Context) error {
		ack, err := j.js.PublishMsg(ctx, &nats.Msg{
			Subject: j.layout.messageSubject(e.token), Header: nats.Header{metadataHeader: {e.encode()}}, Data: e.body,
		}, options...)
		if err == nil {
			seq = ack.Sequence
			return nil
		}
		if !isWrongSequence(err) {
			return err
		}
		current, found, err := j.fetchLast(ctx, e.token)
		if err == nil && (!found || current.ChangeID != e.ChangeID) {
			err = errWrongSequence
		}
		seq = current.seq
		return err
	})
	return seq, err
}

// getLast reads the record and the body of a message from the leader of the
// stream, not from any replica.
func (j *jsClient) getLast(ctx context.Context, op, token string) (e storedMessage, found bool, err error) {
	err = j.retry(ctx, op, func(ctx context.Context) error {
		e, found, err = j.fetchLast(ctx, token)
		return err
	})
	return e, found, err
}

func (j *jsClient) fetchLast(ctx context.Context, token string) (storedMessage, bool, error) {
	m, err := (*j.mailStream.Load()).GetLastMsgForSubject(ctx, j.layout.messageSubject(token))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return storedMessage{}, false, nil
	}
	if err != nil {
		return storedMessage{}, false, err
	}
	r, err := decodeMetadata(m.Header.Get(metadataHeader))
	if err != nil {
		return storedMessage{}, false, damagedRecord(token, err)
	}
	return storedMessage{token: token, metadata: r, seq: m.Sequence, size: int64(len(m.Data)), body: m.Data}, true, nil
}

// lastSequence returns the last sequence that was assigned.
func (j *jsClient) lastSequence(ctx context.Context, op string) (end uint64, err error) {
	err = j.retry(ctx, op, func(ctx context.Context) error {
		info, err := (*j.mailStream.Load()).Info(ctx)
		if err == nil {
			end = info.State.LastSeq
		}
		return err
	})
	return end, err
}

// readBoardStats reads how much is on the boards, and checks that the stream of
// messages exists.
func (j *jsClient) readBoardStats(ctx context.Context) (boardStats, error) {
	notes, err := j.js.Stream(ctx, j.layout.notesStream())
	if err != nil {
		return boardStats{}, err
	}
	boards, err := j.rangeFrom(ctx, j.layout.name+".boards.*", 1)
	if err != nil {
		return boardStats{}, err
	}
	s := notes.CachedInfo().State
	_, err = (*j.mailStream.Load()).Info(ctx)
	return boardStats{
		boards: int64(boards.count), notes: max(0, int64(s.Msgs)-int64(boards.count)), bytes: int64(s.Bytes),
		midSequence: s.FirstSeq + (s.LastSeq-s.FirstSeq)/2, readAt: time.Now(),
	}, err
}

// lastLiveSequence returns the sequence of the last message that exists; zero
// for none.
func (j *jsClient) lastLiveSequence(ctx context.Context, op string) (uint64, error) {
	e, _, err := j.getLast(ctx, op, "*")
	return e.seq, err
}

// consume delivers every record that exists, and those that come, in their
// order, until stop is called. When one may have been missed, it delivers no
// more and calls onGap once; then everything has to be read again.
//
// The client library has a consumer that does the latter by itself. It cannot
// be stopped while it tries to, and it does not see what expired meanwhile.
func (j *jsClient) consume(ctx context.Context, op string, apply func(e storedMessage), onDamaged func(err error), onGap func()) (stop func(), err error) {
	err = j.retry(ctx, op, func(ctx context.Context) error {
		consumer, err := j.js.CreateConsumer(ctx, j.layout.mailStream(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
		})
		if err != nil {
			return err
		}
		var seen uint64 // owned by the callback
		var broken atomic.Bool
		fail := func() {
			if broken.CompareAndSwap(false, true) {
				onGap()
			}
		}
		feed, err := consumer.Consume(func(m jetstream.Msg) {
			meta, err := m.Metadata()
			if seen++; err != nil || meta.Sequence.Consumer != seen {
				fail()
			}
			if broken.Load() {
				return
			}
			e, err := j.decodeConsumed(m, meta.Sequence.Stream)
			if err != nil {
				onDamaged(err)
			}
			apply(e)
		}, jetstream.PullExpiry(consumeExpiry), jetstream.PullHeartbeat(consumeHeartbeat), jetstream.PullMaxMessages(consumeBatch),
			jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) { fail() }))
		if err == nil {
			stop = feed.Stop
		}
		return err
	})
	return stop, err
}

// decodeConsumed decodes a consumed record, and the length of its body. Of a
// damaged record, only the sequence is known.
func (j *jsClient) decodeConsumed(m jetstream.Msg, seq uint64) (storedMessage, error) {
	e := storedMessage{token: j.layout.tokenOf(m.Subject()), seq: seq}
	r, err := decodeMetadata(m.Headers().Get(metadataHeader))
	if err != nil {
		return storedMessage{seq: seq}, damagedRecord(e.token, err)
	}
	e.metadata = r
	e.size, _ = strconv.ParseInt(m.Headers().Get(sizeHeader), 10, 64)
	return e, nil
}
