package nearby

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"micronode/fault"
	"micronode/internal/oap"
)

// What a node calls itself: its service, and below it an instance whose name is
// its peer ID.
const (
	Service  = "_micronode._tcp.local."
	services = "_services._dns-sd._udp.local." // who lists services asks for this name
)

// How long others may remember what is said here, in seconds; zero says goodbye.
const (
	lifetime = 180
	maxTTL   = 600 // what is taken of others
)

// The bounds of a packet.
const (
	maxPacket  = 1500
	maxRecords = 64 // of a packet of others; the rest is not read
)

// cacheFlush marks the records of which there is one sender only.
const cacheFlush = 1 << 15

// claim is what a packet says of a node.
type claim struct {
	id   oap.PeerID
	port uint16
	ttl  uint32
}

// parsed is what a packet says that matters here.
type parsed struct {
	asks   bool // for the nodes of this service, or for this one
	claims []claim
	bad    int // records of this service that make no sense
}

var errPacket = fault.New("overlay.nearby", fault.Malformed, "the packet is not DNS")

// parse reads a packet. Names of other services are passed over: every printer
// sends them.
func parse(packet []byte, self string) (p parsed, err error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(packet)
	if err != nil || header.OpCode != 0 || header.RCode != dnsmessage.RCodeSuccess {
		return p, errPacket
	}
	for range maxRecords {
		q, err := parser.Question()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil {
			return p, errPacket
		}
		if name := strings.ToLower(q.Name.String()); !header.Response && (name == Service || name == services || name == self+"."+Service || name == host(self)) {
			p.asks = true
		}
	}
	if !header.Response || parser.SkipAllQuestions() != nil {
		return p, nil
	}
	read := 0
	err = p.records(&parser, &read, parser.AnswerHeader, parser.SkipAnswer)
	if err == nil && parser.SkipAllAuthorities() == nil { // a response of multicast DNS has none
		err = p.records(&parser, &read, parser.AdditionalHeader, parser.SkipAdditional)
	}
	return p, err
}

// records reads the records of a section, and of them those that say where an
// instance of this service is.
func (p *parsed) records(parser *dnsmessage.Parser, read *int, next func() (dnsmessage.ResourceHeader, error), skip func() error) error {
	for ; *read < maxRecords; *read++ {
		header, err := next()
		if err == dnsmessage.ErrSectionDone {
			return nil
		}
		if err != nil {
			return errPacket
		}
		instance, ours := strings.CutSuffix(strings.ToLower(header.Name.String()), "."+Service)
		if !ours || header.Type != dnsmessage.TypeSRV {
			if skip() != nil {
				return errPacket
			}
			continue
		}
		srv, err := parser.SRVResource()
		if err != nil {
			return errPacket
		}
		id, err := oap.ParsePeerID(instance)
		if err != nil || srv.Port == 0 || header.Class&^cacheFlush != dnsmessage.ClassINET {
			p.bad++
			continue
		}
		p.claims = append(p.claims, claim{id: id, port: srv.Port, ttl: min(header.TTL, maxTTL)})
	}
	return nil
}

func host(self string) string { return self + ".local." }

// query asks for the nodes of this service.
func query() []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{})
	b.EnableCompression()
	name := dnsmessage.MustNewName(Service)
	if b.StartQuestions() != nil || b.Question(dnsmessage.Question{Name: name, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET}) != nil {
		return nil // never: the question is always the same
	}
	packet, _ := b.Finish()
	return packet
}

// announcement says where this node is: in one packet all that who hears it needs.
func announcement(self string, port uint16, addrs []netip.Addr, ttl uint32) ([]byte, error) {
	instance, err := dnsmessage.NewName(self + "." + Service)
	if err != nil {
		return nil, err
	}
	at, err := dnsmessage.NewName(host(self))
	if err != nil {
		return nil, err
	}
	shared := func(name string) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: ttl}
	}
	own := func(name dnsmessage.Name) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET | cacheFlush, TTL: ttl}
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{Response: true, Authoritative: true})
	b.EnableCompression()
	for _, add := range []func() error{
		b.StartAnswers,
		func() error {
			return b.PTRResource(shared(services), dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(Service)})
		},
		func() error { return b.PTRResource(shared(Service), dnsmessage.PTRResource{PTR: instance}) },
		func() error { return b.SRVResource(own(instance), dnsmessage.SRVResource{Port: port, Target: at}) },
		func() error { return b.TXTResource(own(instance), dnsmessage.TXTResource{TXT: []string{"txtvers=1"}}) },
	} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		if err := b.AResource(own(at), dnsmessage.AResource{A: addr.As4()}); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}
