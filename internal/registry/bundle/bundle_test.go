package bundle_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/bundle"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

// Every version of the sample log, in the log of every size that covers it.
func TestEveryVersion(t *testing.T) {
	r := sampleRegistry(t)
	for size := uint64(1); size <= uint64(len(r.records)); size++ {
		for version := range size {
			data, err := bundle.Make(r.parts(t, version, size))
			testkit.Value(t, data, err)
			report, err := bundle.Verify(data, r.trust(t))
			testkit.Value(t, report, err)
			if report.Head != r.records[version].Head() || report.Header.Version != version || report.Checkpoint.Size != size {
				t.Errorf("version %d in %d: the report is about %v", version, size, report.Head)
			}
			if len(report.Ops) != 1 || len(report.Preconditions) != 1 || report.Registry != r.id() || report.Key != r.signer(t).VerifierKey() {
				t.Errorf("version %d in %d: the report says %+v", version, size, report)
			}
		}
	}
	report, err := bundle.Verify(r.bundle(t, 6), r.trust(t))
	if testkit.Value(t, report, err); report.Signers.M != 3 || len(report.Signers.Keys) != 4 || report.Ops[0].ID != "eu" {
		t.Errorf("version 6 was approved under %+v", report.Signers)
	}
}

// Histories of any shape, with signer sets that change at random.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRegistry(t, rapid.Byte().Draw(t, "nonce"))
		names := []string{"alice", "bob", "carol", "dave", "erin", "frank"}
		for i := range rapid.IntRange(0, 12).Draw(t, "versions") {
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				members := rapid.Permutation(names).Draw(t, "names")[:rapid.IntRange(1, 6).Draw(t, "n")]
				r.rotateSigners(t, setOf(rapid.IntRange(1, len(members)).Draw(t, "m"), append(members, fmt.Sprint("new", i))...))
			} else {
				r.name(t, "docs", fmt.Sprint(i))
			}
		}
		version := rapid.IntRange(0, len(r.records)-1).Draw(t, "version")
		report, err := bundle.Verify(r.bundle(t, uint64(version)), r.trust(t))
		if testkit.Value(t, report, err); report.Head != r.records[version].Head() {
			t.Fatalf("the report is about %v", report.Head)
		}
	})
}

// Without prior knowledge of the reader, the report says what to compare.
func TestCaveats(t *testing.T) {
	r := sampleRegistry(t)
	trust := r.trust(t)
	for _, c := range []struct {
		trust bundle.Trust
		want  []string
	}{
		{trust, nil},
		{bundle.Trust{Registry: trust.Registry}, []string{trust.Key}},
		{bundle.Trust{Key: trust.Key}, []string{r.id().String()}},
		{bundle.Trust{}, []string{trust.Key, r.id().String()}},
	} {
		report, err := bundle.Verify(r.bundle(t, 7), c.trust)
		testkit.Value(t, report, err)
		if len(report.Caveats) != len(c.want)+1 {
			t.Errorf("caveats: %q", report.Caveats)
		}
		for i, w := range c.want {
			if !strings.HasSuffix(report.Caveats[i], w) {
				t.Errorf("%q does not name %s", report.Caveats[i], w)
			}
		}
		if own := strings.Contains(report.String(), "signed by the key that is in the bundle"); own != (c.trust.Key == "") {
			t.Errorf("whose key it is:\n%s", report)
		}
	}
}

// Any changed, removed or added byte of a bundle is detected, without prior
// knowledge.
func TestChangedBytesAreFound(t *testing.T) {
	r := sampleRegistry(t)
	data := r.bundle(t, 7)
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		bad := slices.Clone(data)
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			bad[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		case 1:
			bad = slices.Delete(bad, i, i+1)
		case 2:
			bad = slices.Insert(bad, i, rapid.ByteRange('!', 255).Draw(t, "byte"))
		}
		if _, err := bundle.Verify(bad, bundle.Trust{}); err == nil {
			t.Fatalf("byte %d: %q is accepted", i, bad[max(0, i-20):min(len(bad), i+20)])
		}
	})
	for i := range data { // cut off anywhere
		if i%97 == 0 {
			testkit.WantRefusal(t, testkit.ErrOf(bundle.Verify(data[:i], bundle.Trust{})), fault.Malformed, "")
		}
	}
}

// Every byte inside what is in base64, below the encoding: each record and each
// proof has its own check.
func TestChangedPartsAreFound(t *testing.T) {
	r := sampleRegistry(t)
	rapid.Check(t, func(t *rapid.T) {
		p := r.parts(t, 7, 9)
		field := rapid.SampledFrom(fieldsOf(&p)).Draw(t, "field")
		*field = slices.Clone(*field)
		(*field)[rapid.IntRange(0, len(*field)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		mustRefuse(t, p)
	})
	rapid.Check(t, func(t *rapid.T) {
		p := r.parts(t, 7, 9)
		proof := rapid.SampledFrom([]*[]tree.Hash{&p.Version.Inclusion, &p.Consistency, &p.Signers[0].Inclusion, &p.Signers[2].Inclusion}).Draw(t, "proof")
		*proof = slices.Clone(*proof)
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			(*proof)[rapid.IntRange(0, len(*proof)-1).Draw(t, "hash")][rapid.IntRange(0, 31).Draw(t, "at")] ^= 1
		case 1:
			*proof = (*proof)[1:]
		case 2:
			*proof = append(*proof, tree.Hash{})
		}
		mustRefuse(t, p)
	})
}

// fieldsOf lists the bytes of the records and the checkpoint.
func fieldsOf(p *bundle.Contents) []*[]byte {
	fields := []*[]byte{&p.Checkpoint}
	for _, e := range append([]*bundle.Entry{&p.Version}, &p.Signers[0], &p.Signers[1], &p.Signers[2]) {
		fields = append(fields, &e.Record.Header, &e.Record.Payload, &e.Record.Preconditions)
	}
	return fields
}

func mustRefuse(t testkit.T, p bundle.Contents) error {
	t.Helper()
	data, err := bundle.Make(p)
	testkit.Value(t, data, err)
	report, err := bundle.Verify(data, bundle.Trust{})
	if err == nil {
		t.Fatalf("accepted:\n%s", report)
	}
	return err
}

// Parts that are valid each by itself and do not belong together.
func TestMixedParts(t *testing.T) {
	r, other := sampleRegistry(t), newRegistry(t, 2)
	for range 8 {
		other.name(t, "docs", fmt.Sprint(len(other.records)))
	}
	for name, mix := range map[string]struct {
		edit func(p *bundle.Contents)
		kind fault.Kind
	}{
		"another registry's id":         {func(p *bundle.Contents) { p.Registry = other.id() }, fault.Malformed},
		"another registry's key":        {func(p *bundle.Contents) { p.Key = other.signer(t).VerifierKey() }, fault.Malformed},
		"another registry's checkpoint": {func(p *bundle.Contents) { p.Checkpoint = other.parts(t, 7, 9).Checkpoint }, fault.InvalidSig},
		"a checkpoint from before it":   {func(p *bundle.Contents) { p.Checkpoint = r.parts(t, 1, 5).Checkpoint }, fault.Malformed},
		"an older checkpoint":           {func(p *bundle.Contents) { p.Checkpoint = r.parts(t, 7, 8).Checkpoint }, fault.IntegrityFail},
		"another version's record":      {func(p *bundle.Contents) { p.Version.Record = r.records[6]; p.Version.Record.Version = 7 }, fault.IntegrityFail},
		"another version's number":      {func(p *bundle.Contents) { p.Version.Record.Version = 6 }, fault.IntegrityFail},
		"another version's payload":     {func(p *bundle.Contents) { p.Version.Record.Payload = r.records[3].Payload }, fault.IntegrityFail},
		"another version's preconditions": {
			func(p *bundle.Contents) { p.Version.Record.Preconditions = r.records[3].Preconditions }, fault.IntegrityFail},
		"another registry's beginning": {func(p *bundle.Contents) { p.Signers[0] = other.parts(t, 7, 9).Signers[0] }, fault.IntegrityFail},
		"no signer sets":               {func(p *bundle.Contents) { p.Signers = nil }, fault.Malformed},
		"no beginning":                 {func(p *bundle.Contents) { p.Signers = p.Signers[1:] }, fault.Malformed},
		"the last set left out":        {func(p *bundle.Contents) { p.Signers = p.Signers[:2] }, fault.IntegrityFail},
		"a set left out":               {func(p *bundle.Contents) { p.Signers = slices.Delete(p.Signers, 1, 2) }, fault.IntegrityFail},
		"a set twice":                  {func(p *bundle.Contents) { p.Signers = slices.Insert(p.Signers, 1, p.Signers[1]) }, fault.Malformed},
		"sets in another order":        {func(p *bundle.Contents) { p.Signers[1], p.Signers[2] = p.Signers[2], p.Signers[1] }, fault.IntegrityFail},
		"a version that is no set":     {func(p *bundle.Contents) { p.Signers = append(p.Signers, r.parts(t, 6, 9).Version) }, fault.IntegrityFail},
		"a set from after it":          {func(p *bundle.Contents) { p.Signers = append(p.Signers, r.parts(t, 8, 9).Version) }, fault.Malformed},
	} {
		p := r.parts(t, 7, 9)
		mix.edit(&p)
		if err := mustRefuse(t, p); fault.KindOf(err) != mix.kind {
			t.Errorf("%s: %v (%v), want %v", name, err, fault.KindOf(err), mix.kind)
		}
	}
}

// What the reader knows is compared first.
func TestForeignBundles(t *testing.T) {
	r, other := sampleRegistry(t), newRegistry(t, 2)
	data := r.bundle(t, 7)
	id := other.id()
	err := testkit.ErrOf(bundle.Verify(data, bundle.Trust{Registry: &id}))
	testkit.WantRefusal(t, err, fault.IntegrityFail, "")
	if !strings.Contains(fault.DetailOf(err), id.String()) {
		t.Errorf("%v does not name the registry", err)
	}
	testkit.WantRefusal(t, testkit.ErrOf(bundle.Verify(data, bundle.Trust{Key: other.signer(t).VerifierKey()})), fault.InvalidSig, "")

	// The same registry under the key of an attacker.
	thief := *r
	thief.logKey = key("thief")
	testkit.Value(t, 0, testkit.ErrOf(bundle.Verify(thief.bundle(t, 7), bundle.Trust{})))
	testkit.WantRefusal(t, testkit.ErrOf(bundle.Verify(thief.bundle(t, 7), r.trust(t))), fault.InvalidSig, "")
	p := thief.parts(t, 7, 9)
	p.Key = r.signer(t).VerifierKey()
	testkit.WantRefusal(t, mustRefuse(t, p), fault.InvalidSig, "")
}

// The operator of a log has its key. Without the signers' keys it is of no use.
func TestForgedHeaders(t *testing.T) {
	r := sampleRegistry(t)
	approvals := func(h map[string]any) []any { return h["approvals"].([]any) }
	first := func(h map[string]any) map[string]any { return approvals(h)[0].(map[string]any) }
	for name, forged := range map[string]struct {
		version uint64
		edit    func(h map[string]any)
		kind    fault.Kind
	}{
		"too few approvals":        {7, func(h map[string]any) { h["approvals"] = approvals(h)[1:] }, fault.QuorumFailed},
		"no approvals":             {7, func(h map[string]any) { h["approvals"] = []any{} }, fault.QuorumFailed},
		"no approvals of a set":    {5, func(h map[string]any) { h["approvals"] = []any{} }, fault.QuorumFailed},
		"one approval twice":       {7, func(h map[string]any) { approvals(h)[1] = approvals(h)[0] }, fault.IntegrityFail},
		"another's name":           {7, func(h map[string]any) { first(h)["signer_id"] = "frank" }, fault.UnknownSigner},
		"a name that nobody has":   {7, func(h map[string]any) { first(h)["signer_id"] = "zoe" }, fault.UnknownSigner},
		"a signature of nothing":   {7, func(h map[string]any) { first(h)["sig"] = base64.StdEncoding.EncodeToString(make([]byte, 64)) }, fault.InvalidSig},
		"a later expiry":           {7, func(h map[string]any) { h["expires_at"] = "2027-01-01T00:00:00.000Z" }, fault.InvalidSig},
		"another payload":          {7, func(h map[string]any) { h["payload_b3"] = b3.Of(nil).String() }, fault.IntegrityFail},
		"other preconditions":      {7, func(h map[string]any) { h["preconditions_b3"] = b3.Of(nil).String() }, fault.IntegrityFail},
		"another proposal":         {7, func(h map[string]any) { h["proposal_id"] = ledger.ProposalID([16]byte{9}) }, fault.InvalidSig},
		"another registry":         {7, func(h map[string]any) { h["registry"] = b3.Of(nil).String() }, fault.IntegrityFail},
		"an older signer set":      {7, func(h map[string]any) { h["signers_version"] = 2 }, fault.IntegrityFail},
		"another version":          {7, func(h map[string]any) { h["version"] = 8 }, fault.IntegrityFail},
		"committed late":           {7, func(h map[string]any) { h["committed_at"] = "2026-04-01T00:00:00.000Z" }, fault.Expired},
		"committed before the set": {7, func(h map[string]any) { h["committed_at"] = "2026-02-01T00:00:00.000Z" }, fault.IntegrityFail},
		"another base":             {7, func(h map[string]any) { h["base"] = map[string]any{"hash": b3.Of(nil).String(), "version": 6} }, fault.ChainMismatch},
		"a base that it had":       {6, func(h map[string]any) { h["base"] = nil }, fault.InvalidSig},
		"another predecessor":      {3, func(h map[string]any) { h["prev_hash"] = b3.Of(nil).String() }, fault.ChainMismatch},
		"superseding what it did not": {7, func(h map[string]any) {
			h["supersedes"] = map[string]any{"hash": h["prev_hash"], "reason": "x", "version": 6}
		}, fault.InvalidSig},
		"superseding another": {7, func(h map[string]any) {
			h["supersedes"] = map[string]any{"hash": h["prev_hash"], "reason": "x", "version": 5}
		}, fault.ChainMismatch},
		"another field":     {7, func(h map[string]any) { h["more"] = 1 }, fault.IntegrityFail},
		"another beginning": {0, func(h map[string]any) { h["nonce"] = base64.StdEncoding.EncodeToString(make([]byte, 16)) }, fault.IntegrityFail},
		"no beginning":      {0, func(h map[string]any) { h["version"] = 1 }, fault.IntegrityFail},
	} {
		log := r.forge(t, forged.version, forged.edit)
		about := forged.version
		if about == 5 { // a signer set, which the next version shows
			about = 6
		}
		p := log.parts(t, about, 9)
		if forged.version == 0 { // under the id of the registry that it pretends to be
			p = impersonate(t, log, r)
		}
		if err := mustRefuse(t, p); fault.KindOf(err) != forged.kind {
			t.Errorf("%s: %v (%v), want %v", name, err, fault.KindOf(err), forged.kind)
		}
	}
}

// impersonate signs the log of a forger as that of another registry.
func impersonate(t testkit.T, forger, victim *registry) bundle.Contents {
	t.Helper()
	p := forger.parts(t, 7, 9)
	s := victim.signer(t)
	v, err := tree.NewVerifier(p.Key)
	testkit.Value(t, v, err)
	checkpoint, err := tree.ParseCheckpoint(p.Checkpoint, v)
	testkit.Value(t, checkpoint, err)
	checkpoint.Origin = s.Name()
	p.Checkpoint, err = tree.FormatCheckpoint(checkpoint, s)
	testkit.Value(t, 0, err)
	p.Registry, p.Key = victim.id(), s.VerifierKey()
	return p
}

// A payload that the signers approved, but that is invalid: a correct node
// would never have proposed it.
func TestSignedNonsense(t *testing.T) {
	r := sampleRegistry(t)
	good := r.records[7]
	for name, c := range map[string]struct {
		payload, preconditions string
		kind                   fault.Kind
	}{
		"preconditions of something else": {string(good.Payload), string(r.records[6].Preconditions), fault.IntegrityFail},
		"not canonical":                   {" " + string(good.Payload), string(good.Preconditions), fault.Malformed},
		"no list":                         {string(good.Payload), `{}`, fault.Malformed},
		"another signer set before it": {string(r.records[5].Payload),
			strings.Replace(`[{"hash":"HASH","id":"signers"}]`, "HASH", b3.Of(nil).String(), 1), fault.Conflict},
		"no signer set before it": {string(r.records[5].Payload), `[{"hash":null,"id":"signers"}]`, fault.Conflict},
	} {
		log := r.forge(t, 7, func(h map[string]any) {
			h["payload_b3"], h["preconditions_b3"] = b3.Of([]byte(c.payload)).String(), b3.Of([]byte(c.preconditions)).String()
			sign(t, h)
		})
		log.records[7].Payload, log.records[7].Preconditions = []byte(c.payload), []byte(c.preconditions)
		if err := mustRefuse(t, log.parts(t, 7, 9)); fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v (%v), want %v", name, err, fault.KindOf(err), c.kind)
		}
	}

	// The helpers of this test do make a valid version.
	log := r.forge(t, 7, func(h map[string]any) { sign(t, h) })
	testkit.Value(t, 0, testkit.ErrOf(bundle.Verify(log.bundle(t, 7), log.trust(t))))
}

// sign makes the approvals of a header valid again.
func sign(t testkit.T, header map[string]any) {
	t.Helper()
	text, err := json.Marshal(header)
	testkit.Value(t, text, err)
	h, err := ledger.Record{Header: text}.DecodeHeader()
	testkit.Value(t, h, err)
	for _, a := range header["approvals"].([]any) {
		a := a.(map[string]any)
		a["sig"] = base64.StdEncoding.EncodeToString(ed25519.Sign(key(a["signer_id"].(string)), h.SignThis()))
	}
}

// White space is free; everything else has one encoding.
func TestSpelling(t *testing.T) {
	r := sampleRegistry(t)
	data := r.bundle(t, 7)
	var indented bytes.Buffer
	testkit.Value(t, 0, json.Indent(&indented, data, " ", "\t"))
	testkit.Value(t, 0, testkit.ErrOf(bundle.Verify(append(indented.Bytes(), '\n'), r.trust(t))))

	text := string(data)
	for name, bad := range map[string]string{
		"nothing":          "",
		"no object":        "[]",
		"two":              text + text,
		"more":             text + "}",
		"unknown field":    `{"more":1,` + text[1:],
		"doubled field":    strings.Replace(text, `"version":7`, `"version":6,"version":7`, 1),
		"missing field":    strings.Replace(text, `"version":7,`, ``, 1),
		"other case":       strings.Replace(text, `"version":7`, `"Version":7`, 1),
		"other number":     strings.Replace(text, `"version":7`, `"version":7.0`, 1),
		"negative":         strings.Replace(text, `"version":7`, `"version":-7`, 1),
		"huge":             strings.Replace(text, `"version":7`, `"version":18446744073709551615`, 1),
		"null list":        strings.Replace(text, `"consistency":[`, `"consistency":null,"x":[`, 1),
		"escaped":          strings.Replace(text, `"key":"m`, `"key":"\u006d`, 1),
		"other format":     strings.Replace(text, "bundle v1", "bundle v2", 1),
		"no registry":      strings.Replace(text, r.id().String(), strings.ToUpper(r.id().String()), 1),
		"order":            `{"version":7,` + strings.Replace(text[1:], `"version":7,`, ``, 1),
		"another hash":     strings.Replace(text, `"inclusion":["`, `"inclusion":["=`, 1),
		"line end in it":   strings.Replace(text, `"header":"`, `"header":"\n`, 1),
		"a list of a list": strings.Replace(text, `"signers":[`, `"signers":[[`, 1),
	} {
		err := testkit.ErrOf(bundle.Verify([]byte(bad), bundle.Trust{}))
		if fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	null := r.parts(t, 8, 9) // the last version: both lists of its consistency are empty
	last, err := bundle.Make(null)
	testkit.Value(t, last, err)
	bad := strings.Replace(string(last), `"consistency":[]`, `"consistency":null`, 1)
	testkit.WantRefusal(t, testkit.ErrOf(bundle.Verify([]byte(bad), bundle.Trust{})), fault.Malformed, "")
	null.Consistency = nil
	if again, err := bundle.Make(null); err != nil || !bytes.Equal(again, last) {
		t.Errorf("an empty proof has two spellings: %v", err)
	}
}

func TestTooLarge(t *testing.T) {
	testkit.WantRefusal(t, testkit.ErrOf(bundle.Verify(make([]byte, bundle.MaxSize+1), bundle.Trust{})), fault.BodyTooLarge, "")
	p := bundle.Contents{Version: bundle.Entry{Record: ledger.Record{Payload: make([]byte, bundle.MaxSize)}}}
	if err := testkit.ErrOf(bundle.Make(p)); fault.KindOf(err) != fault.BodyTooLarge {
		t.Errorf("got %v", err)
	}
}

// FuzzBundle: nothing makes Verify panic, and what it accepts is what was made.
func FuzzBundle(f *testing.F) {
	r := sampleRegistry(f)
	good := make(map[string]bool)
	for version := range r.records {
		data := r.bundle(f, uint64(version))
		good[string(data)] = true
		f.Add(data)
	}
	f.Add([]byte(`{}`))
	trust := r.trust(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := bundle.Verify(data, trust); err == nil {
			var compact bytes.Buffer
			if json.Compact(&compact, data) != nil || !good[compact.String()] {
				t.Fatalf("accepted: %q", data)
			}
		}
	})
}

// FuzzRecord puts any bytes into a log whose key the forger has: without the
// signers' keys only the record that they approved is accepted.
func FuzzRecord(f *testing.F) {
	r := newRegistry(f, 1)
	r.name(f, "docs", "one")
	good := r.records[1]
	approved, err := good.DecodeHeader()
	testkit.Value(f, approved, err)
	f.Add(good.Header, good.Payload, good.Preconditions)
	f.Add(r.records[0].Header, r.records[0].Payload, r.records[0].Preconditions)
	f.Fuzz(func(t *testing.T, header, payload, preconditions []byte) {
		log := *r
		log.records = []ledger.Record{r.records[0], {Version: 1, Header: header, Payload: payload, Preconditions: preconditions}}
		report, err := bundle.Verify(log.bundle(t, 1), bundle.Trust{})
		if err == nil && !bytes.Equal(report.Header.SignThis(), approved.SignThis()) {
			t.Fatalf("accepted: %q", header)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	r := sampleRegistry(b)
	data := r.bundle(b, 7)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		testkit.Value(b, 0, testkit.ErrOf(bundle.Verify(data, bundle.Trust{})))
	}
}
