package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/grpclog"

	"micronode/fault"
	"micronode/internal/flow"
)

// How a call that failed in passing is tried again.
const (
	tries     = 3
	pauseLow  = 50 * time.Millisecond
	pauseHigh = 100 * time.Millisecond
	pauseMost = 2 * time.Second

	// attempts is into how many parts the time of a call is cut. One attempt
	// gets one of them, so that a member that says nothing does not use up the
	// time in which another one would answer.
	attempts = 5
)

// How connections are kept. Ten seconds is the shortest that gRPC takes; until
// a silent member is noticed, attempts that are cut short go round it.
const (
	keepAlive        = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	connectTimeout   = 3 * time.Second
	reconnectFirst   = 100 * time.Millisecond
	reconnectMost    = 2 * time.Second
)

// mostAnswer bounds how much memory an answer may take.
const mostAnswer = 16 << 20

// gRPC writes errors to standard error unless it is told not to. What matters
// comes back from the call that it happened to.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// remote is what we use of a client.
type remote struct {
	kv    clientv3.KV
	watch clientv3.Watcher
	close func() error
}

// line makes the calls: each with a limit of its own, tried again where that is
// harmless, and with an error that says what to do.
type line struct {
	// set at construction
	dial    func(ctx context.Context) (*remote, error)
	timeout time.Duration
	turn    chan struct{} // whoever connects or closes has put something in

	current atomic.Pointer[remote]

	retries  atomic.Uint64
	timeouts atomic.Uint64
	failures atomic.Uint64
}

func newLine(timeout time.Duration, dial func(ctx context.Context) (*remote, error)) *line {
	return &line{dial: dial, timeout: timeout, turn: make(chan struct{}, 1)}
}

// dialer makes the client on first use: where there is a password, the library
// asks for a token at once, and a node must be able to start before its etcd.
func dialer(spec Spec, at location) (func(ctx context.Context) (*remote, error), error) {
	config := clientv3.Config{
		Username: spec.Username,
		Password: spec.Password,
		Logger:   zap.NewNop(),

		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream:  true,
		MaxCallRecvMsgSize:   mostAnswer,

		// Trying again is our own affair; but the library's second try is also
		// the one that is made with a new token after the old one has expired.
		MaxUnaryRetries: 2,

		DialOptions: []grpc.DialOption{
			grpc.WithNoProxy(), // where records go is for the configuration alone to say
			grpc.WithChainUnaryInterceptor(remember),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMost},
				MinConnectTimeout: connectTimeout,
			}),
		},
	}
	scheme := "http://"
	if at.secure {
		scheme = "https://"
		secrets, err := spec.trust().TLS(opOpen)
		if err != nil {
			return nil, err
		}
		config.TLS = secrets
	}
	for _, endpoint := range at.endpoints {
		config.Endpoints = append(config.Endpoints, scheme+endpoint)
	}
	return func(ctx context.Context) (*remote, error) { return dial(ctx, config) }, nil
}

// dial makes a client. Its own life is longer than ctx, which only ends the
// making of it.
func dial(ctx context.Context, config clientv3.Config) (*remote, error) {
	var s said
	life, end := context.WithCancel(context.WithValue(context.Background(), saidKey{}, &s))
	config.Context = life
	detach := context.AfterFunc(ctx, end) //lockblock:allow it only ends a context, and detach takes it back
	client, err := clientv3.New(config)
	if err != nil {
		end()
		detach()
		return nil, s.explain(ctx, err)
	}
	r := &remote{kv: client.KV, watch: client.Watcher, close: func() error {
		defer end()
		return client.Close()
	}}
	if !detach() {
		_ = r.close()
		return nil, ctx.Err()
	}
	return r, nil
}

// connect returns the client, and makes it if there is none yet.
func (l *line) connect(ctx context.Context) (*remote, error) {
	if r := l.current.Load(); r != nil {
		return r, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r := l.current.Load(); r != nil {
		return r, nil
	}
	r, err := l.dial(ctx)
	if err == nil {
		l.current.Store(r)
	}
	return r, err
}

// close ends the client. Nobody may begin a call any longer; whoever is making
// the client now has been told to stop.
func (l *line) close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	r := l.current.Swap(nil)
	if r == nil {
		return nil
	}
	return fault.WrapKind("registry.etcd.close", fault.UpstreamFailed, r.close())
}

// said is where remember leaves an error on its way through the library.
type said struct{ err atomic.Pointer[error] }

type saidKey struct{}

// explain adds to an error that came because ctx ended what gRPC said.
func (s *said) explain(ctx context.Context, err error) error {
	ended, reason := ctx.Err(), s.err.Load()
	switch {
	case ended == nil:
		return err
	case reason != nil:
		return fmt.Errorf("%w: %v", ended, *reason)
	case errors.Is(err, ended):
		return err
	default:
		return fmt.Errorf("%w: %v", ended, err)
	}
}

// remember keeps what gRPC said: the library makes a bare "deadline exceeded"
// of it, and it is the other half that tells why there was no connection.
func remember(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if s, ok := ctx.Value(saidKey{}).(*said); ok && err != nil {
		s.err.Store(&err)
	}
	return err
}

// once makes one attempt.
func (l *line) once(ctx context.Context, op string, request clientv3.Op) (clientv3.OpResponse, error) {
	var s said
	limited, cancel := context.WithTimeout(context.WithValue(ctx, saidKey{}, &s), l.share(ctx))
	defer cancel()
	answer, err := l.try(limited, request)
	if err == nil {
		return answer, nil
	}
	return clientv3.OpResponse{}, l.refusal(ctx, op, s.explain(limited, err))
}

func (l *line) try(ctx context.Context, request clientv3.Op) (clientv3.OpResponse, error) {
	r, err := l.connect(ctx)
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	return r.kv.Do(ctx, request)
}

// share is how long one attempt may take: a part of the limit, and not more
// than half of what is left, so that there is time to find out what became of
// it.
func (l *line) share(ctx context.Context) time.Duration {
	share := l.timeout / attempts
	if left, bounded := flow.Remaining(ctx); bounded {
		share = min(share, left/2)
	}
	return share
}

// again makes a call that may be repeated, and repeats it if it fails in
// passing: on the next member, because the library goes round them.
func (l *line) again(ctx context.Context, op string, request clientv3.Op) (clientv3.OpResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for try := 1; ; try++ {
		answer, err := l.once(ctx, op, request)
		if err == nil || try >= tries || !passing(err) || !l.pause(ctx, try) {
			return answer, err
		}
	}
}

// pause waits before another try, and reports whether there is to be one. A
// pause that the deadline does not leave time for is not begun.
func (l *line) pause(ctx context.Context, try int) bool {
	wait := pauseLow + rand.N(pauseHigh-pauseLow)
	wait = min(wait<<min(try-1, 10), pauseMost)
	if left, bounded := flow.Remaining(ctx); bounded && left <= wait {
		return false
	}
	if flow.Sleep(ctx, wait) != nil {
		return false
	}
	l.retries.Add(1)
	return true
}
