// Package page serves the page of a node at /ui/: what a browser shows of it.
//
// The page is a handful of files that are compiled into the binary; its sources
// are in the folder web. The node needs no network to show it, and the page
// loads nothing from another host: a policy in every answer forbids it, and
// with it inline scripts, inline styles, frames and forms.
//
// The files are the same for everybody and hold no secret, so they are open.
// What the page shows of the node it reads from the routes of the node, each
// with its own rights. For the node's own user, `micronode ui` makes a link
// that works once and for a minute ([Links]): the page exchanges its code for
// a capability and keeps that in memory only.
//
// # What it refuses to do
//
// It sets no cookies, and renders nothing: no answer depends on who asks. It
// does nothing while nobody looks: files are compressed when they are first
// requested. With the build tag noui the files are left out, and so is every
// route of this package.
package page
