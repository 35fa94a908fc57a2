package b3

import "io"

// NewReader returns a reader that hands on what src gives and checks it against
// want. Where src ends, the reader ends with io.EOF only if everything was
// right, and with a [Mismatch] if not. So a caller who reads to a clean end has
// the right bytes, all of them and no more.
//
// The bytes before the end are handed on unchecked, because the verdict needs
// the last one. A caller who stops early has checked nothing.
func NewReader(src io.Reader, want Address) io.Reader {
	return &checkedReader{src: src, want: want}
}

// checkedReader belongs to the one caller who reads from it.
type checkedReader struct {
	// Set at construction.
	src  io.Reader
	want Address

	// Owned by the reading goroutine.
	seen Hasher
	end  error // the verdict, once it is known; it stays
}

func (r *checkedReader) Read(p []byte) (int, error) {
	if r.end != nil {
		return 0, r.end
	}
	n, err := r.src.Read(p)
	r.seen.absorb(p[:n])
	if err == io.EOF {
		err = r.verdict()
	}
	r.end = err
	return n, err
}

func (r *checkedReader) verdict() error {
	if got := r.seen.Sum(); got != r.want {
		return &Mismatch{Want: r.want, Got: got}
	}
	return io.EOF
}

// Copy copies src to dst until src ends and checks the bytes against want on the
// way. It returns how many bytes were written to dst, and a [Mismatch] if they
// are not the content that want names.
//
// By the time a mismatch is known, all n bytes have been written to dst: the
// wrong ones too. Give it a destination that can be thrown away, and make its
// content visible to others only after Copy has returned without an error.
func Copy(dst io.Writer, src io.Reader, want Address) (n int64, err error) {
	return io.Copy(dst, NewReader(src, want))
}
