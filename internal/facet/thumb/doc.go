// Package thumb makes small pictures of large ones.
//
// Pictures are files of strangers, and a decoder believes what a file says of
// itself: a few bytes can ask for gigabytes. So a picture is looked at three
// times. First [Check] reads its header, with a reader of ours that allocates
// nothing, and works out from the format, the size and the coding how much
// memory the decoder will take; what would take more than the limit is refused
// before the decoder is called. Where a format says its size more than once, as
// WebP does, all of them must agree. Then the decoder runs, on a reader that
// ends with the context of whoever waits: a file that keeps a decoder busy for
// ever keeps it busy until the deadline. Last, the picture is made smaller, a
// few rows at a time, so that this takes next to no memory of its own.
//
// # How much memory a job takes
//
// At most [Limits.Bytes], about, and a few MiB for the result. The estimates
// are those of the decoders of the standard library and golang.org/x/image, and
// a test holds them against what the decoders allocate. A node takes that times
// the jobs it allows at a time, and no more.
//
// # What comes out
//
// JPEG, PNG, GIF (its first picture) and WebP go in. What comes out fits into
// the box, keeps its proportions, is never larger than what went in, and stands
// upright if a JPEG says how it was held. It is a JPEG if nothing can be seen
// through, and a PNG otherwise. The same picture and box give the same bytes.
//
// # What it refuses to do
//
// It runs no other program, keeps nothing, starts no goroutine, and does not
// guess: a picture that ends too soon is an error, not half a picture.
package thumb
