package fill

import (
	"io"

	"micronode/internal/bandwidth"
)

// pacedReader is a body that is read no faster than node.bandwidth allows.
type pacedReader struct {
	io.ReadCloser
	timer *fillTimer
	down  *bandwidth.Limiter
	share *bandwidth.Share
}

// Read reads, and then waits for what it has read.
func (r pacedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), r.down.Step())])
	r.down.Count(bandwidth.Fills, n)
	for left := n; left > 0; {
		granted := r.down.Try(r.share, left)
		if granted == 0 {
			resume := r.timer.hold()
			var ended error
			granted, ended = r.down.Wait(r.timer.ctx, bandwidth.Fills, r.share, left)
			resume()
			if ended != nil {
				return n, ended
			}
		}
		left -= granted
	}
	return n, err
}
