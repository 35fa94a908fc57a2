// Package top watches a node: it takes snapshots of its status, readiness and
// metrics, compares each with the last one, and shows the difference as a view.
//
// A View is text for a pipe or a terminal (Lines) or JSON. Watch draws views on
// a terminal, in place, until the user quits. Everything in a view that came
// from the node is sanitized: a node, or a peer whose words it repeats, cannot
// act on the terminal.
package top
