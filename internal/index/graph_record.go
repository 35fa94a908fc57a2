package index

import (
	"micronode/fault"
)

// sign says what a record of the graph's book does.
type sign byte

const (
	adds  sign = '+'
	drops sign = '-'
)

// edge is a change of the graph: one who follows another, or does not any more.
type edge struct {
	sign sign
	a, b string
}

// longestEdge is how long a record may be: a sign, a length, two names.
const longestEdge = 2 + 2*mostNode

// check refuses what cannot be an edge.
func (e edge) check() error {
	if err := CheckNode(e.a); err != nil {
		return err
	}
	if err := CheckNode(e.b); err != nil {
		return err
	}
	if e.a == e.b {
		return badGraph("Name two.", "%q would follow itself", e.a)
	}
	return nil
}

// record is the edge as it is written: the sign, how long the first name is,
// and both names.
func (e edge) record() []byte {
	r := make([]byte, 0, 2+len(e.a)+len(e.b))
	r = append(r, byte(e.sign), byte(len(e.a))) // a name has 128 bytes at most
	r = append(r, e.a...)
	return append(r, e.b...)
}

// parseEdge reads a record. The book has verified its checksum, so one that is
// wrong was written by something else.
func parseEdge(r []byte) (e edge, err error) {
	if len(r) > 2 && 2+int(r[1]) < len(r) {
		names := r[2:]
		e = edge{sign(r[0]), string(names[:r[1]]), string(names[r[1]:])}
	}
	if e.sign != adds && e.sign != drops || e.check() != nil {
		return edge{}, &fault.Error{Op: opGraph, Kind: fault.IntegrityFail, Detail: "the book of the graph has a record that is none of a graph",
			Next: "Put back the file of the graph from a copy of the --persist folder, or remove it to begin anew."}
	}
	return e, nil
}
