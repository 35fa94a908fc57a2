package flow_test

import (
	"testing"

	"pgregory.net/rapid"

	"micronode/internal/flow"
)

// Whatever is pushed, offered and taken, in whatever order: the bounds hold,
// nothing is lost or comes twice, each class is in order, two classes that both
// wait get the same, and only items of the richest are evicted.
func TestFairAgainstLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]flow.Policy{flow.RejectNew, flow.DropOldest})
		bound := func(name string, policy flow.Policy) flow.BandSpec {
			return flow.BandSpec{
				Name: name, Cap: rapid.IntRange(1, 12).Draw(t, name+" cap"),
				Bytes: rapid.OneOf(rapid.IntRange(1, 100), rapid.Just(1000)).Draw(t, name+" bytes"), Policy: policy,
			}
		}
		m := newFairModel(rapid.IntRange(1, 20).Draw(t, "quantum"), bound("control", flow.RejectNew),
			bound("gossip", policy.Draw(t, "gossip policy")), bound("chunks", policy.Draw(t, "chunks policy")))
		parcel := func(t *rapid.T, band int) flow.FairItem[int] {
			class := rapid.Uint64Range(1, 6).Draw(t, "class")
			// Each class has items of its own size, so that a bound for one is no
			// bound for another.
			return m.newItem(band, class, rapid.IntRange(0, 4*int(class)).Draw(t, "cost"))
		}
		band := rapid.IntRange(0, 2)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) { m.push(t, parcel(t, band.Draw(t, "band"))) },
			"offer": func(t *rapid.T) {
				b := band.Draw(t, "band")
				m.offer(t, b, []flow.FairItem[int]{parcel(t, b)})
			},
			"offer a batch": func(t *rapid.T) {
				b := band.Draw(t, "band")
				var batch []flow.FairItem[int]
				for range rapid.IntRange(2, 8).Draw(t, "items") {
					batch = append(batch, parcel(t, b))
				}
				m.offer(t, b, batch)
			},
			"take": func(t *rapid.T) {
				m.take(t, rapid.IntRange(1, 6).Draw(t, "items"), rapid.IntRange(0, 40).Draw(t, "bytes"))
			},
			"withdraw": func(t *rapid.T) { m.withdraw(t, rapid.IntRange(max(1, m.serial-12), max(1, m.serial)).Draw(t, "item")) },
			"take one": func(t *rapid.T) { m.take(t, 1, 1) },
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 19).Draw(t, "rarely") == 0 {
					m.close()
				}
			},
			"": func(t *rapid.T) { m.check(t) },
		})
	})
}

// With room for all classes nothing is evicted and classes wait long, which is
// where an unfair share would add up.
func TestFairShareOfThoseWhoWaitLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := flow.BandSpec{Name: "gossip", Cap: 1000, Bytes: 1 << 20}
		m := newFairModel(rapid.IntRange(1, 40).Draw(t, "quantum"), flow.BandSpec{Name: "control", Cap: 1, Bytes: 1}, bound)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			class := rapid.Uint64Range(1, 4).Draw(t, "class")
			if rapid.IntRange(0, 9).Draw(t, "push or take") < 6 {
				m.offer(t, 1, []flow.FairItem[int]{m.newItem(1, class, rapid.IntRange(1, 12*int(class)).Draw(t, "cost"))})
				continue
			}
			m.take(t, rapid.IntRange(1, 5).Draw(t, "items"), rapid.IntRange(1, 100).Draw(t, "bytes"))
		}
		for len(m.waiting) > 0 {
			m.take(t, rapid.IntRange(1, 5).Draw(t, "items"), rapid.IntRange(1, 100).Draw(t, "bytes"))
		}
		m.check(t)
	})
}

// FuzzFair is the scheduler of the gossip lanes under random enqueue and dequeue
// at its cap: each pair of bytes is a step.
func FuzzFair(f *testing.F) {
	f.Add([]byte("gossip lane scheduler"))
	f.Add([]byte{0, 9, 0x21, 200, 0x42, 200, 0x43, 200, 0xc1, 4, 0x61, 255, 0xe0, 0, 0xc0, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 512 {
			return
		}
		m := newFairModel(16, flow.BandSpec{Name: "control", Cap: 2, Bytes: 64},
			flow.BandSpec{Name: "gossip", Cap: 8, Bytes: 256}, flow.BandSpec{Name: "chunks", Cap: 4, Bytes: 256, Policy: flow.DropOldest})
		for ; len(steps) >= 2; steps = steps[2:] {
			what, how := steps[0], int(steps[1])
			band, class := int(what&0x1f)%3, uint64(what>>2&3)
			switch what >> 5 {
			case 0:
				m.push(t, m.newItem(band, class, how))
			case 1, 2, 3:
				m.offer(t, band, []flow.FairItem[int]{m.newItem(band, class, how)})
			case 4:
				m.offer(t, band, []flow.FairItem[int]{m.newItem(band, class, how), m.newItem(band, class+1, how/2), m.newItem(band, class, 1)})
			case 5, 6:
				m.take(t, 1+int(what&3), how)
			default:
				if how == 0 {
					m.close()
				}
			}
			m.check(t)
		}
		m.close()
		for len(m.waiting) > 0 {
			m.take(t, 3, 100)
		}
		m.check(t)
	})
}
