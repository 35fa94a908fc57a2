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
	Mint      tokenMint      `cmd:"" help:"Mint a token at the node."`
	Attenuate tokenAttenuate `cmd:"" help:"Narrow a token, without a node."`
	Show      tokenShow      `cmd:"" help:"Show the scopes and caveats of a token."`
	Revoke    tokenRevoke    `cmd:"" help:"Revoke a token and all tokens derived from it."`
	Revoked   tokenRevoked   `cmd:"" help:"List the revoked tokens that have not expired."`
}

// caveatFlags are the caveats of a token besides its scopes and lifetime.
type caveatFlags struct {
	Path  string   `placeholder:"PREFIX" help:"Only for routes below this path, such as /o."`
	Topic string   `placeholder:"PREFIX" help:"Only for topics below this one."`
	Rate  string   `placeholder:"RATE" help:"At most this rate, such as 10/1s or '10/1s burst 20'."`
	IP    []string `name:"ip" placeholder:"NETWORK" help:"Only for callers from this address or network, such as 10.0.0.0/8. Can be repeated."`
}

// networks parses the networks; a single address is a network of one.
func (c caveatFlags) networks() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range c.IP {
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
	Scope []string      `required:"" placeholder:"SCOPE" complete:"scope" help:"A scope, such as object:put. Can be repeated; admin implies all others."`
	TTL   time.Duration `name:"ttl" required:"" placeholder:"DURATION" help:"The lifetime of the token, such as 90m or 24h."`
	caveatFlags
	nodeFlags
	outputFlags
}

// Help is shown by token mint --help.
func (tokenMint) Help() string {
	return `The token is a secret: it grants its scopes to any holder. It is printed alone, so that it can go into a variable. A node in RAM loses its root at exit, and then all its tokens are void.

Scopes: ` + scopeNames() + `. Those of the mailbox can be narrowed to one box: mbox:send:jobs allows sending to the box jobs only.

Examples:

    micronode token mint --scope object:put --ttl 1h
    micronode token mint --scope mbox:send:jobs --ttl 24h
    MICRO_TOKEN=$(micronode token mint --scope object:put --scope object:rm --ttl 24h --ip 10.0.0.0/8)`
}

func scopeNames() string {
	names := make([]string, 0, len(capability.Scopes()))
	for _, scope := range capability.Scopes() {
		names = append(names, string(scope))
	}
	return strings.Join(names, ", ")
}

// minted is a new token as JSON.
type minted struct {
	Token string `json:"token"`
	capability.Summary
}

// Run mints a token.
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
	Scope []string      `placeholder:"SCOPE" complete:"scope" help:"Keep only these scopes. Can be repeated."`
	TTL   time.Duration `name:"ttl" placeholder:"DURATION" help:"An earlier expiry: this time from now."`
	caveatFlags
	outputFlags
}

// Help is shown by token attenuate --help.
func (tokenAttenuate) Help() string {
	return `Any holder of a token can derive a weaker token from it, without a node. The old token stays valid. A narrowed token cannot be widened.

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

// readToken takes a token from the command line or from standard input. From
// standard input it reads one line, up to the maximum length of a token.
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
	outputFlags
}

// Help is shown by token show --help.
func (tokenShow) Help() string {
	return `The token is decoded, not verified: only the node that minted it can verify it. The output is not secret.

Example:

    echo "$MICRO_TOKEN" | micronode token show`
}

// Run prints the contents of a token.
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
	c.print("identifier %s\n", summary.ID)
	for _, caveat := range summary.Caveats {
		c.print("  %s\n", caveat)
	}
	if summary.Unknown > 0 {
		c.print("this version does not know %d of these, so that its nodes refuse the token\n", summary.Unknown)
	}
	if !summary.Expires.IsZero() && !time.Now().Before(summary.Expires) {
		c.print("it has expired\n")
	}
	return nil
}

type tokenRevoke struct {
	Which string `arg:"" optional:"" name:"id" help:"The identifier of the token (micronode token show prints it), or the token. Without it, or if it is -, it is read from standard input, where no other user of the machine can see it."`
	nodeFlags
	outputFlags
}

// Help is shown by token revoke --help.
func (tokenRevoke) Help() string {
	return `The node refuses the token from now on, and every token narrowed or minted from it; its parent stays valid. Processes of a node with the same auth.root exchange revocations within five seconds. With --persist the revocation survives a restart. It is removed when the token would have expired.

Examples:

    echo "$LEAKED" | micronode token revoke
    micronode token revoke 3f0c4e7d1b2a69588c7d6e5f40312233`
}

// Run revokes a token.
func (t *tokenRevoke) Run(ctx context.Context, c *console) error {
	which, err := c.readToken(t.Which)
	if err != nil {
		return err
	}
	ask := client.RevokeRequest{ID: which}
	if strings.HasPrefix(which, capability.Prefix) {
		ask = client.RevokeRequest{Token: which}
	}
	node, err := t.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	done, err := node.RevokeToken(ctx, ask)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(done)
		return nil
	}
	c.print("revoked %s\n", done)
	if !done.Kept {
		c.print("The node runs in RAM: after a restart with the same auth.root, the token is valid again.\n")
	}
	return nil
}

type tokenRevoked struct {
	nodeFlags
	outputFlags
}

// Help is shown by token revoked --help.
func (tokenRevoked) Help() string {
	return `Each line is the identifier of a token and its expiry.

Example:

    micronode token revoked`
}

// Run lists the revoked tokens.
func (t *tokenRevoked) Run(ctx context.Context, c *console) error {
	node, err := t.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	list, err := node.RevokedTokens(ctx)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(list)
		return nil
	}
	for _, one := range list {
		c.print("%s\n", one)
	}
	return nil
}
