// Package s3 keeps objects in a bucket: a [store.Store] over any server that
// speaks S3.
//
// It is how a node grows past its machine. Several nodes may use one bucket,
// and each sees what the others put. Nothing is kept on the node's own disk, so
// a node in amnesia may use it too: what outlives the node lies in the bucket,
// where its operator wanted it.
//
// # What lies in the bucket
//
// Under the prefix of the store there are five folders, and the names in the
// first three are addresses in hex:
//
//	data/        the bytes of each object, as they are: any S3 tool can fetch them, and b3sum checks them
//	tree/        for objects of more than 64 KiB, the outboard, with which ranges are verified
//	pinned/      an empty key for each object that is pinned
//	tmp/         bodies on their way in, and deleted objects that are still open
//	quarantine/  what was found corrupt, for somebody to look at and remove
//
// An object is there if its key in data/ is there. All else can be missing: a
// tree is made again from the object, and without its mark an object is cached.
//
// # Putting
//
// S3 shows an object when all of it has arrived, and not before, so nothing
// partial is ever under an address. A body of up to 8 MiB is taken into memory,
// hashed, and put on the condition that its key is not there. A larger one is
// hashed while it goes up in parts of 8 MiB. If the caller knows its address, the
// parts go straight there, and are completed only if the bytes are right. If not,
// they go to a temporary key and are copied, by the server, to the address that
// was found. An object that is there is not sent again: finding it costs a
// request or two.
//
// Because of the condition, of all nodes that put the same object at the same
// time exactly one is told that it is new. Servers that do not know conditions
// are used without; then several may be told so, which does no other harm, since
// equal addresses have equal bytes.
//
// What was abandoned is removed by the put itself if it can, and otherwise, when
// it is more than a day old, by the next node that starts.
//
// # Reading
//
// The server is not trusted. An object of up to 64 KiB is fetched when it is
// opened, and verified whole. Of a larger one, Open proves the size by the tree,
// and every range is verified in groups of 16 KiB before it is given out. A range
// is one request, pinned to the version that was opened by its ETag; if the line
// breaks, another request goes on where the first one stopped.
//
// What does not verify is fetched again, because lines and proxies fail too.
// If it is wrong a second time, it matters what is wrong. All of the tree is
// proved from the address down, so a wrong group under a right tree is a corrupt
// object: it is moved to quarantine/, counted, and the error is
// fault.IntegrityFail. A wrong tree is made again from the object. Nobody has to
// clean up by hand, and nothing wrong is given out meanwhile.
//
// # What other nodes see
//
// A put, a delete and a pin can be seen by every node when they return; that is
// what S3 promises for single keys. The operations of one node on one object
// take turns. Between nodes:
//
//   - Two deletes of one object may both succeed. A put and a delete of one
//     object leave it there or not, as if one had come after the other. A pin is
//     never lost in such a race; it may outlast the object, so that the next put
//     of the same bytes finds itself pinned.
//   - An object that this node deletes can be read to the end by whoever has it
//     open on this node. Another node that has it open finds it gone, with
//     fault.NotFound, at its next request.
//   - Usage is this node's view: what it counted at the start, and what it put
//     and deleted since. [Store.Recount] counts again.
//   - The class is kept, but nothing is ever evicted: a bucket has no budget that
//     this package knows of. A lifecycle rule of the server may remove objects;
//     it is like a delete by another node.
//
// # Time
//
// Every call has a limit of its own, and the caller's deadline comes first.
// Calls that fail in passing are made again, at most three times, after pauses of
// 50 to 100 ms that double, if the deadline leaves time for it and if repeating
// does no harm. A stream has no limit as long as bytes come.
//
// # What it refuses to do
//
// It starts no goroutine, writes no file, logs nothing, and takes no proxy or key
// from the environment. It does not encrypt: use TLS, and the server's own
// encryption. It does not sign, parse or speak HTTP itself: that is the work of
// the MinIO client library, whose own retries are off.
package s3
