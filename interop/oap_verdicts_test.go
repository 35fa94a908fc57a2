package interop

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"micronode/internal/oap"
)

// Random bytes must get the same verdict from both: they are the vectors with
// something broken.
func TestOAPVerdicts(t *testing.T) {
	cases := oapCases(t, rand.New(rand.NewPCG(7, oapSeedNumber)))
	var in, complaints bytes.Buffer
	for _, c := range cases {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	run := python(t, "judge.py")
	run.Stdin, run.Stderr = &in, &complaints
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &complaints)
	}
	verdicts := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(verdicts) != len(cases) {
		t.Fatalf("%d verdicts on %d cases", len(verdicts), len(cases))
	}
	taken, wrong := 0, 0
	for i, c := range cases {
		ours, theirs := c.verdict().normalized(), oapVerdict{}
		if err := json.Unmarshal(verdicts[i], &theirs); err != nil {
			t.Fatal(err)
		}
		if ours.Error == "" {
			taken++
		}
		if ours != theirs.normalized() {
			if wrong++; wrong <= 20 {
				t.Errorf("%+v:\n  ours   %+v\n  theirs %+v", c, ours, theirs)
			}
		}
	}
	t.Logf("%d cases, %d of them taken, %d verdicts that differ", len(cases), taken, wrong)
}

const oapSeedNumber = 8 // another number gives other cases

// oapCase is bytes to be judged; one of Frame, Message and Gossip is set.
type oapCase struct {
	Frame      *string `json:"frame,omitempty"`
	Compressed bool    `json:"compressed"`
	Message    *string `json:"message,omitempty"`
	Gossip     *string `json:"letter,omitempty"`
	Sig        string  `json:"sig"`
}

func (c oapCase) String() string {
	for name, text := range map[string]*string{"frame": c.Frame, "message": c.Message, "letter": c.Gossip} {
		if text != nil {
			return fmt.Sprintf("%s %s (zstd %t, sig %s)", name, *text, c.Compressed, c.Sig)
		}
	}
	return "nothing"
}

// oapVerdict is the message as it is encoded again, or why it is rejected.
type oapVerdict struct{ Again, Error, Reason string }

// normalized removes what the document leaves open: which of two broken rules
// of zstd is named, and whether an empty key is sent.
func (v oapVerdict) normalized() oapVerdict {
	if v.Reason == "zstd" || v.Reason == "ratio" {
		return oapVerdict{Error: "zstd"}
	}
	if again, err := reencodeMessage(v.Again); err == nil {
		v.Again = again
	}
	return v
}

func oapCases(t *testing.T, random *rand.Rand) []oapCase {
	t.Helper()
	text, err := os.ReadFile(oapVectors)
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Frames []struct {
			Hex        string
			Compressed bool
		}
		Messages []struct{ Hex string }
		Letters  []struct{ Msg, Sig string }
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	var cases []oapCase
	for _, v := range vectors.Frames {
		for range 40 {
			broken := mutateHex(random, v.Hex)
			cases = append(cases, oapCase{Frame: &broken, Compressed: v.Compressed})
		}
	}
	for _, v := range vectors.Messages {
		for range 80 {
			broken := mutateHex(random, v.Hex)
			cases = append(cases, oapCase{Message: &broken})
		}
	}
	for _, v := range vectors.Letters {
		for range 30 {
			message, sig := v.Msg, v.Sig
			if len(sig) != 128 {
				sig = strings.Repeat("00", 64)
			}
			if random.IntN(4) == 0 {
				sig = (mutateHex(random, sig) + strings.Repeat("00", 64))[:128]
			} else {
				message = mutateHex(random, message)
			}
			cases = append(cases, oapCase{Gossip: &message, Sig: sig})
		}
	}
	return cases
}

// mutateHex changes a few bytes, most of them to values with a meaning in CBOR.
func mutateHex(random *rand.Rand, text string) string {
	data, _ := hex.DecodeString(text)
	meaning := []byte{0x00, 0x01, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x20, 0x3b, 0x40, 0x58, 0x5f, 0x60, 0x61, 0x78, 0x7f, 0x80,
		0x81, 0x98, 0x9f, 0xa0, 0xa1, 0xb8, 0xbf, 0xc1, 0xdb, 0xe0, 0xf4, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xff}
	for range 1 + random.IntN(2) {
		at := random.IntN(len(data) + 1)
		one := meaning[random.IntN(len(meaning))]
		if random.IntN(3) == 0 {
			one = byte(random.Uint32())
		}
		switch how := random.IntN(8); {
		case how < 5 && at < len(data):
			data[at] = one
		case how == 5 && at < len(data):
			data = append(data[:at:at], data[at+1:]...)
		case how == 6:
			data = append(data[:at:at], append([]byte{one}, data[at:]...)...)
		default:
			data = data[:at]
		}
	}
	return hex.EncodeToString(data)
}

func (c oapCase) verdict() oapVerdict {
	var again string
	var err error
	switch {
	case c.Frame != nil:
		again, err = reencodeFrame(*c.Frame, c.Compressed)
	case c.Message != nil:
		again, err = reencodeMessage(*c.Message)
	default:
		again, err = verifyGossip(*c.Gossip, c.Sig)
	}
	if err != nil {
		return oapVerdict{Error: string(oap.CodeOf(err)), Reason: oap.ReasonOf(err).Label()}
	}
	return oapVerdict{Again: again}
}

func reencodeFrame(text string, compressed bool) (string, error) {
	data, _ := hex.DecodeString(text)
	frame, err := oap.NewReader(bytes.NewReader(data), oap.Codec{Max: oap.MaxPayload, Compressed: compressed}).Next()
	if err == io.EOF || err != nil && oap.ReasonOf(err).Label() == "" {
		return "more", nil // the bytes end inside of the frame
	}
	if err != nil {
		return "", err
	}
	encoded, err := oap.Append(nil, frame)
	return hex.EncodeToString(encoded), err
}

func reencodeMessage(text string) (string, error) {
	data, _ := hex.DecodeString(text)
	message, err := oap.Decode(data)
	if err != nil {
		return "", err
	}
	if unknown, ok := message.(*oap.Unknown); ok {
		return "unknown kind " + unknown.Kind, nil
	}
	encoded, err := oap.Encode(nil, message)
	return hex.EncodeToString(encoded), err
}

func verifyGossip(msg, sig string) (string, error) {
	var envelope oap.Gossip
	envelope.Msg, _ = hex.DecodeString(msg)
	envelope.Sig, _ = hex.DecodeString(sig)
	message, id, err := envelope.Open()
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(id[:]), envelope.Verify(&message, id)
}
