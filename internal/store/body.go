package store

import (
	"context"
	"errors"
	"io"

	"micronode/fault"
	"micronode/internal/flow"
)

// ReadBody reads once from the body of a put, but does not come back with
// nothing. It is for those who implement a Store.
func ReadBody(ctx context.Context, src io.Reader, p []byte) (int, error) {
	const patience = 100
	for range patience {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if n, err := src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// BodyFault classifies the error of a body. Those of HTTP say that a client
// went away in the middle by an unexpected end.
func BodyFault(ctx context.Context, err error) error {
	if ended := flow.Ended(ctx, opPut); ended != nil {
		return ended
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.WrapKind(opPut, fault.BrokenPipe, err)
	}
	return fault.Wrap(opPut, err)
}
