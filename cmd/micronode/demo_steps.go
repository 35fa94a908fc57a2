package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// demoSteps is the demo, in its order.
func demoSteps() []step {
	return []step{
		{"start", startCommand, startNodes},
		{"put", putSiteCommand, putSite},
		{"resolve", resolveSiteCommand, resolveSite},
		{"fetch", fetchSiteCommand, fetchSite},
		{"gossip", gossipCommand, gossip},
		{"registry", commitCommand, commitChange},
		{"kill", killCommand, killFirst},
		{"end", endCommand, endNodes},
	}
}

func startCommand(*stage) string {
	return "micronode run --http 127.0.0.1:0 --overlay 127.0.0.1:0; micronode peers add ID@HOST:PORT"
}

// startNodes starts all nodes and connects them in a row. Each side must know
// the other: the first that calls is turned away, and called back.
func startNodes(ctx context.Context, s *stage) (string, error) {
	for range s.count {
		if err := s.start(ctx); err != nil {
			return "", err
		}
	}
	for i, n := range s.nodes[1:] {
		if err := introduce(ctx, s.nodes[i], n); err != nil {
			return "", err
		}
	}
	for i, n := range s.nodes {
		if err := eventually(ctx, func() error { return n.whole(ctx) }); err != nil {
			return "", err
		}
		if i == 0 {
			continue
		}
		if err := eventually(ctx, func() error { return n.hasSession(ctx, s.nodes[i-1]) }); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d nodes, each a process of its own, in a row %s; /readyz of each says 200", s.count, s.row()), nil
}

// introduce makes two nodes know each other.
func introduce(ctx context.Context, one, other *demoNode) error {
	if _, err := one.local.AddPeer(ctx, other.banner.Overlay); err != nil {
		return one.about(err)
	}
	_, err := other.local.AddPeer(ctx, one.banner.Overlay)
	return other.about(err)
}

// row shows who is connected to whom.
func (s *stage) row() string {
	var numbers []string
	for _, n := range s.nodes {
		numbers = append(numbers, fmt.Sprint(n.number))
	}
	return strings.Join(numbers, " – ")
}

func putSiteCommand(s *stage) string {
	return "micronode put site --name " + siteLabel + s.first().flag()
}

// putSite stores the folder on the first node, file by file out of memory, and
// names it.
func putSite(ctx context.Context, s *stage) (string, error) {
	n := s.first()
	raw, err := manifestOf(s.site).Encode()
	if err != nil {
		return "", err
	}
	for _, body := range append(bodies(s.site), raw) { // the manifest comes last: who finds it finds the files
		if _, err := n.local.Put(ctx, bytes.NewReader(body), client.PutOptions{Size: int64(len(body)), Want: b3.Of(body)}); err != nil {
			return "", n.about(err)
		}
	}
	record, err := n.local.SetName(ctx, siteLabel, b3.Of(raw))
	if err != nil {
		return "", n.about(err)
	}
	s.manifest = record.Manifest
	return fmt.Sprintf("%s, %s, are on node 1, and the name %s stands for %s", counted(len(s.site), "file"), mebibytes(s.site), siteLabel, short(s.manifest)), nil
}

func resolveSiteCommand(s *stage) string {
	return "micronode resolve " + s.siteName() + s.second().flag()
}

// resolveSite asks the second node what the first one means by the name, and
// for what the folder holds.
func resolveSite(ctx context.Context, s *stage) (string, error) {
	n := s.second()
	source, err := s.resolveAt(ctx, n)
	if err != nil {
		return "", err
	}
	if err := n.fetch(ctx, s.manifest); err != nil {
		return "", err
	}
	listed, err := n.local.Manifest(ctx, s.manifest)
	if err != nil {
		return "", n.about(err)
	}
	if want := manifestOf(s.site); fmt.Sprint(listed) != fmt.Sprint(want) {
		return "", n.wrong(fault.IntegrityFail, "lists other files than were put: %v", listed)
	}
	return fmt.Sprintf("node 2 was told by another (source %s) what node 1 signed: %s, with %s", source, short(s.manifest), counted(len(listed.Entries), "file")), nil
}

// resolveAt asks a node what the first one means by the name, and tells who
// knew.
func (s *stage) resolveAt(ctx context.Context, n *demoNode) (source string, err error) {
	var found client.Resolution
	err = eventually(ctx, func() (err error) {
		found, err = n.local.Resolve(ctx, s.siteName(), client.ResolveOptions{})
		return n.about(err)
	})
	if err == nil && (found.Manifest != s.manifest || found.Source == "local") {
		err = n.wrong(fault.IntegrityFail, "says that %s is %s, by its source %s; it is %s", siteLabel, found.Manifest, found.Source, s.manifest)
	}
	return found.Source, err
}

// fetch has a node get an object from whoever has it.
func (n *demoNode) fetch(ctx context.Context, address b3.Address) error {
	return eventually(ctx, func() error {
		_, err := n.local.FetchAnywhere(ctx, address)
		return n.about(err)
	})
}

func fetchSiteCommand(s *stage) string {
	return "curl -r 0-65535 " + s.third().banner.HTTP + s.edgePath(s.largest())
}

// fetchSite reads all files through the edge of the third node, in ranges. It has no
// session with the first, and must find out that the first has them.
func fetchSite(ctx context.Context, s *stage) (string, error) {
	ranges, err := s.readThrough(ctx, s.third())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, in %s, came through the edge of node 3, which found node 1 by itself; every byte is right", mebibytes(s.site), counted(ranges, "range")), nil
}

// topic is what the nodes talk about.
const topic = "demo/news"

func gossipCommand(s *stage) string {
	return "micronode sub " + topic + s.last().flag() + " & micronode pub " + topic + " hello" + s.first().flag()
}

// gossip publishes on the first node what is heard at the end of the row, where
// nobody has a session with the first.
func gossip(ctx context.Context, s *stage) (string, error) {
	for _, n := range s.nodes[2:] {
		if _, known, err := n.peer(ctx, s.first()); err != nil || known {
			return "", n.about(orElse(err, n.wrong(fault.Conflict, "knows node 1, and a relay would prove nothing")))
		}
	}
	if err := carry(ctx, s.first(), s.last(), "hello from the first"); err != nil {
		return "", err
	}
	return fmt.Sprintf("what node 1 published came to node %d, signed, over %s; the two have no session", s.count, counted(s.count-2, "relay")), nil
}

// orElse is the first error that there is.
func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// carry publishes at one node and listens at another.
func carry(ctx context.Context, from, to *demoNode, text string) error {
	ear, err := to.local.Subscribe(ctx, topic)
	if err != nil {
		return to.about(err)
	}
	defer ear.Close()
	if _, err := from.local.Publish(ctx, topic, []byte(text)); err != nil {
		return from.about(err)
	}
	message, err := ear.Next(ctx)
	if err != nil {
		return to.about(&fault.Error{Op: demoOp, Kind: fault.KindOf(err), Detail: fmt.Sprintf("what node %d published did not come to node %d", from.number, to.number), Err: err,
			Next: "See who is connected to whom with micronode peers."})
	}
	if message.Origin != from.id() || !message.Signed || string(message.Data) != text {
		return to.wrong(fault.IntegrityFail, "heard %q of %s, and not what node %d has said", message.Data, message.Origin, from.number)
	}
	return nil
}

func killCommand(s *stage) string {
	return fmt.Sprintf("kill -KILL %d", s.first().command.Process.Pid)
}

// killFirst kills the node that everything came from. What it named still has
// its meaning, what it put is still there, and the others go on and say who is
// missing.
func killFirst(ctx context.Context, s *stage) (string, error) {
	dead, near := s.first(), s.second()
	if err := dead.signal(syscall.SIGKILL); err != nil {
		return "", dead.about(err)
	}
	if err := dead.awaitEnd(ctx); err != nil {
		return "", err
	}
	if dead.report != nil {
		return "", dead.wrong(fault.Conflict, "has drained, and was to be killed")
	}
	if _, err := s.resolveAt(ctx, near); err != nil {
		return "", err
	}
	if _, err := s.readThrough(ctx, near); err != nil {
		return "", err
	}
	if err := carry(ctx, near, s.last(), "hello from who is left"); err != nil {
		return "", err
	}
	if err := s.truthful(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("node 1 is dead; node 2 still knows its name for the folder, got every byte from node 3, and relays; %s ready", counted(s.count-1, "node")), nil
}

// truthful asks those who are left how they are: ready, and aware of who is not
// there.
func (s *stage) truthful(ctx context.Context) error {
	for _, n := range s.nodes[1:] {
		if err := eventually(ctx, func() error { return n.whole(ctx) }); err != nil {
			return err
		}
	}
	near := s.second()
	return eventually(ctx, func() error {
		one, known, err := near.peer(ctx, s.first())
		if err == nil && (!known || one.State == client.PeerActive) {
			err = near.wrong(fault.Conflict, "does not say that node 1 cannot be reached, but %q", one.State)
		}
		return err
	})
}

func endCommand(s *stage) string {
	pids := "kill -TERM"
	for _, n := range s.nodes[1:] {
		pids += fmt.Sprint(" ", n.command.Process.Pid)
	}
	return pids
}

// endNodes tells those who are left to stop. Each must drain, and leave nothing
// behind.
func endNodes(ctx context.Context, s *stage) (string, error) {
	for _, n := range s.nodes[1:] {
		if err := n.signal(syscall.SIGTERM); err != nil {
			return "", n.about(err)
		}
	}
	var longest time.Duration
	for _, n := range s.nodes[1:] {
		if err := n.awaitEnd(ctx); err != nil {
			return "", err
		}
		if n.err != nil || n.report == nil || len(n.report.Aborted)+len(n.report.LeftRunning) > 0 {
			return "", n.wrong(fault.Internal, "did not drain cleanly: %v, %+v", n.err, n.report)
		}
		longest = max(longest, time.Duration(n.report.Milliseconds)*time.Millisecond)
	}
	return fmt.Sprintf("%s drained cleanly, the slowest in %s; nothing is left", counted(s.count-1, "node"), longest), nil
}
