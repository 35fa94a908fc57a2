// Package loadgen measures a node from outside: it puts, fetches and resolves
// objects, publishes, and sends and receives messages, over a number of
// connections, and reports how many calls a second there were and how long they
// took.
//
// Each connection waits for a response before its next request. A refusal of an
// overloaded node is counted and obeyed, and is not a failure. What a run puts
// on the node is bounded, has names of its own, and is removed at the end, also
// after an interruption: an interruption does not cancel a call whose outcome
// would then not be known. It compares nothing with other software: that is
// what the module bench is for.
package loadgen
