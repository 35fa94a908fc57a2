package oap

import "strings"

// View is what of an object is asked for: the object itself, or what is made of
// it. In a start it follows the address.
type View string

const (
	Whole  View = ""        // the object
	Tree   View = "/tree"   // its outboard, as package b3 describes it
	Files  View = "/files"  // if it is a manifest: its files, one after the other
	Here   View = "/here"   // which parts of it the node has: its Parts
	Chunks View = "/chunks" // the map of its chunks, as package chunkmap describes it
)

// CutView splits what a start asks for into the address and the view. What is no
// view stays with the address, which is none then.
func CutView(obj string) (address string, view View) {
	for _, one := range []View{Tree, Files, Here, Chunks} {
		if address, found := strings.CutSuffix(obj, string(one)); found {
			return address, one
		}
	}
	return obj, Whole
}
