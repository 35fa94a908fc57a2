package graph

import (
	"context"
	"time"

	"micronode/fault"
)

// edgeOp is the operation of a log record.
type edgeOp byte

const (
	edgeAdd    edgeOp = '+'
	edgeRemove edgeOp = '-'
)

// edgeChange is a change of the graph: one node follows another, or stops
// following it.
type edgeChange struct {
	op   edgeOp
	a, b string
}

// maxEdgeRecord is the maximum length of a record: an op, a length, two names.
const maxEdgeRecord = 2 + 2*maxNode

// validate rejects invalid edges.
func (e edgeChange) validate() error {
	if err := CheckNode(e.a); err != nil {
		return err
	}
	if err := CheckNode(e.b); err != nil {
		return err
	}
	if e.a == e.b {
		return malformed("Name two.", "%q would follow itself", e.a)
	}
	return nil
}

// encode returns the log record: the op, the length of the first name, and both
// names.
func (e edgeChange) encode() []byte {
	r := make([]byte, 0, 2+len(e.a)+len(e.b))
	r = append(r, byte(e.op), byte(len(e.a))) // a name has 128 bytes at most
	r = append(r, e.a...)
	return append(r, e.b...)
}

// parseEdge decodes a record. The log has verified its checksum, so an invalid
// one was written by something else.
func parseEdge(r []byte) (e edgeChange, err error) {
	if len(r) > 2 && 2+int(r[1]) < len(r) {
		names := r[2:]
		e = edgeChange{edgeOp(r[0]), string(names[:r[1]]), string(names[r[1]:])}
	}
	if e.op != edgeAdd && e.op != edgeRemove || e.validate() != nil {
		return edgeChange{}, &fault.Error{Op: op, Kind: fault.IntegrityFail, Detail: "the graph file contains an invalid record",
			Next: "Restore the file of the graph from a backup of the --persist folder, or remove it to start with an empty graph."}
	}
	return e, nil
}

// apply applies a record to the graph. Guarded by mu, or by the absence of
// concurrency while the log is opened.
func (g *Graph) apply(e edgeChange) (changed bool) {
	g.records++
	if e.op == edgeAdd {
		return g.edges.follow(e.a, e.b)
	}
	return g.edges.unfollow(e.a, e.b)
}

// replay applies a record of the log when it is opened.
func (g *Graph) replay(record []byte) error {
	e, err := parseEdge(record)
	if err != nil {
		return err
	}
	g.apply(e)
	return nil
}

// compactTimeout is how long a compaction waits for the locks of the log.
const compactTimeout = 10 * time.Second

// defaultLogSlack keeps a small graph from being compacted all the time.
const defaultLogSlack = 4096

// compact rewrites the log when most of it is about removed edges. Changes wait
// meanwhile. Compaction ignores the caller's deadline, because a partial
// rewrite is useless. If it fails, the log is unchanged.
func (g *Graph) compact(ctx context.Context) {
	if !g.beginCompaction() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), compactTimeout)
	defer cancel()
	before, after := 0, 0
	err := g.log.Rewrite(ctx, func(add func([]byte) error) error {
		before = g.records // it does not change now
		for a, b := range g.edges.all() {
			if err := add(edgeChange{edgeAdd, a, b}.encode()); err != nil {
				return err
			}
			after++
		}
		return nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rewriting = false
	if err != nil {
		g.logSlack *= 2 // so that the very next change does not retry
		return
	}
	g.records -= before - after
}

// beginCompaction reports whether the caller must rewrite the log.
func (g *Graph) beginCompaction() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rewriting || g.records <= 2*g.edges.len()+g.logSlack {
		return false
	}
	g.rewriting = true
	return true
}
