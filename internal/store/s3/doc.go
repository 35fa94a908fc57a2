// Package s3 keeps objects in a bucket: a [store.Store] over any server that
// speaks S3.
//
// It is how a node's storage grows beyond one machine. Several nodes may use
// one bucket, and each sees what the others put. Nothing is kept on the node's
// own disk, so a node in amnesia mode may use it too: what outlives the node is
// in the bucket, where its operator wanted it.
//
// # Keys
//
// Under the prefix of the store there are five folders, and the names in the
// first three are addresses in hex:
//
//	data/        the bytes of each object, as they are: any S3 tool can fetch them, and b3sum checks them
//	tree/        for objects of more than 64 KiB, the outboard, with which ranges are verified
//	pinned/      an empty key for each object that is pinned
//	tmp/         bodies that are being uploaded, and deleted objects that are still open
//	quarantine/  corrupt objects, for an operator to inspect and remove
//
// An object exists if its key in data/ exists. Everything else can be missing:
// a tree is rebuilt from the object, and without its key in pinned/ an object
// is cached.
//
// # Putting
//
// S3 shows an object when all of it has arrived, and not before, so nothing
// partial is ever under an address. A body of up to 8 MiB is read into memory,
// hashed, and put on the condition that its key does not exist. A larger one is
// hashed while it is uploaded in parts of 8 MiB. If the caller knows its
// address, the parts go straight there, and are completed only if the bytes are
// right. If not, they go to a temporary key and are copied, by the server, to
// the computed address. An existing object is not sent again: finding it costs
// a request or two.
//
// Because of the condition, of all nodes that put the same object at the same
// time exactly one reports it as new. Servers that do not support conditions
// are used without; then several may report so, which does no other harm, since
// equal addresses have equal bytes.
//
// Abandoned uploads are removed by the put itself if it can, and otherwise,
// when they are more than a day old, by the next node that starts.
//
// # Reading
//
// The server is not trusted. An object of up to 64 KiB is fetched when it is
// opened, and verified whole. Of a larger one, Open proves the size by the
// tree, and every range is verified in groups of 16 KiB before it is returned.
// A range is one request, bound to the version that was opened by its ETag; if
// the connection breaks, another request continues where the first one stopped.
//
// What does not verify is fetched again, because connections and proxies fail
// too. If it is wrong a second time, it matters what is wrong. All of the tree
// is proved from the address down, so a wrong group under a right tree is a
// corrupt object: it is moved to quarantine/, counted, and the error is
// fault.IntegrityFail. A wrong tree is rebuilt from the object. No manual
// cleanup is needed, and nothing wrong is returned meanwhile.
//
// # What other nodes see
//
// A put, a delete and a pin are visible to every node when they return; that is
// what S3 guarantees for single keys. The operations of one node on one object
// are serialised. Between nodes:
//
//   - Two deletes of one object may both succeed. A put and a delete of one
//     object leave it there or not, as if one had come after the other. A pin is
//     never lost in such a race; it may outlast the object, so that the next put
//     of the same bytes finds itself pinned.
//   - An object that this node deletes can be read to the end through the open
//     handles of this node. Another node that has it open gets fault.NotFound at
//     its next request.
//   - Usage is this node's view: what it counted at the start, and what it put
//     and deleted since. [Store.Recount] counts again.
//   - The class is kept, but nothing is ever evicted: a bucket has no budget that
//     this package knows of. A lifecycle rule of the server may remove objects;
//     it is like a delete by another node.
//
// # Time
//
// Every call has a limit of its own, and the caller's deadline comes first.
// Calls that fail transiently are retried, at most three times, after pauses of
// 50 to 100 ms that double, if the deadline leaves time for it and if repeating
// is harmless. A stream has no limit as long as bytes arrive.
//
// # What it does not do
//
// It starts no goroutine, writes no file, logs nothing, and takes no proxy or
// key from the environment. It does not encrypt: use TLS, and the server's own
// encryption. It does not sign, parse or speak HTTP itself: that is the work of
// the MinIO client library, whose own retries are off.
package s3
