package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// How a call that failed transiently is retried.
var retryBackoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 2 * time.Second}

const (
	maxAttempts = 3

	// attemptsPerCall is how many attempts the time of a call is divided into,
	// so that a silent member does not use up the time in which another one
	// would answer.
	attemptsPerCall = 5
)

// Keepalive of connections. Ten seconds is the shortest that gRPC allows; until
// a silent member is noticed, attempts time out early and the next one uses
// another member.
const (
	keepAlive           = 10 * time.Second
	keepAliveTimeout    = 3 * time.Second
	connectTimeout      = 3 * time.Second
	minReconnectBackoff = 100 * time.Millisecond
	maxReconnectBackoff = time.Second // when etcd is back, that is seen within two seconds
)

// maxResponseBytes bounds the memory of a response.
const maxResponseBytes = 16 << 20

// gRPC writes errors to standard error by default. Those that matter are
// returned by the call that failed.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// etcdClient is the part of a client that is used here.
type etcdClient struct {
	kv    clientv3.KV
	watch clientv3.Watcher
	close func() error
}

// conn makes the calls: each with its own limit, retried where that is
// harmless, and with an error that names the next step.
type conn struct {
	// set at construction
	dial      func(ctx context.Context) (*etcdClient, error)
	endpoints []string // for messages
	timeout   time.Duration
	dialLock  chan struct{} // held while connecting or closing

	client atomic.Pointer[etcdClient]

	retries  atomic.Uint64
	timeouts atomic.Uint64
	failures atomic.Uint64
}

func newConn(timeout time.Duration, dial func(ctx context.Context) (*etcdClient, error)) *conn {
	return &conn{dial: dial, timeout: timeout, dialLock: make(chan struct{}, 1)}
}

// dialer creates the client on first use: with a password, the library requests
// a token at once, and a node must be able to start before its etcd.
func dialer(spec Spec, at clusterURL) (func(ctx context.Context) (*etcdClient, error), error) {
	config := clientv3.Config{
		Username: spec.Username,
		Password: spec.Password,
		Logger:   zap.NewNop(),

		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream:  true,
		MaxCallRecvMsgSize:   maxResponseBytes,

		// We retry ourselves; but the library's second try is also the one that
		// is made with a new token after the old one has expired.
		MaxUnaryRetries: 2,

		DialOptions: []grpc.DialOption{
			grpc.WithNoProxy(), // where records go is decided by the configuration alone
			grpc.WithChainUnaryInterceptor(captureError),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: minReconnectBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnectBackoff},
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
	return func(ctx context.Context) (*etcdClient, error) { return dial(ctx, config) }, nil
}

// dial creates a client. The client outlives ctx, which only cancels its
// creation.
func dial(ctx context.Context, config clientv3.Config) (*etcdClient, error) {
	var s grpcError
	life, end := context.WithCancel(context.WithValue(context.Background(), grpcErrorKey{}, &s))
	config.Context = life
	detach := context.AfterFunc(ctx, end) //lockblock:allow it only ends a context, and detach takes it back
	client, err := clientv3.New(config)
	if err != nil {
		end()
		detach()
		return nil, s.explain(ctx, err)
	}
	r := &etcdClient{kv: client.KV, watch: client.Watcher, close: func() error {
		defer end()
		return client.Close()
	}}
	if !detach() {
		_ = r.close()
		return nil, ctx.Err()
	}
	return r, nil
}

// connect returns the client, and creates it if there is none yet.
func (c *conn) connect(ctx context.Context) (*etcdClient, error) {
	if r := c.client.Load(); r != nil {
		return r, nil
	}
	select {
	case c.dialLock <- struct{}{}:
		defer func() { <-c.dialLock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r := c.client.Load(); r != nil {
		return r, nil
	}
	r, err := c.dial(ctx)
	if err == nil {
		c.client.Store(r)
	}
	return r, err
}

// close closes the client. No call may begin any longer; a pending creation of
// the client has been cancelled.
func (c *conn) close() error {
	c.dialLock <- struct{}{}
	defer func() { <-c.dialLock }()
	r := c.client.Swap(nil)
	if r == nil {
		return nil
	}
	return fault.WrapKind("registry.etcd.close", fault.UpstreamFailed, r.close())
}

// grpcError is where captureError stores an error that the library would
// replace.
type grpcError struct{ err atomic.Pointer[error] }

type grpcErrorKey struct{}

// explain adds the error of gRPC to one that was caused by the end of ctx.
func (g *grpcError) explain(ctx context.Context, err error) error {
	ended, reason := ctx.Err(), g.err.Load()
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

// captureError keeps the error of gRPC: the library replaces it by a bare
// "deadline exceeded", which does not say why there was no connection.
func captureError(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if s, ok := ctx.Value(grpcErrorKey{}).(*grpcError); ok && err != nil {
		s.err.Store(&err)
	}
	return err
}

// attempt makes one attempt.
func (c *conn) attempt(ctx context.Context, op string, request clientv3.Op) (clientv3.OpResponse, error) {
	var s grpcError
	limited, cancel := context.WithTimeout(context.WithValue(ctx, grpcErrorKey{}, &s), c.attemptTimeout(ctx))
	defer cancel()
	answer, err := c.do(limited, request)
	if err == nil {
		return answer, nil
	}
	return clientv3.OpResponse{}, c.refusal(ctx, op, s.explain(limited, err))
}

func (c *conn) do(ctx context.Context, request clientv3.Op) (clientv3.OpResponse, error) {
	r, err := c.connect(ctx)
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	return r.kv.Do(ctx, request)
}

// attemptTimeout returns how long one attempt may take: a part of the limit,
// and not more than half of what is left, so that there is time to find out the
// outcome.
func (c *conn) attemptTimeout(ctx context.Context) time.Duration {
	timeout := c.timeout / attemptsPerCall
	if left, bounded := flow.Remaining(ctx); bounded {
		timeout = min(timeout, left/2)
	}
	return timeout
}

// retry makes a call that may be repeated, and repeats it after a transient
// failure: on the next member, because the library rotates through them.
func (c *conn) retry(ctx context.Context, op string, request clientv3.Op) (clientv3.OpResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for try := 1; ; try++ {
		answer, err := c.attempt(ctx, op, request)
		if err == nil || try >= maxAttempts || !isTransient(err) || !c.waitBackoff(ctx, try) {
			return answer, err
		}
	}
}

// waitBackoff waits before another attempt, and reports whether there is one.
func (c *conn) waitBackoff(ctx context.Context, try int) bool {
	if !retryBackoff.Wait(ctx, try-1) {
		return false
	}
	c.retries.Add(1)
	return true
}
