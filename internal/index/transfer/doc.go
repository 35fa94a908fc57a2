// Package transfer fetches one object from several sources at the same time.
//
// A [Transfer] has the object's tree, so each group of 16 KiB is verified as it
// arrives, whoever sent it. The object is cut into runs of half a MiB. Each
// source has a few lanes; a free lane takes the first run that nobody fetches.
// A run stays with what it has when its lane fails: the next lane goes on
// behind the last verified group, so no byte moves twice but what was under
// way. A free lane takes a run over from one that is much slower than itself.
//
// Nodes that fetch the same object at the same time get it from each other. Each
// says which parts it has ([Transfer.Parts]), and asks a source that has
// everything for what nobody else has or gets. Then more runs are under way, in
// an order that is not that of the object.
//
// A source that sends wrong bytes is dropped at the first wrong group. One that
// fails otherwise rests, longer each time; while there is no other, the
// transfer asks for more. It fails when nothing has arrived for its patience.
//
// Where other objects that are here may have some of its bytes, as an older
// version has most of them, these are copied first, and verified like those of a
// stranger. The lanes fetch the groups that are missing then.
//
// The object is read in order by the one task that stores it ([Transfer.Read]),
// and at any offset by those that wait for it ([Transfer.ReadAt]): what is
// stored is read from the store, what is about to arrive is waited for, and
// what is far ahead is fetched for that reader alone.
package transfer
