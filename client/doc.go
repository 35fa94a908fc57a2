// Package client lets a program talk to a micronode: put bytes in, get them
// out by their address, talk to programs at other nodes, read and govern its
// registry, and ask the node how it does.
//
//	c, err := client.FromEnvironment()
//	if err != nil { … }
//	defer c.Close()
//	object, err := c.Put(ctx, file, client.PutOptions{})
//	err = c.Download(ctx, object.Address, "copy")
//
// # Which node
//
// [FromEnvironment] does what the command line does. MICRO_URL names a node
// somewhere else, and MICRO_TOKEN is the capability to use there. Without
// MICRO_URL it is the node of this user on this machine, over an abstract Unix
// socket, where no token is needed. [New] says the same in [Options].
//
// Anybody on a machine can take an abstract name before we do. So the client
// asks the kernel whose socket it is, on each connection and before it sends a
// byte, and refuses one that is not its own user's ([fault.Forbidden]). Where
// nobody listens, the answer is [fault.NotReady] and the command to type.
//
// # The token
//
// The token is added to a request at the last moment, below everything that
// follows redirects, and only if the request goes to the very scheme, host and
// port that the options named. It is never sent in the clear to another
// machine. It is in no error, also when a server repeats it, and it is not
// shown by printing or logging a [Client] or its [Options]. Reads follow a few
// redirects, without the token where they lead elsewhere. Writes follow none.
//
// # Objects
//
// An object has the hash of its bytes for a name (see package b3), so nobody
// has to trust the way it came.
//
// [Client.Put] works the address out while it sends, and compares. A nil error
// means that the node has exactly these bytes. A source that does not hold
// what was promised of it, in size or in address, is found out before its last
// bytes are sent, so that nothing is stored.
//
// [Client.Get] verifies while it reads. A whole object ends with a clean
// [io.EOF] only if each of its bytes was right. The verdict needs the last
// byte, so the earlier ones are handed on before it is known: whoever acts on
// them before the end acts on what may turn out to be wrong.
// [Client.Download] does not: the file appears when all is well, or not at all.
// A part of an object (Offset and Length) cannot be verified by this client.
//
// When a connection breaks in the middle of an object, the [Reader] asks for
// the rest and goes on. The tries count anew with each byte that comes.
//
// # Messages between nodes
//
// A node knows others, its peers ([Client.Peers], [Client.AddPeer]), and passes
// messages on to them. [Client.Publish] sends a message to a topic;
// [Client.Subscribe] listens to one, at any node that the message can reach.
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
// Messages are for what is going on now. Nobody keeps them: who was not there
// does not get them, and a reader that is too slow loses some and is told how
// many ([Lagged]). A [Subscription] that ends is not taken up again behind the
// caller's back, because what was published in between would be missing
// without a word. What is larger than [MaxMessage], or is to last, is put as an
// object; its address is what is published, and [Client.Fetch] lets a node get
// the object from its peers.
//
// # Errors
//
// Every error of a call but [Lagged] is a [fault.Error]: a kind that a program
// can act on, a detail and a next step for a person. If the node refused, they
// are the node's own words; if something else answered, the status decides; if
// nobody answered, the network's error does.
//
//	switch {
//	case errors.Is(err, fault.NotFound): …
//	case err != nil:
//		log.Printf("%v (%s; corr_id %s)", err, fault.NextOf(err), client.CorrID(err))
//	}
//
// [CorrID] gives the correlation ID of the call that failed. The node's log
// lines carry the same one. It is one for all tries of a call, and
// [WithCorrID] lets the caller choose it.
//
// # Trying again
//
// What may be repeated safely is repeated for kinds where that helps: reads,
// deletions, and a Put whose source can be read again, since the same bytes
// have the same name. A Publish is repeated only if the node cannot have taken
// the message. There are three tries, with pauses of 50–100 ms that
// double up to 2 s, or as long as the node asked for with Retry-After. Nobody
// waits in vain: if the pause would outlive the deadline of the context, or is
// longer than Options.Timeout, the error is returned at once, and
// [fault.RetryAfterOf] tells when to come back.
//
// # Time
//
// A small call is bounded by Options.Timeout with all its tries; the node is
// told how long the caller waits, and stops working when nobody listens any
// more. A transfer has no bound as a whole, since nobody knows how large it is
// or how slow the line. It ends when nothing has moved for Options.Timeout. The
// clock runs only while it is the node's turn: a program may take all day
// between two reads. A stream of messages has heartbeats, and ends when three
// of them are missing. A deadline of the context bounds everything.
//
// # The registry
//
// [Client.RegistryHead] and [Client.RegistryVersion] read it,
// [Client.WatchRegistry] follows it, [Client.RegistryBundle] brings one version
// with everything that proves it. [Client.Propose], [Client.Approve] and
// [Client.Commit] change it: whoever approves signs the bytes of
// [Proposed.SignThis], and looks at what they say before. A commit whose answer
// was lost is looked up, never sent again.
//
// # What it refuses to do
//
// It leaves no goroutine behind (PutFolder and GetFolder start a few, and wait
// for all of them), keeps no cache, writes nothing to disk but what Download
// and GetFolder were asked for, and logs nothing. It does not guess: an
// answer that is not that of a node is an error that says so.
package client
