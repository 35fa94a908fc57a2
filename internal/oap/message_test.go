package oap

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"micronode/b3"
)

// oneOfEach is a message of every kind.
func oneOfEach(t testing.TB) []Message {
	t.Helper()
	g := sealed(t, testMessage("storm"))
	unsigned := g
	unsigned.Sig = nil
	return []Message{
		&Hello{Versions: []uint64{1}, Features: Features{Comp: []string{"zstd"}, PQ: "hybrid"}, MaxFrame: MaxPayload, Token: "mn1_x"},
		&HelloAck{Chosen: Chosen{Ver: 1, Comp: "zstd", PQ: "hybrid"}, Limits: Limits{MaxFrame: MaxPayload, Chunk: Chunk}},
		&Ping{TS: 1_700_000_000_000}, &Pong{TS: 24},
		&g, &unsigned,
		&Have{IDs: []b3.Address{b3.Of(nil), b3.Of([]byte("x"))}}, &Want{IDs: []b3.Address{}},
		&Start{Stream: 7, Obj: b3.Of(nil).String(), From: 65536, Length: 5}, &Start{Obj: "x"},
		&Data{Stream: 7, Seq: 300, Bytes: []byte("chunk")}, &Data{Bytes: []byte{}},
		&Ack{Stream: 7, UpTo: 300}, &End{Stream: 7, Seq: 301, Status: StatusOK},
		&Error{Code: Busy, Msg: "later, please"}, &Bye{Reason: "draining"},
		&Find{Obj: "name:docs@m2cks5r3anb4aaok7kdl3osd4fsulcqjix7iynu4yfvlkfocjpta", Most: 20}, &Find{Obj: b3.Of(nil).String()},
		&Found{Providers: []Provider{
			{ID: "m2cks5r3anb4aaok7kdl3osd4fsulcqjix7iynu4yfvlkfocjpta", Overlay: []string{"192.0.2.1:9500", "[2001:db8::1]:9500"},
				HTTP: []string{"http://192.0.2.1:8080"}, Region: "eu", Age: 90},
			{ID: "12D3KooWKRyzVWW6ChFjQjK4miCty85Niy49tpPV95XdKu1BcvMA", Overlay: []string{}, HTTP: []string{}},
		}, Record: []byte("signed")}, &Found{Providers: []Provider{}},
		&Start{Stream: 9, Obj: b3.Of(nil).String() + string(Files), From: 4096, Length: 65536},
		&Introduce{Nodes: [][]byte{sealedIntroduction(t, testIntroduction())}}, &Introduce{Nodes: [][]byte{}},
		&Start{Stream: 11, Obj: b3.Of(nil).String() + string(Here)},
		&Start{Stream: 11, Obj: b3.Of(nil).String() + string(Chunks)},
	}
}

func TestEveryKindComesBack(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range oneOfEach(t) {
		seen[KindOf(m)] = true
		payload := encoded(t, m)
		for name, read := range map[string]func([]byte) (Message, error){"Decode": Decode, "the library": decode} {
			if got, err := read(payload); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%s: %s: %+v, %v", name, KindOf(m), got, err)
			}
		}
	}
	for kind, schema := range schemas {
		if !seen[kind] || KindOf(schema.newMessage()) != kind {
			t.Errorf("%s: seen %t, its message calls itself %s", kind, seen[kind], KindOf(schema.newMessage()))
		}
	}
}

// The contract's table, written out by hand: these keys, and no others.
func TestKeysAreTheContracts(t *testing.T) {
	want := map[string]string{
		"hello": "kind token features versions max_frame", "hello_ack": "kind chosen limits",
		"ping": "ts kind", "pong": "ts kind", "gossip": "msg sig hops kind fanout", "have": "ids kind", "want": "ids kind",
		"start": "obj from kind length stream", "data": "seq kind bytes stream", "ack": "kind up_to stream",
		"end": "seq kind status stream", "error": "msg code kind", "bye": "kind reason",
		"find": "obj kind most", "found": "kind record providers", "introduce": "kind nodes",
	}
	done := map[string]bool{}
	for _, m := range oneOfEach(t) {
		if done[KindOf(m)] {
			continue // the one with all optional keys came first
		}
		done[KindOf(m)] = true
		for _, key := range strings.Fields(want[KindOf(m)]) {
			if !bytes.Contains(encoded(t, m), append([]byte{0x60 + byte(len(key))}, key...)) {
				t.Errorf("%s lacks the key %q", KindOf(m), key)
			}
		}
		if pairs := int(encoded(t, m)[0] & 0x1f); pairs != len(strings.Fields(want[KindOf(m)])) {
			t.Errorf("%s has %d keys, want %s", KindOf(m), pairs, want[KindOf(m)])
		}
	}
	inner := encoded(t, oneOfEach(t)[0])
	for _, key := range []string{"comp", "pq"} {
		if !bytes.Contains(inner, append([]byte{0x60 + byte(len(key))}, key...)) {
			t.Errorf("features lacks %q", key)
		}
	}
	one := encoded(t, &Found{Providers: []Provider{{ID: "a", Region: "b"}}})
	for _, key := range []string{"id", "age", "http", "region", "overlay"} {
		if !bytes.Contains(one, append([]byte{0x60 + byte(len(key))}, key...)) {
			t.Errorf("a provider lacks %q", key)
		}
	}
}

// encodeMap encodes any map, in the order in which the keys are given.
func encodeMap(t testing.TB, pairs ...any) []byte {
	t.Helper()
	out := []byte{0xa0 + byte(len(pairs)/2)}
	for _, part := range pairs {
		b, err := cbor.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func nested(levels int) any {
	var v any = 1
	for range levels {
		v = []any{v}
	}
	return v
}

// What the contract allows: unknown keys, another order, longer numbers.
func TestWhatIsTaken(t *testing.T) {
	for name, payload := range map[string][]byte{
		"unknown key":              encodeMap(t, "ts", 5, "kind", "ping", "later", "x"),
		"unknown key, other kinds": encodeMap(t, "ts", 5, "kind", "ping", "a", nil, "b", 1.5, "c", map[int]bool{1: true}),
		"another order":            encodeMap(t, "kind", "ping", "ts", 5),
		"nesting of eight":         encodeMap(t, "ts", 5, "kind", "ping", "x", nested(7)),
		"upper case is another":    encodeMap(t, "TS", "x", "ts", 5, "kind", "ping"),
		"a longer number":          append(encodeMap(t, "kind", "ping", "ts", 0)[:len(encodeMap(t, "kind", "ping", "ts", 0))-1], 0x18, 5),
	} {
		if m, err := Decode(payload); err != nil || !reflect.DeepEqual(m, &Ping{TS: 5}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	g := sealed(t, testMessage("x"))
	shuffled := encodeMap(t, "kind", "gossip", "fanout", 3, "sig", g.Sig, "msg", g.Msg, "hops", 8)
	if m, err := Decode(shuffled); err != nil || !reflect.DeepEqual(m, &g) {
		t.Errorf("gossip in another order: %+v, %v", m, err)
	}
	hello := encodeMap(t, "kind", "hello", "versions", []int{1}, "features", map[string]any{"new": true}, "max_frame", 1)
	if m, err := Decode(hello); err != nil || m.(*Hello).Features.PQ != "" {
		t.Errorf("features without any that we know: %+v, %v", m, err)
	}
	if m, err := Decode(encodeMap(t, "kind", "hullo", "x", 1)); err != nil || !reflect.DeepEqual(m, &Unknown{"hullo"}) || KindOf(m) != "hullo" {
		t.Errorf("an unknown kind: %+v, %v", m, err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	id := make([]byte, 32)
	many := func(n int) []any {
		all := make([]any, n)
		for i := range all {
			all[i] = id
		}
		return all
	}
	found := func(pairs ...any) []byte {
		return encodeMap(t, "kind", "found", "providers", []any{cbor.RawMessage(encodeMap(t, append(pairs, "age", 1)...))})
	}
	ping := encoded(t, &Ping{TS: 5})
	for name, c := range map[string]struct {
		payload []byte
		says    string
	}{
		"nothing":                {nil, "EOF"},
		"null":                   {[]byte{0xf6}, `no "kind"`},
		"a number":               {[]byte{5}, "not a map"},
		"a list":                 {[]byte{0x80}, "not a map"},
		"an empty map":           {[]byte{0xa0}, `no "kind"`},
		"trailing bytes":         {append(bytes.Clone(ping), 0), "extraneous"},
		"a number as a key":      {encodeMap(t, "kind", "ping", "ts", 5, 7, 7), "not a map with text keys"},
		"duplicate key":          {encodeMap(t, "kind", "ping", "ts", 5, "ts", 5), "duplicate"},
		"duplicate kind":         {encodeMap(t, "kind", "ping", "ts", 5, "kind", "ping"), "duplicate"},
		"duplicate unknown key":  {encodeMap(t, "kind", "ping", "ts", 5, "x", 1, "x", 1), "duplicate"},
		"duplicate inside":       {encodeMap(t, "kind", "hello", "versions", []int{1}, "max_frame", 1, "features", cbor.RawMessage(encodeMap(t, "pq", "", "pq", ""))), "duplicate"},
		"indefinite map":         {append(append([]byte{0xbf}, ping[1:]...), 0xff), "indefinite"},
		"indefinite text":        {append(encodeMap(t, "ts", 5, "kind", 0)[:10], 0x7f, 0x64, 'p', 'i', 'n', 'g', 0xff), "indefinite"},
		"indefinite, ignored":    {append(encodeMap(t, "ts", 5, "kind", "ping", "x", 0)[:17], 0x9f, 0xff), "indefinite"},
		"nesting of nine":        {encodeMap(t, "ts", 5, "kind", "ping", "x", nested(8)), "nested level"},
		"a tag":                  {append(encodeMap(t, "kind", "ping", "ts", 5)[:14], 0xc1, 5), "tag"},
		"a list too long":        {encodeMap(t, "kind", "ping", "ts", 5, "x", many(MaxIDs+1)), "elements"},
		"bad UTF-8":              {encodeMap(t, "kind", "bye", "reason", cbor.RawMessage{0x61, 0xff}), "UTF-8"},
		"bad UTF-8 in a key":     {encodeMap(t, "kind", "ping", "ts", 5, cbor.RawMessage{0x61, 0xff}, 1), "UTF-8"},
		"kind is a number":       {encodeMap(t, "kind", 5), "message.kind is not a text"},
		"kind is bytes":          {encodeMap(t, "kind", []byte("ping"), "ts", 5), "message.kind is not a text"},
		"kind is empty":          {encodeMap(t, "kind", ""), "message.kind"},
		"kind is endless":        {encodeMap(t, "kind", strings.Repeat("x", maxWord+1)), "message.kind"},
		"ts missing":             {encodeMap(t, "kind", "ping"), `ping has no "ts"`},
		"ts in capitals":         {encodeMap(t, "kind", "ping", "TS", 5), `ping has no "ts"`},
		"ts is text":             {encodeMap(t, "kind", "ping", "ts", "5"), "ping.ts is not an unsigned number"},
		"ts is negative":         {encodeMap(t, "kind", "ping", "ts", -1), "ping.ts is not"},
		"ts is a float":          {encodeMap(t, "kind", "ping", "ts", 5.0), "ping.ts is not"},
		"ts is null":             {encodeMap(t, "kind", "ping", "ts", nil), "ping.ts is not"},
		"no versions":            {encodeMap(t, "kind", "hello", "versions", []int{}, "features", map[string]any{}, "max_frame", 1), "hello.versions"},
		"version zero":           {encodeMap(t, "kind", "hello", "versions", []int{0}, "features", map[string]any{}, "max_frame", 1), "hello.versions[0]"},
		"version null":           {encodeMap(t, "kind", "hello", "versions", []any{1, nil}, "features", map[string]any{}, "max_frame", 1), "hello.versions[1]"},
		"too many versions":      {encodeMap(t, "kind", "hello", "versions", slices.Repeat([]int{1}, maxVersions+1), "features", map[string]any{}, "max_frame", 1), "hello.versions"},
		"features is a list":     {encodeMap(t, "kind", "hello", "versions", []int{1}, "features", []int{}, "max_frame", 1), "hello.features is not a map"},
		"pq is null":             {encodeMap(t, "kind", "hello", "versions", []int{1}, "features", map[string]any{"pq": nil}, "max_frame", 1), "hello.features.pq is not a text"},
		"max_frame zero":         {encodeMap(t, "kind", "hello", "versions", []int{1}, "features", map[string]any{}, "max_frame", 0), "hello.max_frame"},
		"token too long":         {encodeMap(t, "kind", "hello", "versions", []int{1}, "features", map[string]any{}, "max_frame", 1, "token", strings.Repeat("x", maxToken+1)), "hello.token"},
		"chosen without ver":     {encodeMap(t, "kind", "hello_ack", "chosen", map[string]any{"comp": ""}, "limits", map[string]any{"max_frame": 1, "chunk": 1}), `hello_ack.chosen has no "ver"`},
		"limits without chunk":   {encodeMap(t, "kind", "hello_ack", "chosen", map[string]any{"ver": 1}, "limits", map[string]any{"max_frame": 1}), `hello_ack.limits has no "chunk"`},
		"ids too many":           {encodeMap(t, "kind", "have", "ids", many(MaxIDs+1)), "elements"},
		"an id too short":        {encodeMap(t, "kind", "want", "ids", []any{id, id[:31]}), "want.ids[1]"},
		"an id too long":         {encodeMap(t, "kind", "want", "ids", []any{append(id, 0)}), "want.ids[0]"},
		"an id as text":          {encodeMap(t, "kind", "want", "ids", []any{string(id)}), "want.ids[0] is not a byte string"},
		"an id as a list":        {encodeMap(t, "kind", "want", "ids", []any{[]int{1, 2}}), "want.ids[0] is not a byte string"},
		"msg as a list":          {encodeMap(t, "kind", "gossip", "msg", []int{1, 2}, "hops", 1, "fanout", 1), "gossip.msg is not a byte string"},
		"msg empty":              {encodeMap(t, "kind", "gossip", "msg", []byte{}, "hops", 1, "fanout", 1), "gossip.msg"},
		"sig of 63":              {encodeMap(t, "kind", "gossip", "msg", id, "sig", make([]byte, 63), "hops", 1, "fanout", 1), "gossip.sig"},
		"sig empty":              {encodeMap(t, "kind", "gossip", "msg", id, "sig", []byte{}, "hops", 1, "fanout", 1), "gossip.sig"},
		"hops missing":           {encodeMap(t, "kind", "gossip", "msg", id, "fanout", 1), `gossip has no "hops"`},
		"obj empty":              {encodeMap(t, "kind", "start", "stream", 1, "obj", ""), "start.obj"},
		"from negative":          {encodeMap(t, "kind", "start", "stream", 1, "obj", "x", "from", -1), "start.from"},
		"bytes as text":          {encodeMap(t, "kind", "data", "stream", 1, "seq", 1, "bytes", "x"), "data.bytes is not a byte string"},
		"status is a number":     {encodeMap(t, "kind", "end", "stream", 1, "seq", 1, "status", 0), "end.status is not a text"},
		"find without obj":       {encodeMap(t, "kind", "find", "most", 1), `find has no "obj"`},
		"find for nothing":       {encodeMap(t, "kind", "find", "obj", "", "most", 1), "find.obj"},
		"find for an endless":    {encodeMap(t, "kind", "find", "obj", strings.Repeat("x", maxText+1), "most", 1), "find.obj"},
		"find without most":      {encodeMap(t, "kind", "find", "obj", "x"), `find has no "most"`},
		"most negative":          {encodeMap(t, "kind", "find", "obj", "x", "most", -1), "find.most is not an unsigned number"},
		"found without a list":   {encodeMap(t, "kind", "found"), `found has no "providers"`},
		"providers is a map":     {encodeMap(t, "kind", "found", "providers", map[string]any{}), "found.providers is not a list"},
		"too many providers":     {encodeMap(t, "kind", "found", "providers", slices.Repeat([]any{map[string]any{"id": "a", "overlay": []string{}, "http": []string{}, "age": 1}}, MaxProviders+1)), "found.providers: 33"},
		"a provider is a text":   {encodeMap(t, "kind", "found", "providers", []string{"a"}), "found.providers[0] is not a map"},
		"a provider without id":  {found("overlay", []string{}, "http", []string{}), `found.providers[0] has no "id"`},
		"an empty id":            {found("id", "", "overlay", []string{}, "http", []string{}), "found.providers[0].id"},
		"a long id":              {found("id", strings.Repeat("x", MaxProviderText+1), "overlay", []string{}, "http", []string{}), "found.providers[0].id"},
		"no overlay addresses":   {found("id", "a", "http", []string{}), `found.providers[0] has no "overlay"`},
		"overlay is a text":      {found("id", "a", "overlay", "b:1", "http", []string{}), "found.providers[0].overlay is not a list"},
		"an empty address":       {found("id", "a", "overlay", []string{""}, "http", []string{}), "found.providers[0].overlay[0]"},
		"a long address":         {found("id", "a", "overlay", []string{}, "http", []string{"x", strings.Repeat("x", MaxAddr+1)}), "found.providers[0].http[1]"},
		"too many addresses":     {found("id", "a", "overlay", []string{}, "http", slices.Repeat([]string{"x"}, MaxAddrs+1)), "found.providers[0].http: 9"},
		"an address as bytes":    {found("id", "a", "overlay", []any{[]byte("x")}, "http", []string{}), "found.providers[0].overlay[0] is not a text"},
		"a long region":          {found("id", "a", "overlay", []string{}, "http", []string{}, "region", strings.Repeat("x", MaxProviderText+1)), "found.providers[0].region"},
		"region is null":         {found("id", "a", "overlay", []string{}, "http", []string{}, "region", nil), "found.providers[0].region is not a text"},
		"an id twice":            {found("id", "a", "id", "a", "overlay", []string{}, "http", []string{}), "duplicate"},
		"age is a text":          {encodeMap(t, "kind", "found", "providers", []any{map[string]any{"id": "a", "overlay": []string{}, "http": []string{}, "age": "1"}}), "found.providers[0].age is not"},
		"a provider without age": {encodeMap(t, "kind", "found", "providers", []any{map[string]any{"id": "a", "overlay": []string{}, "http": []string{}}}), `found.providers[0] has no "age"`},
		"an empty record":        {encodeMap(t, "kind", "found", "providers", []any{}, "record", []byte{}), "found.record"},
		"a long record":          {encodeMap(t, "kind", "found", "providers", []any{}, "record", make([]byte, MaxRecord+1)), "found.record"},
		"record is a text":       {encodeMap(t, "kind", "found", "providers", []any{}, "record", "x"), "found.record is not a byte string"},
		"error without a code":   {encodeMap(t, "kind", "error", "msg", "x"), `error has no "code"`},
		"error with a long text": {encodeMap(t, "kind", "error", "code", "Busy", "msg", strings.Repeat("x", maxText+1)), "error.msg"},

		"introduce without nodes": {encodeMap(t, "kind", "introduce"), `introduce has no "nodes"`},
		"too many introductions":  {encodeMap(t, "kind", "introduce", "nodes", slices.Repeat([]any{make([]byte, 100)}, MaxIntroductions+1)), "introduce.nodes"},
		"a long introduction":     {encodeMap(t, "kind", "introduce", "nodes", []any{make([]byte, maxIntroduction+1)}), "introduce.nodes"},
		"a signature of nothing":  {encodeMap(t, "kind", "introduce", "nodes", []any{make([]byte, sigSize)}), "introduce.nodes"},
	} {
		m, err := Decode(c.payload)
		wantReason(t, name, err, BadMessage)
		if m != nil || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v: %q does not say %q", name, m, err, c.says)
		}
	}
}

func TestTooManyPairs(t *testing.T) {
	keys := map[string]any{"kind": "ping", "ts": 5}
	for pairs := 2; pairs <= maxPairs+1; pairs++ {
		payload, err := cbor.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(payload); (err == nil) != (pairs <= maxPairs) {
			t.Errorf("%d pairs: %v", pairs, err)
		}
		keys[strings.Repeat("x", pairs)] = pairs
	}
}

// A cut message is refused at every length.
func TestCutMessages(t *testing.T) {
	for _, m := range oneOfEach(t) {
		payload := encoded(t, m)
		for cut := range payload {
			if got, err := Decode(payload[:cut]); ReasonOf(err) != BadMessage {
				t.Errorf("%s cut to %d bytes: %+v, %v", KindOf(m), cut, got, err)
			}
		}
	}
}

// What the receiver would refuse is not sent.
func TestEncodeRefusesWhatDecodeRefuses(t *testing.T) {
	for name, m := range map[string]Message{
		"no versions":        &Hello{MaxFrame: 1},
		"max_frame zero":     &Hello{Versions: []uint64{1}},
		"no chunk":           &HelloAck{Chosen: Chosen{Ver: 1}, Limits: Limits{MaxFrame: 1}},
		"no msg":             &Gossip{},
		"sig of 63":          &Gossip{Msg: []byte("x"), Sig: make([]byte, 63)},
		"too many ids":       &Have{IDs: make([]b3.Address, MaxIDs+1)},
		"no obj":             &Start{},
		"no status":          &End{},
		"no code":            &Error{},
		"find for nothing":   &Find{},
		"too many providers": &Found{Providers: slices.Repeat([]Provider{{ID: "a"}}, MaxProviders+1)},
		"a nameless one":     &Found{Providers: []Provider{{}}},
		"a long address":     &Found{Providers: []Provider{{ID: "a", HTTP: []string{strings.Repeat("x", MaxAddr+1)}}}},
		"a long record":      &Found{Record: make([]byte, MaxRecord+1)},
		"long text":          &Bye{Reason: strings.Repeat("x", maxText+1)},
		"bad UTF-8":          &Bye{Reason: "\xff"},
		"unknown":            &Unknown{"later"},
		"a kind in disguise": &Unknown{"ping"},
	} {
		out, err := Encode([]byte("before"), m)
		if ReasonOf(err) != BadMessage || string(out) != "before" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	if out, err := Encode(nil, &Have{IDs: make([]b3.Address, MaxIDs)}); err != nil || len(out) < MaxIDs*32 {
		t.Errorf("as many ids as there may be: %v", err)
	}
	address := slices.Repeat([]string{strings.Repeat("x", MaxAddr)}, MaxAddrs)
	longest := &Found{Record: make([]byte, MaxRecord), Providers: slices.Repeat([]Provider{
		{ID: strings.Repeat("x", MaxProviderText), Overlay: address, HTTP: address, Region: strings.Repeat("x", MaxProviderText), Age: math.MaxUint64}}, MaxProviders)}
	if out, err := Encode(nil, longest); err != nil || len(out) > MaxPayload/4 {
		t.Errorf("as large an answer as there may be: %d bytes, %v", len(out), err)
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	word := rapid.StringMatching(`[a-z0-9é]{1,20}`)
	number := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.SampledFrom([]uint64{23, 24, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, math.MaxUint64}), rapid.Uint64())
	blob := rapid.SliceOfN(rapid.Byte(), 0, 300)
	ids := rapid.Custom(func(t *rapid.T) []b3.Address {
		all := make([]b3.Address, rapid.IntRange(0, 5).Draw(t, "ids"))
		for i := range all {
			all[i] = b3.Of(blob.Draw(t, "id"))
		}
		return all
	})
	addresses := rapid.SliceOfN(word, 0, MaxAddrs)
	provider := rapid.Custom(func(t *rapid.T) Provider {
		return Provider{ID: word.Draw(t, "id"), Overlay: addresses.Draw(t, "overlay"), HTTP: addresses.Draw(t, "http"),
			Region: rapid.SampledFrom([]string{"", "eu"}).Draw(t, "region"), Age: number.Draw(t, "age")}
	})
	rapid.Check(t, func(t *rapid.T) {
		n := func() uint64 { return number.Draw(t, "number") }
		gossip := &Gossip{Msg: append(blob.Draw(t, "msg"), 1), Hops: n(), Fanout: n()}
		if rapid.Bool().Draw(t, "signed") {
			gossip.Sig = rapid.SliceOfN(rapid.Byte(), sigSize, sigSize).Draw(t, "sig")
		}
		for _, m := range []Message{
			&Hello{Versions: []uint64{max(1, n()), 1}, Features: Features{Comp: []string{word.Draw(t, "comp")}, PQ: word.Draw(t, "pq")}, MaxFrame: max(1, n()), Token: word.Draw(t, "token")},
			&HelloAck{Chosen: Chosen{Ver: max(1, n()), PQ: word.Draw(t, "pq")}, Limits: Limits{MaxFrame: max(1, n()), Chunk: max(1, n())}},
			&Ping{n()}, &Pong{n()}, gossip, &Have{ids.Draw(t, "have")}, &Want{ids.Draw(t, "want")},
			&Start{n(), word.Draw(t, "obj"), n(), n()}, &Data{n(), n(), blob.Draw(t, "bytes")}, &Ack{n(), n()},
			&End{n(), n(), word.Draw(t, "status")}, &Error{Code(word.Draw(t, "code")), word.Draw(t, "msg")}, &Bye{word.Draw(t, "reason")},
			&Find{word.Draw(t, "obj"), n()}, &Found{rapid.SliceOfN(provider, 0, 3).Draw(t, "providers"), append(blob.Draw(t, "record"), 1)},
			&Found{Providers: rapid.SliceOfN(provider, 0, MaxProviders).Draw(t, "providers")},
			&Introduce{rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), sigSize+1, maxIntroduction), 0, 3).Draw(t, "nodes")},
		} {
			payload, err := Encode(nil, m)
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			for name, read := range map[string]func([]byte) (Message, error){"Decode": Decode, "the library": decode} {
				if got, err := read(payload); err != nil || !reflect.DeepEqual(got, m) {
					t.Fatalf("%s: %+v became %+v, %v", name, m, got, err)
				}
			}
		}
	})
}

func TestTheViewsOfAnObject(t *testing.T) {
	address := b3.Of(nil).String()
	for obj, want := range map[string]View{address: Whole, address + "/tree": Tree, address + "/files": Files, address + "/here": Here, address + "/chunks": Chunks} {
		if got, view := CutView(obj); got != address || view != want {
			t.Errorf("%s: %q %q", obj, got, view)
		}
	}
	for _, obj := range []string{"", "/files/tree", address + "/twigs", address + "/tree/files", address + "/files/"} {
		if got, _ := CutView(obj); got == address {
			t.Errorf("%s: %q", obj, got)
		}
	}
}
