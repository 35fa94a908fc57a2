// Package thumb makes thumbnails.
//
// Pictures are files of strangers, and a decoder believes what a file says of
// itself: a few bytes can ask for gigabytes. So a picture is handled in three
// steps. First [Check] reads its header, with a reader of ours that allocates
// nothing, and works out from the format, the size and the coding how much
// memory the decoder will take; a picture that would take more than the limit
// is refused before the decoder is called. Where a format states its size more
// than once, as WebP does, all of them must agree. Then the decoder runs, on a
// reader that ends with the context of the caller: a file that would keep a
// decoder busy for ever keeps it busy until the deadline. Last, the picture is
// scaled, a few rows at a time, so that this takes next to no memory of its
// own.
//
// # How much memory a job takes
//
// At most [Limits.Bytes], about, and a few MiB for the result. The estimates
// are those of the decoders of the standard library and golang.org/x/image, and
// a test compares them with what the decoders allocate. A node takes that times
// the jobs it allows at a time, and no more.
//
// # Input and output
//
// The input is JPEG, PNG, GIF (its first picture) or WebP. The output fits into
// the bounding box, keeps its proportions, is never larger than the input, and
// is upright if a JPEG has an orientation. It is a JPEG if it is opaque, and a
// PNG otherwise. The same picture and box give the same bytes.
//
// # What it refuses to do
//
// It runs no other program, keeps nothing, starts no goroutine, and does not
// guess: a truncated picture is an error, not half a picture.
package thumb
