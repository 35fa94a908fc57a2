package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
)

type tokenCommand struct {
	Mint      tokenMint      `cmd:"" help:"Ask the node for a new token."`
	Attenuate tokenAttenuate `cmd:"" help:"Narrow a token, without asking anybody."`
	Show      tokenShow      `cmd:"" help:"Read what a token is good for."`
}

// narrowing is what can be said about a token besides its scopes and lifetime.
type narrowing struct {
	Path  string   `placeholder:"PREFIX" help:"Only for routes below this path, such as /o."`
	Topic string   `placeholder:"PREFIX" help:"Only for topics below this one."`
	Rate  string   `placeholder:"RATE" help:"Only so often, such as 10/1s or '10/1s burst 20'."`
	IP    []string `name:"ip" placeholder:"NETWORK" help:"Only for callers from this address or network, such as 10.0.0.0/8. Can be repeated."`
}

// networks reads the addresses; a single one is the network of itself.
func (n narrowing) networks() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range n.IP {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			var single netip.Addr
			if single, err = netip.ParseAddr(text); err == nil {
				network, err = single.Prefix(single.BitLen())
			}
		}
		if err != nil {
			return nil, &fault.Error{Op: "token", Kind: fault.Malformed, Detail: fmt.Sprintf("--ip %q is neither an address nor a network", text),
				Next: "Write it as 10.1.2.3 or 10.0.0.0/8 or 2001:db8::/32."}
		}
		list = append(list, network)
	}
	return list, nil
}

type tokenMint struct {
	Scope []string      `required:"" placeholder:"SCOPE" complete:"scope" help:"What may be done, such as object:put. Can be repeated; admin implies all others."`
	TTL   time.Duration `name:"ttl" required:"" placeholder:"DURATION" help:"How long the token lasts, such as 90m or 24h."`
	narrowing
	target
	printing
}

// Help is shown by token mint --help.
func (tokenMint) Help() string {
	return `The token is a secret: whoever has it may do what it says. It is printed alone, so that it can go into a variable. A node in RAM forgets its root at exit, and then all its tokens are void.

Scopes: ` + scopeNames() + `.

Examples:

    micronode token mint --scope object:put --ttl 1h
    MICRO_TOKEN=$(micronode token mint --scope object:put --scope object:rm --ttl 24h --ip 10.0.0.0/8)`
}

func scopeNames() string {
	names := make([]string, 0, len(capability.Scopes()))
	for _, scope := range capability.Scopes() {
		names = append(names, string(scope))
	}
	return strings.Join(names, ", ")
}

// minted is a new token, for a program.
type minted struct {
	Token string `json:"token"`
	capability.Summary
}

// Run asks for a token.
func (t *tokenMint) Run(ctx context.Context, c *console) error {
	networks, err := t.networks()
	if err != nil {
		return err
	}
	want := client.MintRequest{Scopes: t.Scope, TTL: t.TTL, PathPrefix: t.Path, TopicPrefix: t.Topic, Rate: t.Rate}
	for _, network := range networks {
		want.Clients = append(want.Clients, network.String())
	}
	node, err := t.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	token, err := node.MintToken(ctx, want)
	if err != nil {
		return err
	}
	return c.minted(token)
}

func (c *console) minted(token string) error {
	if !c.json {
		c.print("%s\n", token)
		return nil
	}
	summary, err := capability.Inspect(token)
	c.printJSON(minted{token, summary})
	return err
}

type tokenAttenuate struct {
	Token string        `arg:"" optional:"" help:"The token. Without it, or if it is -, it is read from standard input, where no other user of the machine can see it."`
	Scope []string      `placeholder:"SCOPE" complete:"scope" help:"Leave only these scopes. Can be repeated."`
	TTL   time.Duration `name:"ttl" placeholder:"DURATION" help:"Let it end earlier: so long from now."`
	narrowing
	printing
}

// Help is shown by token attenuate --help.
func (tokenAttenuate) Help() string {
	return `Whoever holds a token can make a weaker one of it to pass on. No node is asked, and the old token stays good. What was narrowed cannot be widened again.

Example:

    echo "$MICRO_TOKEN" | micronode token attenuate --scope object:put --ttl 10m`
}

// Run narrows a token.
func (t *tokenAttenuate) Run(c *console) error {
	caveats, err := t.caveats()
	if err != nil {
		return err
	}
	token, err := c.readToken(t.Token)
	if err != nil {
		return err
	}
	narrowed, err := capability.Attenuate(token, caveats)
	if err != nil {
		return err
	}
	return c.minted(narrowed)
}

func (t *tokenAttenuate) caveats() (c capability.Caveats, err error) {
	if c.Clients, err = t.networks(); err != nil {
		return c, err
	}
	for _, name := range t.Scope {
		scope, err := capability.ParseScope(name)
		if err != nil {
			return c, err
		}
		c.Scopes = append(c.Scopes, scope)
	}
	if t.Rate != "" {
		if c.Rate, err = capability.ParseRate(t.Rate); err != nil {
			return c, err
		}
	}
	if t.Path != "" {
		c.Paths = []string{t.Path}
	}
	if t.Topic != "" {
		c.Topics = []string{t.Topic}
	}
	if t.TTL != 0 {
		c.Expires = time.Now().Add(t.TTL)
	}
	return c, nil
}

// readToken takes a token from the command line or from standard input. Of the
// latter one line is read, as far as a token can be long.
func (c *console) readToken(given string) (string, error) {
	if given != "" && given != "-" {
		return given, nil
	}
	if c.inTerminal {
		fmt.Fprint(c.err, "token: ")
	}
	line, err := bufio.NewReader(io.LimitReader(c.in, capability.MaxToken+2)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fault.Wrap("token.read", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", &fault.Error{Op: "token.read", Kind: fault.Malformed, Detail: "no token was given",
			Next: "Give it on standard input: echo \"$MICRO_TOKEN\" | micronode token …"}
	}
	return line, nil
}

type tokenShow struct {
	Token string `arg:"" optional:"" help:"The token. Without it, or if it is -, it is read from standard input."`
	printing
}

// Help is shown by token show --help.
func (tokenShow) Help() string {
	return `The token is read, not verified: only the node that minted it can tell whether it is genuine. What is printed is no secret.

Example:

    echo "$MICRO_TOKEN" | micronode token show`
}

// Run prints what a token says about itself.
func (t *tokenShow) Run(c *console) error {
	token, err := c.readToken(t.Token)
	if err != nil {
		return err
	}
	summary, err := capability.Inspect(token)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(summary)
		return nil
	}
	c.print("not verified; minted under the root %s\n", summary.Root)
	for _, caveat := range summary.Caveats {
		c.print("  %s\n", caveat)
	}
	if summary.Unknown > 0 {
		c.print("%d of these are not known to this version, so its nodes refuse the token\n", summary.Unknown)
	}
	if !summary.Expires.IsZero() && !time.Now().Before(summary.Expires) {
		c.print("it has expired\n")
	}
	return nil
}
