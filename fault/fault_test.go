package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The contract's status table, copied by hand: the table in the package must
// not drift from what other people's programs rely on.
var contractStatus = map[int][]fault.Kind{
	http.StatusTooManyRequests:              {fault.Busy, fault.RateLimited, fault.QuotaExceeded},
	http.StatusServiceUnavailable:           {fault.Backpressure, fault.StorageBusy, fault.BreakerOpen, fault.NotReady, fault.Canceled},
	http.StatusRequestEntityTooLarge:        {fault.BodyTooLarge, fault.FrameTooLarge, fault.RatioCap},
	http.StatusGatewayTimeout:               {fault.Timeout},
	http.StatusBadGateway:                   {fault.IntegrityFail, fault.UpstreamFailed},
	http.StatusInsufficientStorage:          {fault.StoreFull},
	http.StatusBadRequest:                   {fault.Malformed, fault.InvalidSig},
	http.StatusInternalServerError:          {fault.Internal},
	http.StatusUnauthorized:                 {fault.Unauthorized},
	http.StatusForbidden:                    {fault.Forbidden, fault.RejectPolicy, fault.UnknownSigner, fault.RevokedKey},
	http.StatusNotFound:                     {fault.NotFound},
	http.StatusConflict:                     {fault.Conflict, fault.ChainMismatch, fault.DuplicateApproval, fault.QuorumFailed},
	http.StatusGone:                         {fault.Expired},
	http.StatusRequestedRangeNotSatisfiable: {fault.InvalidRange},
	http.StatusLengthRequired:               {fault.LengthRequired},
	http.StatusMethodNotAllowed:             {fault.MethodNotAllowed},
	http.StatusRequestTimeout:               {fault.RequestTimeout},
	http.StatusUnsupportedMediaType:         {fault.UnsupportedMediaType},
}

var withoutStatus = []fault.Kind{fault.Lagging, fault.BrokenPipe, fault.Degraded, fault.Transient, fault.NoRoute}

func TestStatusesAreTheContracts(t *testing.T) {
	seen := map[fault.Kind]bool{}
	for status, group := range contractStatus {
		for _, kind := range group {
			seen[kind] = true
			if kind.Status() != status || !kind.HasStatus() {
				t.Errorf("%s: status %d, the contract says %d", kind, kind.Status(), status)
			}
		}
	}
	for _, kind := range withoutStatus {
		seen[kind] = true
		if kind.HasStatus() {
			t.Errorf("%s has a status of its own; the contract gives it none", kind)
		}
		if want := map[bool]int{true: 503, false: 500}[kind.Retryable()]; kind.Status() != want {
			t.Errorf("%s: fallback status %d, want %d", kind, kind.Status(), want)
		}
	}
	for _, kind := range fault.Kinds() {
		if !seen[kind] {
			t.Errorf("%s is in the table but not in the contract's", kind)
		}
	}
}

func TestRetryAfterIsWhereTheContractPromisesIt(t *testing.T) {
	promised := map[fault.Kind]bool{fault.Busy: true, fault.RateLimited: true, fault.QuotaExceeded: true,
		fault.Backpressure: true, fault.StorageBusy: true, fault.BreakerOpen: true, fault.NotReady: true, fault.Canceled: true}
	for _, kind := range fault.Kinds() {
		if got := kind.RetryAfter() > 0; got != promised[kind] {
			t.Errorf("%s: has a Retry-After: %t, promised: %t", kind, got, promised[kind])
		}
	}
}

func TestEveryKindIsComplete(t *testing.T) {
	codes, exits := map[string]fault.Kind{}, map[int]fault.Kind{}
	for _, kind := range fault.Kinds() {
		if kind.Code() == "" || kind.Title() == "" || !strings.HasSuffix(kind.Next(), ".") {
			t.Errorf("kind %d: code %q, title %q, next %q: each must be there, and next a sentence", kind, kind.Code(), kind.Title(), kind.Next())
		}
		if other, twice := codes[kind.Code()]; twice {
			t.Errorf("code %s is used by two kinds, %d and %d", kind.Code(), other, kind)
		}
		if other, twice := exits[kind.Exit()]; twice {
			t.Errorf("exit code %d is used by %s and %s", kind.Exit(), other, kind)
		}
		if kind.Exit() < 10 || kind.Exit() >= 126 {
			t.Errorf("%s: exit code %d is one of the shell's own", kind, kind.Exit())
		}
		codes[kind.Code()], exits[kind.Exit()] = kind, kind

		back, known := fault.ParseKind(kind.Code())
		if !known || back != kind {
			t.Errorf("ParseKind(%q) = %s, %t", kind.Code(), back, known)
		}
	}
}

// The five taxonomies of the seeds: what each error is called and whether a
// retry makes sense. "maybe", "sometimes" and "transient" count as yes.
func TestTaxonomiesOfTheSeeds(t *testing.T) {
	type row struct {
		code  string
		retry bool
	}
	seeds := map[string][]row{
		"micronode":    {{"Busy", true}, {"Timeout", true}, {"Canceled", false}, {"Lagging", false}, {"BrokenPipe", true}, {"Degraded", false}},
		"svc-overlay":  {{"Busy", true}, {"Timeout", true}, {"Canceled", false}, {"Lagging", false}, {"FrameTooLarge", false}, {"Backpressure", true}},
		"svc-index":    {{"Busy", true}, {"Timeout", true}, {"BreakerOpen", true}, {"Canceled", false}, {"Lagging", false}},
		"svc-edge":     {{"Busy", true}, {"Timeout", true}, {"Canceled", false}, {"Lagging", false}, {"RejectPolicy", false}},
		"svc-registry": {{"Busy", true}, {"Timeout", true}, {"Canceled", false}, {"Lagging", false}, {"ChainMismatch", true}, {"StorageBusy", true}},
	}
	for seed, rows := range seeds {
		for _, want := range rows {
			kind, known := fault.ParseKind(want.code)
			if !known {
				t.Errorf("%s: %s is not in the table", seed, want.code)
			} else if kind.Retryable() != want.retry {
				t.Errorf("%s: %s: retryable %t, the seed says %t", seed, want.code, kind.Retryable(), want.retry)
			}
		}
	}
}

func TestUnknownCodesAndKinds(t *testing.T) {
	if kind, known := fault.ParseKind("Bsuy"); known || kind != fault.Internal {
		t.Errorf("ParseKind of an unknown code: %s, %t", kind, known)
	}
	if code := fault.Kind(250).Code(); code != "Internal" {
		t.Errorf("a kind outside the table reads as %s", code)
	}
}

// coded stands for an error of a package that may not import fault.
type coded string

func (c coded) Error() string     { return "coded: " + string(c) }
func (c coded) FaultCode() string { return string(c) }

func TestKindOf(t *testing.T) {
	deadline, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"nil":                   {nil, 0},
		"bare kind":             {fault.Busy, fault.Busy},
		"our error":             {fault.New("op", fault.NotFound, "x"), fault.NotFound},
		"wrapped by fmt":        {fmt.Errorf("while: %w", fault.New("op", fault.NotFound, "x")), fault.NotFound},
		"wrapped by Wrap":       {fault.Wrap("outer", fault.Busy), fault.Busy},
		"outermost kind wins":   {fault.WrapKind("outer", fault.UpstreamFailed, fault.Timeout), fault.UpstreamFailed},
		"by FaultCode":          {fmt.Errorf("x: %w", coded("IntegrityFail")), fault.IntegrityFail},
		"unknown FaultCode":     {coded("Gone fishing"), fault.Internal},
		"context deadline":      {deadline.Err(), fault.Timeout},
		"context cancellation":  {fault.Wrap("op", context.Canceled), fault.Canceled},
		"connection's deadline": {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, fault.Timeout},
		"look-up time-out":      {&net.DNSError{IsTimeout: true}, fault.Timeout},
		"broken pipe":           {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, fault.BrokenPipe},
		"reset":                 {syscall.ECONNRESET, fault.BrokenPipe},
		"closed pipe":           {io.ErrClosedPipe, fault.BrokenPipe},
		"disk full":             {&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, fault.StoreFull},
		"anything else":         {errors.New("what"), fault.Internal},
	} {
		if got := fault.KindOf(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestIsAndAs(t *testing.T) {
	err := fmt.Errorf("handler: %w", fault.Wrap("edge.fill", fault.New("store.put", fault.StoreFull, "3 bytes left")))
	if !errors.Is(err, fault.StoreFull) || errors.Is(err, fault.Busy) {
		t.Error("errors.Is must see the kind through every wrapping, and no other")
	}
	var own *fault.Error
	if !errors.As(err, &own) || own.Op != "edge.fill" {
		t.Errorf("errors.As found %+v, want the outermost operation", own)
	}
	if fault.OpOf(err) != "edge.fill" || fault.DetailOf(err) != "3 bytes left" {
		t.Errorf("op %q, detail %q", fault.OpOf(err), fault.DetailOf(err))
	}
}

func TestWrapKeepsWhatTheErrorKnows(t *testing.T) {
	inner := &fault.Error{Op: "limits", Kind: fault.RateLimited, Next: "Ask Ada.", RetryAfter: 7 * time.Second}
	outer := fault.Wrap("http", fault.Wrap("route", inner))
	if fault.NextOf(outer) != "Ask Ada." || fault.RetryAfterOf(outer) != 7*time.Second {
		t.Errorf("next %q after %s: lost on the way up", fault.NextOf(outer), fault.RetryAfterOf(outer))
	}
	plain := fault.Wrap("http", fault.Busy)
	if fault.NextOf(plain) != fault.Busy.Next() || fault.RetryAfterOf(plain) != time.Second {
		t.Error("an error without its own words must use the kind's")
	}
}

func TestNilStaysNil(t *testing.T) {
	if fault.Wrap("op", nil) != nil || fault.WrapKind("op", fault.Busy, nil) != nil {
		t.Error("wrapping nil must give nil")
	}
	if fault.NextOf(nil) != "" || fault.RetryAfterOf(nil) != 0 || fault.OpOf(nil) != "" || fault.DetailOf(nil) != "" {
		t.Error("a nil error has nothing to say")
	}
}

func TestMessages(t *testing.T) {
	for want, err := range map[string]error{
		"Queue full":                             fault.Busy,
		"q: Queue full":                          &fault.Error{Op: "q", Kind: fault.Busy},
		"q: 100% of 3":                           fault.New("q", fault.Busy, "100%% of 3"),
		"q: 5 of 3":                              fault.New("q", fault.Busy, "%d of %d", 5, 3),
		"q: EOF":                                 fault.Wrap("q", io.EOF),
		"q: reading the head: EOF":               &fault.Error{Op: "q", Kind: fault.Internal, Detail: "reading the head", Err: io.EOF},
		"b: a: Bytes do not match their address": fault.Wrap("b", fault.Wrap("a", fault.IntegrityFail)),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err.Error(), want)
		}
	}
	if fault.DetailOf(fault.Wrap("q", errors.New("/root/secret: no such file"))) != "" {
		t.Error("the text of a cause must not become a detail")
	}
}

func TestABareKindCostsNothing(t *testing.T) {
	refuse := func() error { return fault.Busy }
	if n := testing.AllocsPerRun(100, func() { _ = refuse() }); n != 0 {
		t.Errorf("returning a kind allocates %v times", n)
	}
}
