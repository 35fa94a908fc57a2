package ask

import (
	"bytes"
	"math"
	"time"
	"unicode/utf8"

	"micronode/internal/oap"
)

// Question is what a peer is asked.
type Question struct {
	Obj  string // "b3:…", or "name:docs@" and a peer ID
	Most int    // how many providers are wanted, at most 32
}

// Found is what a node knows. Both parts may be missing. The JSON is for other
// processes of the same node.
type Found struct {
	Providers []Provider `json:"providers"`
	Record    []byte     `json:"record,omitempty"` // of the name, as its owner signed it
}

// Provider is a node that is said to have the object.
type Provider struct {
	ID      string        `json:"id"`
	Overlay []string      `json:"overlay,omitempty"` // its addresses
	HTTP    []string      `json:"http,omitempty"`    // the same
	Region  string        `json:"region,omitempty"`
	Age     time.Duration `json:"age_ns"` // since it was last seen
}

// maxAgeSeconds is how many seconds fit into a Duration.
const maxAgeSeconds = uint64(math.MaxInt64 / time.Second)

// foundFromMessage copies a message into a Found.
func foundFromMessage(m *oap.Found) Found {
	found := Found{Record: bytes.Clone(m.Record)}
	for _, p := range m.Providers {
		found.Providers = append(found.Providers, Provider{
			ID: p.ID, Overlay: p.Overlay, HTTP: p.HTTP, Region: p.Region, Age: time.Duration(min(p.Age, maxAgeSeconds)) * time.Second,
		})
	}
	return found
}

// toMessage returns what is known, as far as it may be sent: at most most
// providers, in a payload of at most room bytes.
func (f Found) toMessage(most, room int) *oap.Found {
	m := &oap.Found{Providers: []oap.Provider{}}
	if len(f.Record) <= oap.MaxRecord {
		m.Record = f.Record
	}
	for _, p := range f.Providers {
		if len(m.Providers) == most {
			break
		}
		if !isSendable(p.ID, oap.MaxProviderText) {
			continue
		}
		one := oap.Provider{ID: p.ID, Overlay: sendableAddrs(p.Overlay), HTTP: sendableAddrs(p.HTTP), Age: uint64(max(p.Age, 0) / time.Second)}
		if isSendable(p.Region, oap.MaxProviderText) {
			one.Region = p.Region
		}
		m.Providers = append(m.Providers, one)
		if messageSize(m) > room {
			m.Providers = m.Providers[:len(m.Providers)-1]
			break
		}
	}
	return m
}

// sendableAddrs returns the addresses that may be sent.
func sendableAddrs(addresses []string) []string {
	list := []string{}
	for _, address := range addresses {
		if isSendable(address, oap.MaxAddr) && len(list) < oap.MaxAddrs {
			list = append(list, address)
		}
	}
	return list
}

// isSendable reports whether a text can be sent in a field of at most limit
// bytes.
func isSendable(text string, limit int) bool {
	return text != "" && len(text) <= limit && utf8.ValidString(text)
}

// messageSize returns how many bytes an answer takes, or a few more than that.
func messageSize(answer oap.Message) int {
	const frame, each, text = 128, 48, 3
	switch m := answer.(type) {
	case *oap.Error:
		return frame + len(m.Msg)
	case *oap.Found:
		n := frame + len(m.Record)
		for _, p := range m.Providers {
			n += each + len(p.ID) + len(p.Region)
			for _, list := range [][]string{p.Overlay, p.HTTP} {
				for _, address := range list {
					n += text + len(address)
				}
			}
		}
		return n
	}
	return frame
}
