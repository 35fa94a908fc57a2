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

// errSlow is the cause of a read that was cancelled because nothing arrived for
// too long.
var errSlow = errors.New("no answer in time")

// kindByCode maps error codes of S3 servers to kinds. Others are mapped by
// their HTTP status.
var kindByCode = map[string]fault.Kind{
	"NoSuchKey":    fault.NotFound,
	"NotFound":     fault.NotFound,
	"NoSuchBucket": fault.NotReady,
	"NoSuchUpload": fault.UpstreamFailed, // it existed, so the server has lost it

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

// nextByCode has the next steps that are more specific than those of the kind.
var nextByCode = map[string]string{
	"NoSuchBucket":                 "Create the bucket that " + settingURL + " names, or set " + settingCreateBucket + ".",
	"AccessDenied":                 "Let the key that " + settingAccessKey + " names list the bucket, and read, write and delete in it.",
	"InvalidAccessKeyId":           "Check " + settingAccessKey + ": the object store does not know this key.",
	"XAdminUserNotFound":           "Check " + settingAccessKey + ": the object store does not know this key.",
	"SignatureDoesNotMatch":        "Check " + settingSecretKey + ": it does not belong to " + settingAccessKey + ".",
	"ExpiredToken":                 "Replace " + settingAccessKey + " and " + settingSecretKey + ": they have expired.",
	"RequestTimeTooSkewed":         "Set the clock of this machine: the object store refuses requests from another time.",
	"AuthorizationHeaderMalformed": "Set " + settingRegion + " to the region of the bucket.",
	"InvalidRegion":                "Set " + settingRegion + " to the region of the bucket.",
	"PermanentRedirect":            "Set " + settingRegion + " and the host in " + settingURL + " to those of the bucket.",
}

// nextByKind has the next steps for kinds whose default does not mention an
// object store.
var nextByKind = map[fault.Kind]string{
	fault.Unauthorized:   "Check " + settingAccessKey + " and " + settingSecretKey + ".",
	fault.StoreFull:      "Free space in the object store, or raise its quota.",
	fault.StorageBusy:    "Try again in a moment; if it lasts, ask the object store for a higher rate.",
	fault.Timeout:        "Check the object store that " + settingURL + " names and the way to it; if it is only slow, raise " + settingTimeout + ".",
	fault.UpstreamFailed: "Check the object store that " + settingURL + " names; its log says more.",
	fault.BodyTooLarge:   "Lower " + settingMaxObject + " to what the object store takes.",
}

// detailByKind is what clients may be shown.
var detailByKind = map[fault.Kind]string{
	fault.NotFound:       "it is not in the object store",
	fault.NotReady:       "the object store cannot be used as it is set up",
	fault.Unauthorized:   "the object store refuses this node's key",
	fault.StoreFull:      "the object store is full",
	fault.StorageBusy:    "the object store limits the rate",
	fault.Timeout:        "the object store did not answer in time",
	fault.UpstreamFailed: "the object store failed",
	fault.BodyTooLarge:   "the object exceeds the maximum size of the object store",
	fault.Conflict:       "another writer was first",
}

// refusal gives the error of a call its kind and its next step. The end of the
// caller's context comes first, whatever error the call returned.
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
	return &fault.Error{Op: op, Kind: kind, Detail: detailByKind[kind], Next: step, Err: err}
}

// classify returns the kind of an error and the next step.
func classify(err error) (fault.Kind, string) {
	answer, answered := errorResponse(err)
	if !answered {
		return classifyTransport(err)
	}
	kind, known := kindByCode[answer.Code]
	if !known {
		kind = kindOfStatus(answer.StatusCode)
	}
	if step := nextByCode[answer.Code]; step != "" {
		return kind, step
	}
	return kind, nextByKind[kind]
}

// classifyTransport is for calls without a response.
func classifyTransport(err error) (fault.Kind, string) {
	var slow net.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return fault.Timeout, nextByKind[fault.Timeout]
	case errors.As(err, &certificate):
		return fault.UpstreamFailed, "Set " + settingCAFile + " to the authority that signed the certificate of the object store."
	default:
		return fault.UpstreamFailed, nextByKind[fault.UpstreamFailed]
	}
}

// kindOfStatus is for codes that are not listed. A status of 404 alone does not
// mean that an object is absent: some servers use it for users and policies
// too.
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

// isTransient reports whether the same call may succeed in a moment.
func isTransient(err error) bool {
	answer, answered := errorResponse(err)
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

// errorResponse returns the server's error response, if there is one.
func errorResponse(err error) (minio.ErrorResponse, bool) {
	var answer minio.ErrorResponse
	ok := errors.As(err, &answer)
	return answer, ok
}

// hasStatus reports whether the server answered with this HTTP status.
func hasStatus(err error, status int) bool {
	answer, ok := errorResponse(err)
	return ok && answer.StatusCode == status
}

// hideUnauthorized hides from clients that our key was rejected while the node
// runs: that is not caused by their capability, and they would be asked to fix
// it.
func hideUnauthorized(err error) error {
	if fault.KindOf(err) != fault.Unauthorized {
		return err
	}
	return &fault.Error{Op: fault.OpOf(err), Kind: fault.NotReady, Detail: detailByKind[fault.Unauthorized], Next: fault.NextOf(err), Err: fmt.Errorf("%v", err)}
}

func notFound(op string, a b3.Address) error {
	return fault.New(op, fault.NotFound, "%s is not stored here", a)
}

func closed(op string) error {
	return fault.WrapKind(op, fault.Canceled, flow.ErrClosed)
}
