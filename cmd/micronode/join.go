package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/terminal"
)

type inviteCommand struct {
	TTL      time.Duration `name:"ttl" placeholder:"TIME" help:"How long it lasts, such as 1h, which is the default, or 10m."`
	Uses     int           `placeholder:"N" help:"How many nodes may use it; 1 by default."`
	Name     string        `placeholder:"NAME" help:"A name of this node to tell the other one, such as maps."`
	Local    bool          `help:"For nodes on this machine only: the overlay does not listen on other addresses."`
	List     bool          `help:"List the invitations and shares that have not expired."`
	Withdraw string        `placeholder:"ID" help:"Withdraw an invitation or a share that --list shows."`
	nodeFlags
	outputFlags
}

// Help is shown by invite --help.
func (inviteCommand) Help() string {
	return `The string has the addresses and the ID of this node, and a secret that lets one node in. Whoever has the string can use it, so send it to one person. It is shown once, on a terminal also as a QR code.

A node listens for other nodes on loopback only. The first invitation makes it listen on all addresses of the machine, on the same port, as long as an invitation is open or a peer is known that came by one. An address that was set with --overlay stays as it is. --local opens nothing.

Examples:

    micronode invite
    micronode invite --ttl 10m --uses 5 --name maps
    micronode invite --list
    micronode invite --withdraw 1f0c2d3e4f5a6b7c`
}

// Run makes, lists or withdraws invitations.
func (i *inviteCommand) Run(ctx context.Context, c *console) error {
	ttl, err := wholeSeconds("invite", i.TTL)
	if err != nil {
		return err
	}
	node, err := i.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	switch {
	case i.Withdraw != "":
		return node.Withdraw(ctx, i.Withdraw)
	case i.List:
		return c.listInvitations(ctx, node)
	}
	made, err := node.Invite(ctx, client.InvitationRequest{TTL: ttl, Uses: i.Uses, Name: bareName(i.Name), Local: i.Local})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(made)
		return nil
	}
	c.print("%s\n", made.Invitation)
	if c.outTerminal {
		c.printQR(made.Invitation)
	}
	c.notice("on the other machine, type: micronode join %s", made.Invitation)
	c.notice("it is for %s, until %s; %s", terminal.Pluralize(made.Uses, "node"), formatClock(made.Expires), made.Reach)
	return nil
}

// wholeSeconds converts a time for the API; zero is none.
func wholeSeconds(op string, ttl time.Duration) (int64, error) {
	if ttl < 0 || ttl > 0 && ttl < time.Second {
		return 0, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "--ttl is too short", Next: "Give a time of 1s or more, such as 1h."}
	}
	return int64(ttl / time.Second), nil
}

// formatClock is a moment for people on this machine.
func formatClock(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05") }

func (c *console) listInvitations(ctx context.Context, node *client.Client) error {
	list, err := node.Invitations(ctx)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(append([]client.Invitation{}, list...))
		return nil
	case len(list) == 0:
		c.notice("there are no open invitations\nMake one: micronode invite")
		return nil
	}
	rows := [][]string{{"id", "for", "name", "until", "used"}}
	for _, one := range list {
		kind := "peers"
		if one.Share {
			kind = "guests"
		}
		rows = append(rows, []string{sanitize([]byte(one.ID)), kind, textOrDash(one.Name), formatClock(one.Expires), fmt.Sprintf("%d of %d", len(one.UsedBy), one.Uses)})
	}
	c.printTable(rows)
	return nil
}

type joinCommand struct {
	Invitation string `arg:"" help:"The string that micronode invite printed on the other machine. A single - reads it from standard input."`
	nodeFlags
	outputFlags
}

// Help is shown by join --help.
func (joinCommand) Help() string {
	return `Afterwards each node knows the other one and connects to it again by itself: until it stops, or for good if it runs with --persist. Clocks need not agree. If it fails, nothing has changed here.

Examples:

    micronode join mn1_i…
    ssh first micronode invite | micronode join -`
}

// maxInvitationText is how much of standard input is read as an invitation.
const maxInvitationText = 4 << 10

// Run joins the node that made the invitation.
func (j *joinCommand) Run(ctx context.Context, c *console) error {
	text := j.Invitation
	if text == "-" {
		raw, err := c.readAll(ctx, "-", maxInvitationText)
		if err != nil {
			return err
		}
		text = string(raw)
	}
	node, err := j.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	joined, err := node.Join(ctx, text)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(joined)
		return nil
	}
	c.print("joined %s at %s\n", sanitize([]byte(joined.ID)), sanitize([]byte(joined.Addr)))
	switch {
	case joined.Share:
		c.print("for as long as it shares\n")
		c.notice("to fetch what it shares, type: micronode get %s", strings.TrimSpace(text))
	case joined.Kept:
		c.print("for good: this node keeps it\n")
	default:
		c.print("until this node stops: it keeps nothing without --persist\n")
	}
	if joined.Reach != "" {
		c.notice("its other peers are introduced to this node, and reach it: %s (overlay.exchange)", sanitize([]byte(joined.Reach)))
	}
	if joined.Name != "" && !joined.Share {
		name := sanitize([]byte(joined.Name))
		c.print("it offers: name:%s@%s\n", name, sanitize([]byte(joined.ID)))
		c.notice("to fetch that, type: micronode get name:%s@%s -o %s", name, sanitize([]byte(joined.ID)), name)
	}
	return nil
}
