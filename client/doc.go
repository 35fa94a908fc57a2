// Package client is the Go SDK of micronode. It puts objects and gets them by
// their address, exchanges messages with programs at other nodes, reads and
// governs the registry, and reads the state of the node.
//
//	c, err := client.FromEnvironment()
//	if err != nil { … }
//	defer c.Close()
//	object, err := c.Put(ctx, file, client.PutOptions{})
//	err = c.Download(ctx, object.Address, "copy")
//
// # Which node
//
// [FromEnvironment] does what the command line does. MICRO_URL names a remote
// node, and MICRO_TOKEN is the capability to use there. Without MICRO_URL it
// is the node of this user on this machine, over an abstract Unix socket,
// where no token is needed. [New] takes the same settings as [Options].
//
// Any user of a machine can take an abstract name first. So the client asks
// the kernel who owns the socket, on each connection and before it sends a
// byte, and rejects one of another user ([fault.Forbidden]). If nothing
// listens there, the error is [fault.NotReady] and names the command to type.
//
// # The token
//
// The token is added to a request at the last moment, below everything that
// follows redirects, and only if the request goes to the scheme, host and port
// that the options named. It is never sent in the clear to another machine. No
// error contains it, even when a server repeats it, and printing or logging a
// [Client] or its [Options] does not show it. Reads follow a few redirects,
// without the token where they lead elsewhere. Writes follow none.
//
// # Objects
//
// The name of an object is the hash of its bytes (see package b3), so its
// source need not be trusted.
//
// [Client.Put] computes the address while it sends, and compares. A nil error
// means that the node has exactly these bytes. A source that differs from its
// declared size or address is rejected before its last bytes are sent, so that
// nothing is stored.
//
// [Client.Get] verifies while it reads. A whole object ends with [io.EOF] only
// if each of its bytes was right. The check needs the last byte, so the
// earlier ones are returned before it is complete: a program that uses them
// before the end uses unverified bytes. [Client.Download] does not: the file
// appears when all of it is right, or not at all. A part of an object (Offset
// and Length) cannot be verified by this client.
//
// When a connection breaks in the middle of an object, the [Reader] requests
// the rest and continues. Each byte that arrives resets the count of tries.
//
// # Messages between nodes
//
// A node knows other nodes, its peers ([Client.Peers], [Client.AddPeer]), and
// relays messages to them. [Client.Publish] sends a message to a topic;
// [Client.Subscribe] receives the messages of one, at any node that they can
// reach.
//
//	s, err := c.Subscribe(ctx, "news/local")
//	if err != nil { … }
//	defer s.Close()
//	for {
//		message, err := s.Next(ctx)
//		if errors.Is(err, fault.Lagging) { continue } // some were lost
//		if err != nil { … }
//	}
//
// Messages are not stored: only current subscribers receive them, and a reader
// that is too slow loses some and gets their number ([Lagged]). A
// [Subscription] that ends is not resumed silently, because the messages
// published in between would be missing without notice. Put anything that is
// larger than [MaxMessage], or has to last, as an object and publish its
// address; [Client.Fetch] lets a node get the object from its peers.
//
// # Errors
//
// Every error of a call but [Lagged] is a [fault.Error]: a kind that a program
// can act on, a detail and a next step for a person. If the node refused, they
// come from the node; if another server answered, from the status; if nothing
// answered, from the network's error.
//
//	switch {
//	case errors.Is(err, fault.NotFound): …
//	case err != nil:
//		log.Printf("%v (%s; corr_id %s)", err, fault.NextOf(err), client.CorrID(err))
//	}
//
// [CorrID] returns the correlation ID of the call that failed. The node's log
// lines carry the same one. All tries of a call share one ID, and [WithCorrID]
// lets the caller choose it.
//
// # Retries
//
// Calls that are safe to repeat are repeated for the kinds of error where that
// helps: reads, deletions, and a Put whose source can be read again, since the
// same bytes have the same name. A Publish is repeated only if the node cannot
// have accepted the message. There are three tries, with pauses of 50–100 ms
// that double up to 2 s, or as long as the node's Retry-After. If the pause
// would outlive the deadline of the context, or is longer than
// Options.Timeout, the error is returned at once, and [fault.RetryAfterOf] is
// the time to wait.
//
// # Timeouts
//
// Options.Timeout bounds a small call with all its tries; the node gets this
// bound with the request, and stops working when it has passed. A transfer has
// no bound as a whole, since neither its size nor the speed of the connection
// is known. It ends when nothing has moved for Options.Timeout. The clock runs
// only while the client waits for the node: a program may take all day between
// two reads. A stream of messages has heartbeats, and ends when three of them
// are missing. A deadline of the context bounds everything.
//
// # The registry
//
// [Client.RegistryHead] and [Client.RegistryVersion] read it,
// [Client.WatchRegistry] follows it, [Client.RegistryBundle] returns one
// version with everything that proves it. [Client.Propose], [Client.Approve]
// and [Client.Commit] change it: a signer approves by signing the bytes of
// [Proposed.SignThis], and reviews them first. A commit whose answer was lost
// is looked up, never sent again.
//
// # What it refuses to do
//
// It leaves no goroutine behind (PutFolder and GetFolder start a few, and wait
// for all of them), keeps no cache, writes to disk only what Download and
// GetFolder were asked for, and logs nothing. It does not guess: an answer
// that does not come from a node is an error that says so.
package client
