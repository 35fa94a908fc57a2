package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/node"
	"micronode/internal/observe"
	"micronode/internal/registry"
	"micronode/internal/terminal"
)

type upgradeCommand struct {
	Check    bool   `help:"Compare only. There is nothing else yet: packages are installed by the package manager."`
	Source   string `arg:"" optional:"" complete:"file" help:"A folder with a release, its URL, or registry:[VERSION] for what the registry of the node has. Without it, the network is not asked."`
	Registry string `placeholder:"b3:…" help:"The ID of the registry whose quorum signs releases."`
	LogKey   string `placeholder:"KEY" help:"The key that signs the log of that registry."`
	nodeFlags
	outputFlags
}

// Help is shown by upgrade --help.
func (upgradeCommand) Help() string {
	return `It compares this program with a release, and verifies who released it: the proof micronode-VERSION.json beside the checksums says that the quorum of a registry approved exactly these checksums. The ID of that registry and the key of its log come from you, because whoever forges a release can also make a registry. Of registry: they are those of the node, which its operator has chosen.

Nothing is changed. The exit code is 0 if the release is verified, or if no source is named; 31 if nobody that you name has signed it; 21 or 40 if the signature or the bytes are wrong.

Examples:

    micronode upgrade --check
    micronode upgrade --check dist --registry b3:… --log-key micronode/registry/…
    micronode upgrade --check https://example.org/micronode/0.2.0 --registry b3:… --log-key micronode/registry/…
    micronode upgrade --check registry:`
}

const upgradeOp = "upgrade"

// upgradeTimeout is how long a source may take in all.
const upgradeTimeout = time.Minute

// upgradeReport is the result of a check.
type upgradeReport struct {
	Here  upgradeHere   `json:"here"`
	Offer *upgradeOffer `json:"offer"` // null if no source was named
}

// upgradeHere is this program.
type upgradeHere struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Platform string `json:"platform"`
	Format   int    `json:"format"` // of the folders that it reads and writes
}

// upgradeOffer is a release that a source has.
type upgradeOffer struct {
	Source    string     `json:"source"`
	Version   string     `json:"version"`
	Order     string     `json:"order"`            // newer, same, older, or unknown
	Format    int        `json:"format,omitempty"` // of its folders; 0 if it is not known
	Checksums b3.Address `json:"checksums"`        // the address of SHA256SUMS
	Archive   string     `json:"archive"`          // for this platform; empty if there is none, or if only the registry was asked
	Compared  bool       `json:"compared"`         // whether the bytes of the archive are those that are listed
	Signature string     `json:"signature"`        // verified, self-named, or none
	Claims    []string   `json:"claims"`           // what was verified
	OnTrust   []string   `json:"on_trust"`         // what could not be verified here
}

// The values of Signature.
const (
	signatureVerified  = "verified"   // by the registry and the key that were named
	signatureSelfNamed = "self-named" // the proof is consistent, but names its registry itself
	signatureNone      = "none"       // there is no proof
)

// Run compares this program with a release.
func (u *upgradeCommand) Run(ctx context.Context, c *console) error {
	if !u.Check {
		return &fault.Error{Op: upgradeOp, Kind: fault.MethodNotAllowed, Detail: "this program does not replace itself",
			Next: "See what would change: micronode upgrade --check SOURCE. Then install the package, or unpack the archive."}
	}
	trust := registry.Trust{Key: u.LogKey}
	if u.Registry != "" {
		id, err := parseAddress(u.Registry)
		if err != nil {
			return err
		}
		trust.Registry = &id
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()

	build := observe.ReadBuild("micronode")
	report := upgradeReport{Here: upgradeHere{Version: build.Version, Commit: build.Commit, Platform: runtime.GOOS + "_" + runtime.GOARCH, Format: node.FolderFormat}}
	if u.Source != "" {
		offer, err := u.offer(ctx, trust)
		if err != nil {
			return withSubject(upgradeOp, u.Source, err)
		}
		offer.Source, offer.Order = u.Source, compareVersions(offer.Version, build.Version)
		report.Offer = offer
	}
	c.printUpgrade(report)
	if report.Offer == nil || report.Offer.Signature == signatureVerified {
		return nil
	}
	if report.Offer.Signature == signatureNone {
		return &fault.Error{Op: upgradeOp, Kind: fault.UnknownSigner, Detail: "the release has no proof: " + proofFile(report.Offer.Version) + " is missing",
			Next: "Get the proof from those who released it, and put it beside " + checksumsFile + ". Without it, nobody answers for these bytes."}
	}
	return &fault.Error{Op: upgradeOp, Kind: fault.UnknownSigner, Detail: "the release is signed by a registry that only its proof names",
		Next: "Give the ID of the registry that signs releases with --registry, and the key of its log with --log-key, as you have them from elsewhere."}
}

// offer reads what the source has, and verifies it.
func (u *upgradeCommand) offer(ctx context.Context, trust registry.Trust) (*upgradeOffer, error) {
	if version, ok := strings.CutPrefix(u.Source, "registry:"); ok {
		n, err := u.dial()
		if err != nil {
			return nil, err
		}
		defer n.Close()
		return offerOfRegistry(ctx, n, version, trust)
	}
	return offerOfFiles(ctx, u.Source, trust)
}

// offerOfRegistry asks the node for a release in its registry; the newest if no
// version is given. Its own log is trusted, unless another was named.
func offerOfRegistry(ctx context.Context, n *client.Client, version string, trust registry.Trust) (*upgradeOffer, error) {
	own, err := n.RegistryLogKey(ctx)
	if err != nil {
		return nil, err
	}
	if trust.Registry == nil {
		trust.Registry = &own.Registry
	}
	trust.Key = cmp.Or(trust.Key, own.Key)
	proof, version, err := findRelease(ctx, n, version)
	if err != nil {
		return nil, err
	}
	offer := &upgradeOffer{Version: version, Claims: []string{}, OnTrust: []string{}}
	return offer, offer.verify(proof, trust, nil)
}

// verify verifies the proof of a release: that a quorum of the registry approved
// it, and that it is about these checksums, if they are at hand.
func (o *upgradeOffer) verify(proof []byte, trust registry.Trust, checksums []byte) error {
	found, err := registry.VerifyBundle(proof, trust)
	if err != nil {
		return withSubject(upgradeOp, proofFile(o.Version), err)
	}
	item, err := releaseIn(found, o.Version)
	if err != nil {
		return err
	}
	if checksums != nil && b3.Of(checksums) != item.Checksums {
		return &fault.Error{Op: upgradeOp, Kind: fault.IntegrityFail, Detail: fmt.Sprintf("%s is not the one that was released: it is %s, and the registry has %s", checksumsFile, b3.Of(checksums), item.Checksums),
			Next: "Do not install it. Get the release anew, from another place if it stays so."}
	}
	o.Checksums = item.Checksums
	o.Claims, o.OnTrust = append(o.Claims, found.Claims...), append(o.OnTrust, found.Caveats...)
	o.Signature = signatureVerified
	if trust.Registry == nil || trust.Key == "" {
		o.Signature = signatureSelfNamed
	}
	return nil
}

// printUpgrade prints what would change.
func (c *console) printUpgrade(r upgradeReport) {
	if c.json {
		c.printJSON(r)
		return
	}
	c.print("here       %s (%s), for %s; folders of format %d\n", r.Here.Version, r.Here.Commit, r.Here.Platform, r.Here.Format)
	o := r.Offer
	if o == nil {
		c.notice("no source was named, so the network was not asked; name one: micronode upgrade --check FOLDER|URL|registry:")
		return
	}
	order := map[string]string{orderNewer: "newer than this program", orderSame: "the version that is here", orderOlder: "older than this program",
		orderUnknown: "this program is not of a release, so it is not known which is newer"}
	c.print("offered    %s: %s\n", sanitize([]byte(o.Version)), order[o.Order])
	switch {
	case o.Format == 0:
		c.print("folders    of a format that is not known: make a backup first\n")
	case o.Format == r.Here.Format:
		c.print("folders    of the same format: the way back is to install the older program\n")
	case o.Format > r.Here.Format:
		c.print("folders    of format %d: micronode migrate converts them, and the way back is a backup from before\n", o.Format)
	default:
		c.print("folders    of format %d: it cannot open those of this program\n", o.Format)
	}
	switch {
	case o.Compared:
		c.print("archive    %s, with the bytes that are listed\n", o.Archive)
	case o.Archive != "":
		c.print("archive    %s, not fetched: compare it with %s\n", o.Archive, checksumsFile)
	case strings.HasPrefix(o.Source, "registry:"):
		c.print("checksums  %s: micronode get fetches the list, if a node has it\n", o.Checksums)
	default:
		c.print("archive    none for %s\n", r.Here.Platform)
	}
	switch o.Signature {
	case signatureVerified:
		c.print("signature  %s\n", c.paint(terminal.Green, "verified"))
	case signatureSelfNamed:
		c.print("signature  %s\n", c.paint(terminal.Yellow, "consistent, by a registry that only the proof names"))
	default:
		c.print("signature  %s\n", c.paint(terminal.Red, "none"))
	}
	for _, claim := range o.Claims {
		c.print("  ✓ %s\n", sanitize([]byte(claim)))
	}
}
