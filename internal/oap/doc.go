// Package oap is the protocol of the overlay: the frames and messages of OAP/1,
// as bytes and as values.
//
// Two nodes that are connected send each other frames. A frame is a length, a
// header of 27 bytes and a payload; the payload is a message, a CBOR map with
// its kind. That is all there is on the wire. This package turns bytes into
// frames and frames into messages and back, and decides for every sequence of
// bytes whether it is OAP/1. The session decides what to do with a message.
//
// # Frames
//
// [Append] and [Codec.Append] add a frame to a buffer, so that a writer can
// collect many and write once; [Codec.AppendMessage] adds a message as a frame.
// A [Reader] takes frames off a connection, one at a time, however the bytes
// are cut on the way.
//
// A frame is checked while it arrives. The length is checked before any memory
// is allocated for it, the version and the tenant as soon as they are there,
// and an invalid frame is refused without waiting for the rest.
//
// The memory of a reader follows what came, not what was announced. While no
// frame is under way it holds 48 bytes. When a frame has begun it borrows a
// buffer as large as a TLS record, and a larger one only when that is full. So
// ten thousand idle connections cost next to nothing, and a peer that announces
// a megabyte and sends a few bytes has pinned 16 KiB.
//
// A payload is a view into that buffer, valid until the next frame is read. To
// keep it longer, [Reader.Take] returns it as a [Buffer] that the caller owns:
// a large payload is passed on without a copy, a small one is copied out of the
// shared buffer. Either way no memory is allocated once the pools are warm.
//
// The reader sets no deadlines. Its state says what it waits for:
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
// more than the peer's ratio cap. A compressed payload is one zstd frame. It
// may decompress to 1 MiB and to ten times its size. If it declares its size,
// that is checked before memory is allocated and is binding; if not, it gets
// the memory that the caps allow and no more. A compressed frame without that
// agreement is Malformed: before the handshake, the sender of a bomb would be
// unknown.
//
// # Messages
//
// [Decode] reads a payload, [Encode] writes one. What is sent is in RFC 8949's
// core deterministic encoding. What is accepted is a little more: the order of
// keys and the length of numbers are not checked, and unknown keys are ignored,
// so that a later version can add some; their values must be well-formed and
// are not checked otherwise. Refused are duplicate keys, indefinite lengths,
// nesting over eight levels, tags, text that is not UTF-8, lists of more than
// 1024 elements, missing keys, and values of another type or beyond their
// bounds. The table in schema.go lists the keys of each message. A kind that is
// not in it is an [Unknown], for the session to decide.
//
// CBOR is read and written by a library. Five kinds are frequent: gossip, data,
// ack, ping and pong. Their deterministic encoding is matched byte for byte
// ([Gossip.DecodeFast] and its like), at next to no cost; anything that differs
// in any way goes to the library, which alone refuses.
//
// # Gossip
//
// A [Gossip] message is an envelope, and in it is a [GossipMessage]: topic,
// key, seq, time and data, written and signed by the origin. Relays forward the
// inner message unchanged and change only what is outside. Its id is the BLAKE3
// of its bytes, so it must have one encoding only, and [Gossip.Open] accepts no
// other, not even one with unknown keys. [GossipMessage.Seal] makes an
// envelope, [Gossip.Verify] checks the signature, [GossipMessage.CheckTime] the
// age. A topic is up to 128 bytes of printable UTF-8 in normal form C, in
// segments between slashes, none of them empty, "." or ".."; see [CheckTopic].
//
// # Refusals
//
// Every refusal is an error of package fault with a [Reason] among its causes:
// the rule that was broken, from a fixed set, good as the label of a counter.
// [CodeOf] returns the code that is sent to the peer, for these and for any
// other error, and [ErrorFor] the whole message. A code that came from a peer
// is kept where its nearest kind of fault has another name.
//
// After a refused header the start of the next frame is not trusted, and the
// reader stays refused. A refused payload is skipped, and the next frame can be
// read.
//
// # What it refuses to do
//
// It starts no goroutine, sets no deadline, opens no connection, holds no lock
// and keeps nothing from one frame to the next but the bytes that came too
// early. It does not know the peer, the allowed order of messages, or what was
// seen before.
//
// testdata/vectors.json holds frames, messages and gossip messages, good and
// bad, for other implementations to test themselves with.
package oap
