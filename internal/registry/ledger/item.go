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

// SignersID is the id of the one item that says who may approve.
const SignersID = "signers"

const (
	maxID         = 253
	maxAddrs      = 16
	maxTitle      = 256
	maxLabels     = 32
	maxLabelName  = 63
	maxLabelValue = 256
)

// Item is one thing that the registry says. It is read-only.
type Item struct {
	ID   string
	Kind string
	JSON []byte     // canonical
	Hash b3.Address // of JSON
}

// Node is what an item of the kind node says.
type Node struct {
	PeerID oap.PeerID
	Addrs  []string
	Region string // empty if it names none
}

// Region is what an item of the kind region says.
type Region struct {
	Title, Parent string // empty if not given
	Labels        map[string]string
}

// ParseItem reads an item in any spelling of JSON and holds it against the
// schema of its kind.
func ParseItem(data []byte) (Item, error) {
	value, err := readJSON("registry.item", data)
	if err != nil {
		return Item{}, err
	}
	return itemOf("registry.item", "", value)
}

// itemOf holds a value against the schema of its kind.
func itemOf(op, path string, value any) (Item, error) {
	f := openForm(op, path, value)
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
	if err := f.end(); err != nil {
		return Item{}, err
	}
	item.JSON = appendValue(nil, value)
	item.Hash = b3.Of(item.JSON)
	return item, nil
}

// form opens an item that was held against its schema before.
func (i Item) form(kind string) (*form, bool) {
	if i.Kind != kind {
		return nil, false
	}
	value, err := readJSON("registry.item", i.JSON)
	return openForm("registry.item", "", value), err == nil
}

// Node returns what a node's item says; false for other kinds.
func (i Item) Node() (Node, bool) {
	f, ok := i.form(KindNode)
	if !ok {
		return Node{}, false
	}
	return f.node(), true
}

// Manifest returns the address that a name stands for; false for other kinds.
func (i Item) Manifest() (b3.Address, bool) {
	f, ok := i.form(KindName)
	if !ok {
		return b3.Address{}, false
	}
	return f.address("manifest"), true
}

// Region returns what a region's item says; false for other kinds.
func (i Item) Region() (Region, bool) {
	f, ok := i.form(KindRegion)
	if !ok {
		return Region{}, false
	}
	return f.region(i.ID), true
}

// SignerSet returns what the signers' item says; false for other kinds.
func (i Item) SignerSet() (SignerSet, bool) {
	f, ok := i.form(KindSigners)
	if !ok {
		return SignerSet{}, false
	}
	return f.signers(), true
}

func (f *form) node() Node {
	text := f.text("peer_id")
	peer, err := oap.ParsePeerID(text)
	if err != nil {
		f.fail("peer_id", "must be the 52 characters of a peer ID")
	}
	n := Node{PeerID: peer}
	for i, value := range f.list("addrs", 0, maxAddrs) {
		addr, _ := value.(string)
		if !hostPort(addr) {
			f.fail("addrs", "holds %s, which is not host:port with a host in lower case", quote(addr))
		}
		for _, earlier := range n.Addrs[:i] {
			if earlier == addr {
				f.fail("addrs", "holds %s twice", quote(addr))
			}
		}
		n.Addrs = append(n.Addrs, addr)
	}
	if _, given := f.optional("region"); given {
		n.Region = f.id("region", maxID)
	}
	return n
}

func (f *form) region(id string) Region {
	var r Region
	if _, given := f.optional("title"); given {
		if r.Title = f.text("title"); r.Title == "" || !readable(r.Title, maxTitle) {
			f.fail("title", "must be 1 to %d bytes of visible text", maxTitle)
		}
	}
	if _, given := f.optional("parent"); given {
		if r.Parent = f.id("parent", maxID); r.Parent == id {
			f.fail("parent", "must be another region")
		}
	}
	if value, given := f.optional("labels"); given {
		r.Labels = f.labels(value)
	}
	return r
}

func (f *form) labels(value any) map[string]string {
	pairs, ok := value.(object)
	if !ok || len(pairs) > maxLabels {
		f.fail("labels", "must be an object of at most %d texts", maxLabels)
		return nil
	}
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		text, ok := pair.value.(string)
		if !ok || !readable(text, maxLabelValue) || !labelName(pair.name) {
			f.fail("labels", "holds %s: names are a to z, 0 to 9 and ._/- (at most %d), values visible text of at most %d bytes",
				quote(pair.name), maxLabelName, maxLabelValue)
		}
		labels[pair.name] = text
	}
	return labels
}

func labelName(name string) bool {
	for i := range len(name) {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789._/-", rune(name[i])) {
			return false
		}
	}
	return name != "" && len(name) <= maxLabelName
}

// id reads the name of something, in the grammar of ids.
func (f *form) id(name string, limit int) string {
	id := f.text(name)
	if reason := badID(id, limit); reason != "" {
		f.fail(name, "%s %s", quote(id), reason)
	}
	return id
}

// badID says what is wrong with an id, and nothing if it is a good one.
func badID(id string, limit int) string {
	if id == "" || len(id) > limit {
		return "must be 1 to " + strconv.Itoa(limit) + " bytes long"
	}
	if plainID(id) {
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

// plainID is the answer for most ids, at once.
func plainID(id string) bool {
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// readable is text that people see in full: no control characters, nothing
// that changes the direction of writing or has no width.
func readable(text string, limit int) bool {
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

// hostPort is an IP address or a DNS name in its one spelling, and a port.
func hostPort(addr string) bool {
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
	return hostName(host)
}

func hostName(host string) bool {
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

// sameKind says whether an id that is taken may be taken by another kind: never.
func sameKind(before *Item, item Item) error {
	if before != nil && before.Kind != item.Kind {
		return refuse("registry.item", fault.Conflict,
			"Choose another id, or delete the item in one version and put the new one in the next.",
			"%s is a %s and cannot become a %s", quote(item.ID), before.Kind, item.Kind)
	}
	return nil
}
