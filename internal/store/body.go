package store

import (
	"context"
	"errors"
	"io"

	"micronode/fault"
	"micronode/internal/flow"
)

// ReadBody reads at least one byte from the body of a put, or returns an error.
// It is for implementations of Store.
func ReadBody(ctx context.Context, src io.Reader, p []byte) (int, error) {
	const maxEmptyReads = 100
	for range maxEmptyReads {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if n, err := src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// BodyFault classifies the error of a body. HTTP bodies report a client that
// disconnected by an unexpected EOF.
func BodyFault(ctx context.Context, err error) error {
	if ended := flow.Ended(ctx, opPut); ended != nil {
		return ended
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.WrapKind(opPut, fault.BrokenPipe, err)
	}
	return fault.Wrap(opPut, err)
}
