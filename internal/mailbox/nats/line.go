package nats

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

// How a call that failed in passing is tried again.
const (
	pauseLow  = 50 * time.Millisecond
	pauseHigh = 100 * time.Millisecond
	pauseMost = time.Second

	// attempts is into how many parts the time of a call is cut. One attempt
	// gets one of them, so that a server that died with the answer does not use
	// up the time in which another one would answer.
	attempts = 4
	shortest = 50 * time.Millisecond
)

// How connections are kept. A server that says nothing is left after two pings.
const (
	connectTimeout = 2 * time.Second
	keepAlive      = 15 * time.Second
	pingEvery      = 4 * time.Second
	pingsMissed    = 2
	reconnectPause = 100 * time.Millisecond
	writeTimeout   = 2 * time.Second
)

// How a follower is kept: one that hears nothing for two beats starts anew.
const (
	followExpiry = 10 * time.Second
	followBeat   = 2 * time.Second
	followBatch  = 512
)

// What boards are written in: so many at a time, and all in all.
const (
	pinBatch   = 64
	pinPending = 1024
)

// sizeHeader says how long a body is that was left out.
const sizeHeader = "Nats-Msg-Size"

// goneLife is how long it is remembered that a letter without a key is gone, so
// that every node hears of it.
const goneLife = 5 * time.Minute

// errStale says that a letter has changed since it was looked at.
var errStale = errors.New("the letter has changed meanwhile")

// line makes the calls to JetStream: each with a limit of its own, tried again
// where that is harmless, and with an error that says what to do.
type line struct {
	// set at construction
	layout   layout
	timeout  time.Duration
	replicas int
	limits   mailbox.Limits
	conn     *nats.Conn
	js       jetstream.JetStream
	closed   chan struct{} // when the connection is

	mail      atomic.Pointer[jetstream.Stream] // of the letters, once it is there
	connected atomic.Bool
	trouble   atomic.Pointer[error] // why it is not
	stale     atomic.Bool           // everything has to be read anew
}

// dial makes the connection, in the background if no server answers at once: a
// node must be able to start before its servers. It calls back when a connection
// that was lost is there again.
func dial(spec Spec, servers []string, secure bool, back func()) (*line, error) {
	l := &line{layout: layout{spec.Name}, timeout: spec.Timeout, replicas: spec.Replicas, limits: spec.Limits, closed: make(chan struct{})}
	options := nats.GetDefaultOptions()
	options.Servers, options.Token = servers, spec.Token
	options.Name = "micronode mailbox"
	options.Timeout, options.FlusherTimeout, options.CustomDialer = connectTimeout, writeTimeout, spec.dialer
	options.PingInterval, options.MaxPingsOut = pingEvery, pingsMissed
	options.RetryOnFailedConnect, options.IgnoreAuthErrorAbort = true, true
	options.MaxReconnect, options.ReconnectWait = -1, reconnectPause
	options.ReconnectJitter, options.ReconnectJitterTLS = reconnectPause, reconnectPause
	options.ReconnectBufSize = -1                                        // what cannot be sent now fails now
	options.IgnoreDiscoveredServers, options.SkipHostLookup = true, true // who is asked is for the configuration alone to say
	options.ConnectedCB = func(*nats.Conn) { l.connected.Store(true) }
	options.ReconnectedCB = func(*nats.Conn) {
		l.stale.Store(true) // it is not known what was missed
		l.connected.Store(true)
		back()
	}
	options.DisconnectedErrCB = func(_ *nats.Conn, err error) { l.lost(err) }
	options.ReconnectErrCB = func(_ *nats.Conn, err error) { l.lost(err) }
	options.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // it would be printed
	options.ClosedCB = func(*nats.Conn) { close(l.closed) }
	if spec.CredsFile != "" {
		if err := nats.UserCredentials(spec.CredsFile)(&options); err != nil {
			return nil, &fault.Error{Op: opOpen, Kind: fault.Malformed, Detail: "the file that " + setCreds + " names cannot be used", Next: "Check " + setCreds + ".", Err: err}
		}
	}
	if secure {
		secrets, err := spec.trust().TLS(opOpen)
		if err != nil {
			return nil, err
		}
		options.Secure, options.TLSConfig = true, secrets
	}
	conn, err := options.Connect()
	if err != nil {
		return nil, fault.WrapKind(opOpen, fault.NotReady, err)
	}
	l.conn = conn
	l.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(pinPending), jetstream.WithPublishAsyncTimeout(spec.Timeout))
	return l, fault.WrapKind(opOpen, fault.Internal, err)
}

func (l *line) lost(err error) {
	if err != nil {
		l.trouble.Store(&err)
	}
	l.connected.Store(false)
}

func (l *line) close() {
	l.conn.Close()
	<-l.closed
}

// call makes a call that may be repeated, and repeats it if it fails in passing.
func (l *line) call(ctx context.Context, op string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for try := 1; ; try++ {
		one, stop := context.WithTimeout(ctx, l.share(ctx))
		err := do(one)
		stop()
		if err == nil || errors.Is(err, errStale) {
			return err
		}
		err = l.refusal(ctx, op, err)
		if !passing(err) || !pause(ctx, try) {
			return err
		}
	}
}

// share is how long one attempt may take: a part of the limit, and not more than
// half of what is left.
func (l *line) share(ctx context.Context) time.Duration {
	left, _ := flow.Remaining(ctx)
	return max(shortest, min(l.timeout/attempts, left/2))
}

// pause waits before another try, and reports whether there is to be one. A
// pause that the deadline does not leave time for is not begun.
func pause(ctx context.Context, try int) bool {
	wait := min((pauseLow+rand.N(pauseHigh-pauseLow))<<min(try-1, 10), pauseMost)
	if left, bounded := flow.Remaining(ctx); bounded && left <= wait {
		return false
	}
	return flow.Sleep(ctx, wait) == nil
}

// prepare makes the streams if they are not there, and makes them as they should
// be. What lies on more servers than we ask for stays there.
func (l *line) prepare(ctx context.Context, op string) error {
	mail := jetstream.StreamConfig{
		Name: l.layout.mail(), Subjects: []string{l.layout.letters()}, Description: "micronode: one message for each letter of the mailbox",
		MaxMsgsPerSubject: 1, AllowMsgTTL: true,
		// Letters are counted by the nodes, which is not exact among several of
		// them. This is for the case that they count wrongly; acknowledging needs
		// room as well.
		MaxBytes: 2*l.limits.Bytes + 64<<20, Discard: jetstream.DiscardNew,
	}
	boards := jetstream.StreamConfig{
		Name: l.layout.boards(), Subjects: []string{l.layout.notes()}, Description: "micronode: one subject for each board of the mailbox",
		MaxMsgsPerSubject: int64(l.limits.BoardNotes), AllowDirect: true,
		MaxBytes: max(1, l.limits.Bytes/2), Discard: jetstream.DiscardOld,
	}
	for _, stream := range []jetstream.StreamConfig{boards, mail} {
		stream.Storage, stream.Replicas, stream.MaxMsgs, stream.MaxConsumers = jetstream.FileStorage, l.replicas, -1, -1
		err := l.call(ctx, op, func(ctx context.Context) error {
			made, err := l.makeStream(ctx, stream)
			if err == nil && stream.Name == mail.Name {
				l.mail.Store(&made)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makeStream makes a stream, unless it is there and as it should be.
func (l *line) makeStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	found, err := l.js.Stream(ctx, want.Name)
	if err == nil {
		is := found.CachedInfo().Config
		want.Replicas = max(want.Replicas, is.Replicas)
		if same(is, want) {
			return found, nil
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	return l.js.CreateOrUpdateStream(ctx, want)
}

// same tells whether a stream is as it should be, as far as it matters to us.
func same(is, want jetstream.StreamConfig) bool {
	return is.MaxMsgsPerSubject == want.MaxMsgsPerSubject && is.MaxBytes == want.MaxBytes && is.AllowMsgTTL == want.AllowMsgTTL &&
		is.AllowDirect == want.AllowDirect && is.Discard == want.Discard && is.Replicas == want.Replicas
}

// put writes a record and a body over the ones with the sequence that is
// expected; with zero, there must be none. It returns the new sequence, or
// errStale.
//
// An answer that is lost says nothing, so the same is sent again under the same
// mark: JetStream knows what it has taken in the last two minutes. Should it
// have forgotten, the mark of what is there tells whose it is.
func (l *line) put(ctx context.Context, op string, e entry, expect uint64, life time.Duration) (seq uint64, err error) {
	options := []jetstream.PublishOpt{
		jetstream.WithMsgID(e.Mark), jetstream.WithExpectStream(l.layout.mail()), jetstream.WithExpectLastSequencePerSubject(expect),
	}
	if life > 0 {
		options = append(options, jetstream.WithMsgTTL(max(time.Second, life.Round(time.Second))))
	}
	err = l.call(ctx, op, func(ctx context.Context) error {
		ack, err := l.js.PublishMsg(ctx, &nats.Msg{
			Subject: l.layout.letter(e.token), Header: nats.Header{recordHeader: {e.encode()}}, Data: e.body,
		}, options...)
		if err == nil {
			seq = ack.Sequence
			return nil
		}
		if !isStale(err) {
			return err
		}
		is, found, err := l.fetch(ctx, e.token)
		if err == nil && (!found || is.Mark != e.Mark) {
			err = errStale
		}
		seq = is.seq
		return err
	})
	return seq, err
}

// last reads the record and the body of a letter: not from any server but from
// the one that knows.
func (l *line) last(ctx context.Context, op, token string) (e entry, found bool, err error) {
	err = l.call(ctx, op, func(ctx context.Context) error {
		e, found, err = l.fetch(ctx, token)
		return err
	})
	return e, found, err
}

func (l *line) fetch(ctx context.Context, token string) (entry, bool, error) {
	m, err := (*l.mail.Load()).GetLastMsgForSubject(ctx, l.layout.letter(token))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return entry{}, false, nil
	}
	if err != nil {
		return entry{}, false, err
	}
	r, err := decodeRecord(m.Header.Get(recordHeader))
	if err != nil {
		return entry{}, false, damaged(token, err)
	}
	return entry{token: token, record: r, seq: m.Sequence, size: int64(len(m.Data)), body: m.Data}, true, nil
}

// end is the last sequence that was given out.
func (l *line) end(ctx context.Context, op string) (end uint64, err error) {
	err = l.call(ctx, op, func(ctx context.Context) error {
		info, err := (*l.mail.Load()).Info(ctx)
		if err == nil {
			end = info.State.LastSeq
		}
		return err
	})
	return end, err
}

// survey looks at how much is on the boards, and whether there are letters at
// all.
func (l *line) survey(ctx context.Context) (state, error) {
	boards, err := l.js.Stream(ctx, l.layout.boards())
	if err != nil {
		return state{}, err
	}
	s := boards.CachedInfo().State
	_, err = (*l.mail.Load()).Info(ctx)
	return state{boards: int64(s.NumSubjects), notes: int64(s.Msgs), bytes: int64(s.Bytes)}, err
}

// tail is the sequence of the last letter that is there; zero for none.
func (l *line) tail(ctx context.Context, op string) (uint64, error) {
	e, _, err := l.last(ctx, op, "*")
	return e.seq, err
}

// follow shows every record that there is, and those that come, in their order,
// until stop is called. When one may have been left out, it shows no more and
// says so once; then everything has to be read anew.
//
// The client library has a consumer that does the latter by itself. It cannot be
// stopped while it tries to, and it does not see what ended by itself meanwhile.
func (l *line) follow(ctx context.Context, op string, show func(e entry), odd func(err error), lost func()) (stop func(), err error) {
	err = l.call(ctx, op, func(ctx context.Context) error {
		consumer, err := l.js.CreateConsumer(ctx, l.layout.mail(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
		})
		if err != nil {
			return err
		}
		var seen uint64 // by the one who shows
		var broken atomic.Bool
		fail := func() {
			if broken.CompareAndSwap(false, true) {
				lost()
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
			e, err := l.heard(m, meta.Sequence.Stream)
			if err != nil {
				odd(err)
			}
			show(e)
		}, jetstream.PullExpiry(followExpiry), jetstream.PullHeartbeat(followBeat), jetstream.PullMaxMessages(followBatch),
			jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) { fail() }))
		if err == nil {
			stop = feed.Stop
		}
		return err
	})
	return stop, err
}

// heard reads what a follower is shown: a record, and how long its body is. Of a
// record that cannot be read, only the sequence is known.
func (l *line) heard(m jetstream.Msg, seq uint64) (entry, error) {
	e := entry{token: l.layout.tokenOf(m.Subject()), seq: seq}
	r, err := decodeRecord(m.Headers().Get(recordHeader))
	if err != nil {
		return entry{seq: seq}, damaged(e.token, err)
	}
	e.record = r
	e.size, _ = strconv.ParseInt(m.Headers().Get(sizeHeader), 10, 64)
	return e, nil
}
