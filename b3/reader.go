package b3

import "io"

// NewReader returns a reader that passes on the bytes of src and checks them
// against want. Where src ends, the reader ends with io.EOF only if everything
// was right, and with a [Mismatch] if not. So a caller that reads up to io.EOF
// has the right bytes, all of them and no more.
//
// The bytes before the end are passed on unchecked, because the check needs
// the last one. A caller that stops early has checked nothing.
func NewReader(src io.Reader, want Address) io.Reader {
	return &checkedReader{src: src, want: want}
}

// checkedReader is used by one goroutine.
type checkedReader struct {
	// Set at construction.
	src  io.Reader
	want Address

	// Owned by the reading goroutine.
	hasher Hasher
	err    error // the final result, once it is known; it stays
}

func (r *checkedReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.src.Read(p)
	r.hasher.absorb(p[:n])
	if err == io.EOF {
		err = r.verify()
	}
	r.err = err
	return n, err
}

func (r *checkedReader) verify() error {
	if got := r.hasher.Sum(); got != r.want {
		return &Mismatch{Want: r.want, Got: got}
	}
	return io.EOF
}

// Copy copies src to dst until src ends and checks the bytes against want on
// the way. It returns how many bytes were written to dst, and a [Mismatch] if
// they are not the content that want names.
//
// By the time a mismatch is known, all n bytes have been written to dst, the
// wrong ones included. Use a destination that can be discarded, and make its
// content visible to others only after Copy has returned without an error.
func Copy(dst io.Writer, src io.Reader, want Address) (n int64, err error) {
	return io.Copy(dst, NewReader(src, want))
}
