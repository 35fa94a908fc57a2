package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/minio/minio-go/v7"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// errSlow is why a read that brought nothing for too long was given up.
var errSlow = errors.New("no answer in time")

// codes says what the answers of S3 servers mean to us. What is not listed is
// judged by its HTTP status.
var codes = map[string]fault.Kind{
	"NoSuchKey":    fault.NotFound,
	"NotFound":     fault.NotFound,
	"NoSuchBucket": fault.NotReady,
	"NoSuchUpload": fault.UpstreamFailed, // it was there, so the server has lost it

	"SlowDown":                   fault.StorageBusy,
	"SlowDownRead":               fault.StorageBusy,
	"SlowDownWrite":              fault.StorageBusy,
	"ServiceUnavailable":         fault.StorageBusy,
	"Throttling":                 fault.StorageBusy,
	"ThrottlingException":        fault.StorageBusy,
	"RequestLimitExceeded":       fault.StorageBusy,
	"RequestThrottled":           fault.StorageBusy,
	"ConditionalRequestConflict": fault.StorageBusy,
	"OperationAborted":           fault.StorageBusy,

	"QuotaExceeded":                  fault.StoreFull,
	"InsufficientStorage":            fault.StoreFull,
	"InsufficientCapacity":           fault.StoreFull,
	"StorageFull":                    fault.StoreFull,
	"XMinioStorageFull":              fault.StoreFull,
	"XMinioAdminBucketQuotaExceeded": fault.StoreFull,

	"EntityTooLarge": fault.BodyTooLarge,

	"AccessDenied":                 fault.Unauthorized,
	"InvalidAccessKeyId":           fault.Unauthorized,
	"SignatureDoesNotMatch":        fault.Unauthorized,
	"ExpiredToken":                 fault.Unauthorized,
	"RequestTimeTooSkewed":         fault.Unauthorized,
	"AuthorizationHeaderMalformed": fault.Unauthorized,
	"InvalidRegion":                fault.Unauthorized,
	"PermanentRedirect":            fault.Unauthorized,
	"XAdminUserNotFound":           fault.Unauthorized, // versitygw, with status 404
}

// steps says what to do where the kind alone does not.
var steps = map[string]string{
	"NoSuchBucket":                 "Create the bucket that " + setURL + " names, or set " + setCreate + ".",
	"AccessDenied":                 "Let the key that " + setAccess + " names list the bucket, and read, write and delete in it.",
	"InvalidAccessKeyId":           "Check " + setAccess + ": the object store does not know this key.",
	"XAdminUserNotFound":           "Check " + setAccess + ": the object store does not know this key.",
	"SignatureDoesNotMatch":        "Check " + setSecret + ": it does not belong to " + setAccess + ".",
	"ExpiredToken":                 "Replace " + setAccess + " and " + setSecret + ": they have expired.",
	"RequestTimeTooSkewed":         "Set the clock of this machine: the object store refuses requests from another time.",
	"AuthorizationHeaderMalformed": "Set " + setRegion + " to the region of the bucket.",
	"InvalidRegion":                "Set " + setRegion + " to the region of the bucket.",
	"PermanentRedirect":            "Set " + setRegion + " and the host in " + setURL + " to those of the bucket.",
}

// next is the step for kinds whose own does not know of an object store.
var next = map[fault.Kind]string{
	fault.Unauthorized:   "Check " + setAccess + " and " + setSecret + ".",
	fault.StoreFull:      "Make room in the object store, or raise its quota.",
	fault.StorageBusy:    "Try again in a moment; if it lasts, ask the object store for a higher rate.",
	fault.Timeout:        "Check the object store that " + setURL + " names and the way to it; if it is only slow, raise " + setTimeout + ".",
	fault.UpstreamFailed: "Check the object store that " + setURL + " names; its log says more.",
	fault.BodyTooLarge:   "Lower " + setMaxObject + " to what the object store takes.",
}

// details is what may be shown to whoever asked.
var details = map[fault.Kind]string{
	fault.NotFound:       "it is not in the object store",
	fault.NotReady:       "the object store cannot be used as it is set up",
	fault.Unauthorized:   "the object store refuses this node's key",
	fault.StoreFull:      "the object store is full",
	fault.StorageBusy:    "the object store asks us to slow down",
	fault.Timeout:        "the object store did not answer in time",
	fault.UpstreamFailed: "the object store failed",
	fault.BodyTooLarge:   "the object store takes no object of this size",
	fault.Conflict:       "somebody else was first",
}

// refusal gives the error of a call its kind and its next step. The caller's
// own end comes first: what the call made of it does not matter.
func (b *bucket) refusal(ctx context.Context, op string, err error) error {
	if ended := flow.Ended(ctx, op); ended != nil {
		if fault.KindOf(ended) != fault.Timeout {
			return ended
		}
		err = errors.Join(ended, errSlow)
	}
	kind, step := classify(err)
	switch kind {
	case fault.Timeout:
		b.timeouts.Add(1)
	case fault.UpstreamFailed:
		b.failures.Add(1)
	}
	return &fault.Error{Op: op, Kind: kind, Detail: details[kind], Next: step, Err: err}
}

// classify finds the kind of an error and the next step.
func classify(err error) (fault.Kind, string) {
	answer, answered := answerOf(err)
	if !answered {
		return classifyLine(err)
	}
	kind, known := codes[answer.Code]
	if !known {
		kind = kindOfStatus(answer.StatusCode)
	}
	if step := steps[answer.Code]; step != "" {
		return kind, step
	}
	return kind, next[kind]
}

// classifyLine is for calls that got no answer.
func classifyLine(err error) (fault.Kind, string) {
	var slow net.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return fault.Timeout, next[fault.Timeout]
	case errors.As(err, &certificate):
		return fault.UpstreamFailed, "Set " + setCA + " to the authority that signed the certificate of the object store."
	default:
		return fault.UpstreamFailed, next[fault.UpstreamFailed]
	}
}

// kindOfStatus is for codes that are not listed. A status of 404 alone does not
// say that an object is absent: some servers use it for users and policies too.
func kindOfStatus(status int) fault.Kind {
	switch status {
	case http.StatusPreconditionFailed:
		return fault.Conflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Unauthorized
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return fault.StorageBusy
	case http.StatusInsufficientStorage:
		return fault.StoreFull
	default:
		return fault.UpstreamFailed
	}
}

// passing tells whether the same call may succeed in a moment.
func passing(err error) bool {
	answer, answered := answerOf(err)
	if !answered {
		var certificate *tls.CertificateVerificationError
		kind := fault.KindOf(err)
		return kind == fault.Timeout || kind == fault.UpstreamFailed && !errors.As(err, &certificate)
	}
	switch answer.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return true
	}
	return fault.KindOf(err) == fault.StorageBusy || answer.Code == "RequestTimeout" || answer.Code == "InternalError"
}

// answerOf finds what the server said, if it said something.
func answerOf(err error) (minio.ErrorResponse, bool) {
	var answer minio.ErrorResponse
	ok := errors.As(err, &answer)
	return answer, ok
}

// answered tells whether the server answered with this HTTP status.
func answered(err error, status int) bool {
	answer, ok := answerOf(err)
	return ok && answer.StatusCode == status
}

// running hides from strangers that our key was refused while the node runs:
// that is no fault of their capability, and they would be told to fix it.
func running(err error) error {
	if fault.KindOf(err) != fault.Unauthorized {
		return err
	}
	return &fault.Error{Op: fault.OpOf(err), Kind: fault.NotReady, Detail: details[fault.Unauthorized], Next: fault.NextOf(err), Err: fmt.Errorf("%v", err)}
}

func notFound(op string, a b3.Address) error {
	return fault.New(op, fault.NotFound, "%s is not here", a)
}

func closed(op string) error {
	return fault.WrapKind(op, fault.Canceled, flow.ErrClosed)
}
