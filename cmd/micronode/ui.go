package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type uiCommand struct {
	Scope []string      `placeholder:"SCOPE" complete:"scope" help:"What the page may do, such as object:put. Can be repeated. Without it, everything: the scope admin."`
	TTL   time.Duration `name:"ttl" default:"8h" placeholder:"DURATION" help:"How long the page may do it (default ${default})."`
	Print bool          `help:"Only print the link; do not start a browser."`
	nodeFlags
	outputFlags
}

// Help is shown by ui --help.
func (uiCommand) Help() string {
	return `The link works once, and for a minute. The page keeps the capability in memory: when the tab is closed or reloaded, it is gone, and this command makes a new link.

Examples:

    micronode ui
    micronode ui --print
    micronode ui --scope object:put --ttl 1h`
}

// browserStart is how long a browser has to read the link.
const browserStart = 5 * time.Second

// Run makes a link, prints it, and shows it to a browser.
func (u *uiCommand) Run(ctx context.Context, c *console) error {
	node, err := u.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if u.TTL < time.Second {
		return &fault.Error{Op: "ui", Kind: fault.Malformed, Detail: "--ttl must be a second or more", Next: "Write a duration, such as 8h."}
	}
	link, err := node.PageLink(ctx, client.PageLinkRequest{Scopes: u.Scope, TTL: int64(u.TTL / time.Second)})
	if fault.KindOf(err) == fault.NotFound || fault.KindOf(err) == fault.MethodNotAllowed {
		return &fault.Error{Op: "ui", Kind: fault.NotFound, Detail: "this node has no page", Err: err,
			Next: "It was built with -tags noui, or is an older version. `micronode top` shows the same in a terminal."}
	}
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(link)
		return nil
	}
	c.print("%s\n", link.URL)
	if u.Print || !c.outTerminal {
		return nil
	}
	c.print("\nThe link works once, until %s.\n", link.Expires.Local().Format(time.TimeOnly))
	return openBrowser(ctx, link.URL)
}

// openBrowser starts the browser of the desktop, if there is one. Other users of
// the machine can read the arguments of every process, so the browser gets the
// path of a file that only this user can read, and which leads to the link.
func openBrowser(ctx context.Context, link string) error {
	opener := ""
	for _, name := range []string{"xdg-open", "open"} {
		if path, err := exec.LookPath(name); err == nil && opener == "" {
			opener = path
		}
	}
	if opener == "" || os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && filepath.Base(opener) == "xdg-open" {
		return nil // the link has been printed
	}
	file, err := os.CreateTemp(os.Getenv("XDG_RUNTIME_DIR"), "micronode-ui-*.html") // readable by this user only
	if err != nil {
		return fault.Wrap("ui.open", err)
	}
	defer os.Remove(file.Name())
	_, err = fmt.Fprintf(file, "<!doctype html><meta http-equiv=refresh content=\"0; url=%s\"><title>micronode</title>\n", html.EscapeString(link))
	if err := file.Close(); err != nil {
		return fault.Wrap("ui.open", err)
	}
	if err != nil {
		return fault.Wrap("ui.open", err)
	}
	starting, cancel := context.WithTimeout(ctx, browserStart)
	defer cancel()
	if err := exec.CommandContext(starting, opener, file.Name()).Run(); err != nil && starting.Err() == nil {
		return nil // there is no browser after all, and the link has been printed
	}
	_ = flow.Sleep(starting, browserStart) // until the browser has read the file
	return ctx.Err()
}
