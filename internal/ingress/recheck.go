package ingress

import (
	"context"
	"net/http"
	"sync"
	"time"

	"micronode/fault"
)

// recheckEvery is how often the capability of a stream, or of a request that
// waits, is checked again.
const recheckEvery = time.Second

// recheck checks, as long as a stream lasts, whether the capability that opened
// it is still valid: it may expire, or be revoked. If it is not, the stream
// ends. It does the same for a request that waits for its answer.
type recheck struct {
	// set at construction
	route   *mountedRoute
	request AuthRequest

	mu      sync.Mutex //lockblock:leaf a few assignments
	timer   *time.Timer
	cancels []context.CancelCauseFunc // end the stream
	done    bool
}

// StillAuthorised checks once more, without spending from a rate, whether the
// capability of a request is valid. The handlers of routes that are Waits call
// it when they have what they answer: the check before it may be as old as
// recheckEvery.
func StillAuthorised(r *http.Request) error {
	c := callOf(r.Context())
	if c == nil || !c.route.route.Waits {
		return fault.New("http.still", fault.Internal, "the route does not wait")
	}
	request := c.route.authRequest(c, r)
	request.Recheck = true
	return c.route.checkAuth(context.WithoutCancel(r.Context()), request)
}

// startRecheck starts the checks, unless the stream needed no capability.
func (m *mountedRoute) startRecheck(c *call, r *http.Request, end context.CancelCauseFunc) *recheck {
	request := m.authRequest(c, r)
	if m.route.Open || request.Local || request.Token == "" {
		return nil
	}
	request.Recheck = true
	k := &recheck{route: m, request: request, cancels: []context.CancelCauseFunc{end}}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(recheckEvery, k.check) //lockblock:allow it asks what blocks on nothing, only ends a context, and is stopped when the handler returns
	return k
}

// addCancel adds a function that ends a part of the stream.
func (r *recheck) addCancel(end context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels = append(r.cancels, end)
}

// check checks once.
func (r *recheck) check() {
	err := r.route.checkAuth(context.Background(), r.request)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.done:
	case err == nil:
		r.timer.Reset(recheckEvery)
	default:
		for _, end := range r.cancels {
			end(err)
		}
	}
}

// stop ends it with the stream.
func (r *recheck) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	r.timer.Stop()
}
