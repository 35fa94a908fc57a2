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

// Found is what a node knows. Both parts may be missing: it knows of nobody.
type Found struct {
	Providers []Provider
	Record    []byte // of the name, as its owner signed it
}

// Provider is a node that is said to have the object.
type Provider struct {
	ID            string
	Overlay, HTTP []string // where it can be reached
	Region        string
	Age           time.Duration // since it was last heard of
}

// longestAge is how many seconds fit into a Duration.
const longestAge = uint64(math.MaxInt64 / time.Second)

// foundIn is what a message says, in memory of its own.
func foundIn(m *oap.Found) Found {
	found := Found{Record: bytes.Clone(m.Record)}
	for _, p := range m.Providers {
		found.Providers = append(found.Providers, Provider{
			ID: p.ID, Overlay: p.Overlay, HTTP: p.HTTP, Region: p.Region, Age: time.Duration(min(p.Age, longestAge)) * time.Second,
		})
	}
	return found
}

// message is what is known, as far as it may be sent: so many providers, in a
// payload of so many bytes.
func (f Found) message(most, room int) *oap.Found {
	m := &oap.Found{Providers: []oap.Provider{}}
	if len(f.Record) <= oap.MaxRecord {
		m.Record = f.Record
	}
	for _, p := range f.Providers {
		if len(m.Providers) == most {
			break
		}
		if !fits(p.ID, oap.MaxName) {
			continue
		}
		one := oap.Provider{ID: p.ID, Overlay: usable(p.Overlay), HTTP: usable(p.HTTP), Age: uint64(max(p.Age, 0) / time.Second)}
		if fits(p.Region, oap.MaxName) {
			one.Region = p.Region
		}
		m.Providers = append(m.Providers, one)
		if weigh(m) > room {
			m.Providers = m.Providers[:len(m.Providers)-1]
			break
		}
	}
	return m
}

// usable is the addresses that may be sent.
func usable(addresses []string) []string {
	list := []string{}
	for _, address := range addresses {
		if fits(address, oap.MaxAddress) && len(list) < oap.MaxAddresses {
			list = append(list, address)
		}
	}
	return list
}

// fits tells whether a text can be sent where there is room for so many bytes.
func fits(text string, most int) bool {
	return text != "" && len(text) <= most && utf8.ValidString(text)
}

// weigh is how many bytes an answer takes, or a few more than that.
func weigh(answer oap.Message) int {
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
