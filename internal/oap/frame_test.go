package oap

import (
	"bytes"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

// The contract's own vector, digit by digit.
const contractVector = "0000001d0100010000000000000000000000000000000011223344556677886869"

func TestContractVector(t *testing.T) {
	b, err := Append(nil, Frame{Flags: Req, Corr: 0x1122334455667788, Payload: []byte("hi")})
	if err != nil || hex.EncodeToString(b) != contractVector {
		t.Fatalf("%x, %v; the contract says %s", b, err, contractVector)
	}
	f, err := NewReader(bytes.NewReader(b), plain).Next()
	if err != nil || f.Flags != Req || f.Corr != 0x1122334455667788 || string(f.Payload) != "hi" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestSizesAreTheContracts(t *testing.T) {
	if HeaderSize != 31 || fixedSize != 27 || MaxPayload != 1<<20 || Chunk != 64<<10 || Window != 16 {
		t.Error(HeaderSize, fixedSize, MaxPayload, Chunk, Window)
	}
	if Req != 1 || Resp != 2 || Event != 4 || Comp != 8 || AckReq != 16 {
		t.Error(Req, Resp, Event, Comp, AckReq)
	}
}

func TestHeadersThatAreRefused(t *testing.T) {
	good := unhex(t, contractVector)
	change := func(at int, b ...byte) []byte {
		return append(append(bytes.Clone(good[:at]), b...), good[at+len(b):]...)
	}
	for name, c := range map[string]struct {
		bytes  []byte
		codec  Codec
		reason Reason
	}{
		"over the cap":         {change(0, 0, 0x10, 0, 28), plain, TooLarge},
		"far over the cap":     {change(0, 0xff, 0xff, 0xff, 0xff), plain, TooLarge},
		"over the agreed cap":  {good, Codec{Max: 1}, TooLarge},
		"zero means zero":      {good, Codec{}, TooLarge},
		"less than nothing":    {good, Codec{Max: -1}, TooLarge},
		"the cap has a cap":    {change(0, 0, 0x10, 0, 28), Codec{Max: 1 << 30}, TooLarge},
		"shorter than header":  {change(0, 0, 0, 0, 26), plain, TooShort},
		"no length at all":     {change(0, 0, 0, 0, 0), plain, TooShort},
		"version 0":            {change(atVersion, 0), plain, WrongVersion},
		"version 2":            {change(atVersion, 2), plain, WrongVersion},
		"tenant, first byte":   {change(atTenant, 1), plain, WrongTenant},
		"tenant, last byte":    {change(atCorr-1, 1), plain, WrongTenant},
		"an HTTP request":      {[]byte("GET / HTTP/1.1\r\n\r\n"), plain, TooLarge},
		"a TLS client's hello": {unhex(t, "1603010200010001fc0303"), plain, TooLarge},
	} {
		r := NewReader(bytes.NewReader(c.bytes), c.codec)
		_, err := r.Next()
		wantReason(t, name, err, c.reason)
		_, again := r.Next()
		if again != err || !r.Ready() || r.Fill() != nil {
			t.Errorf("%s: after a refused header the stream must stay refused, not %v", name, again)
		}
	}
}

// The reader does not wait for the rest of an invalid frame.
func TestRefusedAsSoonAsAByteTells(t *testing.T) {
	for name, c := range map[string]struct {
		hex    string
		reason Reason
	}{
		"length":  {"0010001c", TooLarge},
		"short":   {"00000000", TooShort},
		"version": {"0000001b02", WrongVersion},
		"tenant":  {"0000001b01000001", WrongTenant},
	} {
		b := unhex(t, c.hex)
		for n := range b {
			if _, err := checkHeader(b[:n], MaxPayload); err != nil {
				t.Errorf("%s: refused after %d bytes, which do not tell yet: %v", name, n, err)
			}
		}
		_, err := checkHeader(b, MaxPayload)
		wantReason(t, name, err, c.reason)
	}
}

func TestUnknownFlagsAreIgnored(t *testing.T) {
	f, err := NewReader(bytes.NewReader(framed(t, 0xffff&^Comp, 1, nil)), plain).Next()
	if err != nil || f.Flags&(Req|Resp|Event|AckReq) != Req|Resp|Event|AckReq {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestAppendRefusesWhatWouldBeRefused(t *testing.T) {
	before := []byte("before")
	for name, c := range map[string]struct {
		codec   Codec
		payload int
		ok      bool
	}{
		"the cap":          {plain, MaxPayload, true},
		"over the cap":     {plain, MaxPayload + 1, false},
		"agreed cap":       {Codec{Max: 100}, 100, true},
		"over agreed cap":  {Codec{Max: 100}, 101, false},
		"empty at zero":    {Codec{}, 0, true},
		"a byte at zero":   {Codec{}, 1, false},
		"compressed, over": {Codec{Max: 1 << 10, Compressed: true}, 2 << 10, false},
	} {
		b, err := c.codec.Append(before, Frame{Payload: make([]byte, c.payload)})
		if !c.ok {
			wantReason(t, name, err, TooLarge)
		}
		if (err == nil) != c.ok || !bytes.HasPrefix(b, before) || !c.ok && len(b) != len(before) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		m, err := c.codec.AppendMessage(before, Event, 1, &Data{Bytes: make([]byte, c.payload+1)})
		if !c.ok && ReasonOf(err) != TooLarge || err != nil && len(m) != len(before) {
			t.Errorf("%s: as a message: %d bytes, %v", name, len(m), err)
		}
	}
}

func TestAppendMessageIsAppendOfEncode(t *testing.T) {
	for _, m := range oneOfEach(t) {
		want := framed(t, Event, 77, encoded(t, m))
		got, err := plain.AppendMessage([]byte("x"), Event, 77, m)
		if err != nil || string(got) != "x"+string(want) {
			t.Errorf("%s: %x, %v; want %x", KindOf(m), got, err, want)
		}
	}
	bad, err := plain.AppendMessage([]byte("x"), Event, 77, &Unknown{"later"})
	wantReason(t, "unknown", err, BadMessage)
	if string(bad) != "x" {
		t.Errorf("after an error dst is %q", bad)
	}
}

// Frames that were put into one buffer come out one by one, however the bytes
// are cut on the way.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom([]Codec{plain, compressed}).Draw(t, "codec")
		frames := rapid.SliceOfN(rapid.Custom(drawFrame), 1, 6).Draw(t, "frames")
		var wire []byte
		for _, f := range frames {
			var err error
			if wire, err = codec.Append(wire, f); err != nil {
				t.Fatal(err)
			}
		}
		portion := rapid.SampledFrom([]int{1, 3, 31, 64, 65, 1000, 16 << 10, 1 << 20}).Draw(t, "portion")
		r := NewReader(&chunkReader{rest: wire, n: max(portion, len(wire)/1000)}, codec)
		for i, want := range frames {
			got, err := r.Next()
			if err != nil || got.Flags != want.Flags&^Comp || got.Corr != want.Corr || !bytes.Equal(got.Payload, want.Payload) {
				t.Fatalf("frame %d: flags %v corr %d, %d bytes, %v; want %v %d, %d bytes", i, got.Flags, got.Corr, len(got.Payload), err, want.Flags, want.Corr, len(want.Payload))
			}
			if rapid.Bool().Draw(t, "take") {
				taken := r.Take()
				if !bytes.Equal(taken.Bytes(), want.Payload) {
					t.Fatalf("frame %d: taken as %d other bytes", i, len(taken.Bytes()))
				}
				taken.Release()
			}
		}
		if _, err := r.Next(); err == nil || r.Buffered() != 0 {
			t.Fatalf("after the last frame: %v, %d bytes left", err, r.Buffered())
		}
	})
}

// drawFrame draws payloads of all sizes that make a reader change its buffer:
// random ones, and ones that compress well.
func drawFrame(t *rapid.T) Frame {
	size := rapid.SampledFrom([]int{0, 1, 33, 34, 64, 600, 1 << 10, 15 << 10, 16 << 10, 17 << 10, 70 << 10, 80 << 10, 300 << 10}).Draw(t, "size")
	seed := rapid.Uint32().Draw(t, "seed")
	payload := make([]byte, size)
	for i := range payload {
		seed = seed*1664525 + 1013904223
		payload[i] = byte(seed >> 24)
		if seed%3 > 0 && i > 40 {
			payload[i] = payload[i-40]
		}
	}
	return Frame{Flags: Flags(rapid.Uint16().Draw(t, "flags")), Corr: rapid.Uint64().Draw(t, "corr"), Payload: payload}
}
