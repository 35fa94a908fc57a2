// Package oap is the language of the overlay: the frames and messages of
// OAP/1, as bytes and as values.
//
// Two nodes that are connected send each other frames. A frame is a length, a
// header of 27 bytes and a payload; the payload is a message, a CBOR map that
// says of what kind it is. That is all there is on the wire. This package turns
// bytes into frames and frames into messages and back, and decides for every
// sequence of bytes whether it is OAP/1. What to do about a message is the
// business of the session that called.
//
// # Frames
//
// [Append] and [Codec.Append] add a frame to a buffer, so that a writer can
// collect many and write once; [Codec.AppendMessage] adds a message as a frame.
// A [Reader] takes frames off a connection, one at a time, however the bytes
// are cut on the way.
//
// A frame is judged while it comes. The length is looked at before any memory
// is found for it, the version and the tenant as soon as they are there, and a
// frame that will not be taken is refused without waiting for the rest.
//
// The memory of a reader follows what came, not what was announced. While no
// frame is under way it holds 48 bytes. When a frame has begun it borrows a buffer as large as a TLS record, and a larger one only
// when that is full. So ten thousand idle connections cost next to nothing, and
// a peer that announces a megabyte and sends a few bytes has pinned 16 KiB.
//
// A payload is a view into that buffer, valid until the next frame is asked
// for. Whoever needs it longer calls [Reader.Take] and owns a [Buffer] from
// then on: a large payload changes hands without a copy, a small one is copied
// out of the crowd. Either way no memory is allocated once the pools are warm.
//
// The reader knows no time. It tells the caller instead what it waits for:
// [Reader.Buffered] is zero while no frame has begun, which may last as long as
// a connection may be idle, and more than zero while one is under way, whose
// next bytes are due soon. A session sets its deadline accordingly, and none at
// all while [Reader.Ready] says that there is nothing to wait for:
//
//	for !r.Ready() {
//		if r.Buffered() == 0 { … idle deadline … } else { … progress deadline … }
//		if err := r.Fill(); err != nil { … }
//	}
//	frame, err := r.Next()
//
// # Compression
//
// Once both sides agreed, [Codec.Append] compresses with zstd what is worth it:
// payloads of half a kilobyte and more that shrink by an eighth, and not by
// more than the peer would believe. A compressed payload that comes is one zstd
// frame. It may inflate to 1 MiB and to ten times its size. If it declares its
// size, that is checked before memory is found and is binding; if not, it gets
// the memory that the caps allow and no more. A compressed frame that nobody
// agreed on is Malformed: a bomb before the handshake would be a stranger's.
//
// # Messages
//
// [Decode] reads a payload, [Encode] writes one. What is sent is in RFC 8949's
// core deterministic encoding. What is taken is a little more: the order of
// keys and the length of numbers are not checked, and unknown keys are ignored,
// so that a later version can add some; what stands under them must be
// well-formed and is not looked at otherwise. Refused are duplicate keys,
// indefinite lengths, nesting over eight levels, tags, text that is not UTF-8,
// lists of more than 1024 elements, keys that are missing, and values of
// another type or beyond their bounds. The table in schema.go says which keys
// a message has. A kind that is not in it is an [Unknown], for the session to
// decide.
//
// CBOR is read and written by a library. Three kinds come by the thousand:
// gossip, data and ack. Their deterministic encoding is recognised byte for
// byte ([Gossip.Recognise] and its like), which costs nothing worth naming;
// whatever looks different in any way goes to the library, which alone refuses.
//
// # Gossip
//
// A [Gossip] message is an envelope, and in it is a [Letter]: topic, key, seq,
// time and data, written and signed by the origin. Relays pass the letter on
// untouched and change only what is outside. Its id is the BLAKE3 of its bytes,
// so it must have one encoding only, and [Gossip.Open] takes no other, not even
// one with keys that we do not know. [Letter.Seal] makes an envelope,
// [Gossip.Verify] checks the signature, [Letter.CheckTime] the age. A topic is
// up to 128 bytes of printable UTF-8 in normal form C, in segments between
// slashes, none of them empty, "." or ".."; see [CheckTopic].
//
// # Refusals
//
// Every refusal is an error of package fault with a [Reason] among its causes:
// the rule that was broken, from a fixed set, good as the label of a counter.
// [CodeOf] gives the code that goes back to the peer, for these and for any
// other error, and [ErrorFor] the whole message. A code that came from a peer
// is kept where its nearest kind of fault has another name.
//
// After a refused header the place where the next frame begins is not trusted,
// and the reader stays refused. A refused payload is passed over, and the next
// frame can be read.
//
// # What it refuses to do
//
// It starts no goroutine, sets no deadline, opens no connection, holds no lock
// and remembers nothing from one frame to the next but the bytes that came too
// early. It does not know who the peer is, in which order messages may come,
// or what was seen before.
//
// testdata/vectors.json holds frames, messages and letters, good and bad, for
// other implementations to test themselves with.
package oap
