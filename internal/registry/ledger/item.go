package ledger

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// The kinds of items.
const (
	KindNode    = "node"
	KindName    = "name"
	KindRegion  = "region"
	KindSigners = "signers"
)

// SignersID is the id of the one item that holds the signer set.
const SignersID = "signers"

const (
	maxID         = 253
	maxAddrs      = 16
	maxTitle      = 256
	maxLabels     = 32
	maxLabelName  = 63
	maxLabelValue = 256
)

// Item is one entry of the registry. It is read-only.
type Item struct {
	ID   string
	Kind string
	JSON []byte     // canonical
	Hash b3.Address // of JSON
}

// Node is the content of an item of the kind node.
type Node struct {
	PeerID oap.PeerID
	Addrs  []string
	Region string // empty if not given
}

// Region is the content of an item of the kind region.
type Region struct {
	Title, Parent string // empty if not given
	Labels        map[string]string
}

// ParseItem reads an item in any valid JSON encoding and validates it against
// the schema of its kind.
func ParseItem(data []byte) (Item, error) {
	value, err := readJSON("registry.item", data)
	if err != nil {
		return Item{}, err
	}
	return itemOf("registry.item", "", value)
}

// itemOf validates a value against the schema of its kind.
func itemOf(op, path string, value any) (Item, error) {
	f := newObjectDecoder(op, path, value)
	item := Item{ID: f.id("id", maxID)}
	switch f.text("kind") {
	case KindNode:
		item.Kind = KindNode
		f.node()
	case KindName:
		item.Kind = KindName
		f.address("manifest")
	case KindRegion:
		item.Kind = KindRegion
		f.region(item.ID)
	case KindSigners:
		item.Kind = KindSigners
		if f.signers(); item.ID != SignersID {
			f.fail("id", "must be %q for the signer set: there is one", SignersID)
		}
	default:
		f.fail("kind", "must be node, name, region or signers")
	}
	if err := f.finish(); err != nil {
		return Item{}, err
	}
	item.JSON = appendValue(nil, value)
	item.Hash = b3.Of(item.JSON)
	return item, nil
}

// decoder opens an item that was validated before.
func (i Item) decoder(kind string) (*objectDecoder, bool) {
	if i.Kind != kind {
		return nil, false
	}
	value, err := readJSON("registry.item", i.JSON)
	return newObjectDecoder("registry.item", "", value), err == nil
}

// Node returns the content of a node; false for other kinds.
func (i Item) Node() (Node, bool) {
	f, ok := i.decoder(KindNode)
	if !ok {
		return Node{}, false
	}
	return f.node(), true
}

// Manifest returns the address that a name points to; false for other kinds.
func (i Item) Manifest() (b3.Address, bool) {
	f, ok := i.decoder(KindName)
	if !ok {
		return b3.Address{}, false
	}
	return f.address("manifest"), true
}

// Region returns the content of a region; false for other kinds.
func (i Item) Region() (Region, bool) {
	f, ok := i.decoder(KindRegion)
	if !ok {
		return Region{}, false
	}
	return f.region(i.ID), true
}

// SignerSet returns the signer set; false for other kinds.
func (i Item) SignerSet() (SignerSet, bool) {
	f, ok := i.decoder(KindSigners)
	if !ok {
		return SignerSet{}, false
	}
	return f.signers(), true
}

func (o *objectDecoder) node() Node {
	text := o.text("peer_id")
	peer, err := oap.ParsePeerID(text)
	if err != nil {
		o.fail("peer_id", "must be the 52 characters of a peer ID")
	}
	n := Node{PeerID: peer}
	for i, value := range o.list("addrs", 0, maxAddrs) {
		addr, _ := value.(string)
		if !isHostPort(addr) {
			o.fail("addrs", "holds %s, which is not host:port with a host in lower case", quote(addr))
		}
		for _, earlier := range n.Addrs[:i] {
			if earlier == addr {
				o.fail("addrs", "holds %s twice", quote(addr))
			}
		}
		n.Addrs = append(n.Addrs, addr)
	}
	if _, given := o.optional("region"); given {
		n.Region = o.id("region", maxID)
	}
	return n
}

func (o *objectDecoder) region(id string) Region {
	var r Region
	if _, given := o.optional("title"); given {
		if r.Title = o.text("title"); r.Title == "" || !isVisibleText(r.Title, maxTitle) {
			o.fail("title", "must be 1 to %d bytes of visible text", maxTitle)
		}
	}
	if _, given := o.optional("parent"); given {
		if r.Parent = o.id("parent", maxID); r.Parent == id {
			o.fail("parent", "must be another region")
		}
	}
	if value, given := o.optional("labels"); given {
		r.Labels = o.labels(value)
	}
	return r
}

func (o *objectDecoder) labels(value any) map[string]string {
	pairs, ok := value.(object)
	if !ok || len(pairs) > maxLabels {
		o.fail("labels", "must be an object of at most %d texts", maxLabels)
		return nil
	}
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		text, ok := pair.value.(string)
		if !ok || !isVisibleText(text, maxLabelValue) || !isLabelName(pair.name) {
			o.fail("labels", "holds %s: names are a to z, 0 to 9 and ._/- (at most %d), values visible text of at most %d bytes",
				quote(pair.name), maxLabelName, maxLabelValue)
		}
		labels[pair.name] = text
	}
	return labels
}

func isLabelName(name string) bool {
	for i := range len(name) {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789._/-", rune(name[i])) {
			return false
		}
	}
	return name != "" && len(name) <= maxLabelName
}

// id reads a name in the grammar of ids.
func (o *objectDecoder) id(name string, limit int) string {
	id := o.text(name)
	if reason := idProblem(id, limit); reason != "" {
		o.fail(name, "%s %s", quote(id), reason)
	}
	return id
}

// idProblem describes what is wrong with an id, and is empty for a valid one.
func idProblem(id string, limit int) string {
	if id == "" || len(id) > limit {
		return "must be 1 to " + strconv.Itoa(limit) + " bytes long"
	}
	if isPlainID(id) {
		return ""
	}
	for _, c := range id {
		if !unicode.IsGraphic(c) || unicode.IsSpace(c) || c == utf8.RuneError {
			return "must not hold white space, control or invisible characters"
		}
	}
	if strings.ToLower(id) != id {
		return "must be in lower case"
	}
	if !norm.NFC.IsNormalString(id) {
		return "must be in Unicode's normal form NFC"
	}
	return ""
}

// isPlainID accepts the most common ids quickly.
func isPlainID(id string) bool {
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// isVisibleText reports whether people see all of a text: it has no control
// characters and nothing that changes the direction of writing or has no width.
func isVisibleText(text string, limit int) bool {
	if len(text) > limit || !norm.NFC.IsNormalString(text) {
		return false
	}
	for _, c := range text {
		if !unicode.IsGraphic(c) || c == utf8.RuneError {
			return false
		}
	}
	return true
}

// isHostPort reports whether addr is an IP address or a DNS name in its
// canonical form, and a port.
func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || net.JoinHostPort(host, port) != addr {
		return false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || strconv.FormatUint(number, 10) != port {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == "" && ip.String() == host
	}
	return isHostName(host)
}

func isHostName(host string) bool {
	if host == "" || len(host) > maxID {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return true
}

// checkSameKind rejects an item that would change the kind of an existing id.
func checkSameKind(before *Item, item Item) error {
	if before != nil && before.Kind != item.Kind {
		return refuse("registry.item", fault.Conflict,
			"Choose another id, or delete the item in one version and put the new one in the next.",
			"%s is a %s and cannot become a %s", quote(item.ID), before.Kind, item.Kind)
	}
	return nil
}
