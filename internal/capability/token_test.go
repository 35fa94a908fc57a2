package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/macaroon.v2"

	"micronode/fault"
	"micronode/internal/testkit"
	"micronode/internal/tokentext"
)

var noon = time.Date(2026, 11, 14, 12, 0, 0, 0, time.UTC)

// everything is a token with one caveat of each kind, and a request that it
// covers.
var (
	everything = Caveats{
		Scopes:  []Scope{ObjectPut, OverlayPub},
		Expires: noon.Add(time.Hour),
		Paths:   []string{"/o", "/overlay/publish"},
		Topics:  []string{"news"},
		Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
		Rate:    Rate{Count: 1000, Per: time.Second, Burst: 1_000_000},
	}
	covered = Request{Scope: OverlayPub, Path: "/overlay/publish/news/local", Topic: "news/local",
		ClientIP: netip.MustParseAddr("10.1.2.3"), Now: noon}
)

func TestVerify(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, everything)
	for name, c := range map[string]struct {
		change func(*Request)
		want   fault.Kind
		detail string
	}{
		"covered":                   {func(*Request) {}, none, ""},
		"the other scope":           {func(r *Request) { r.Scope = ObjectPut }, none, ""},
		"any scope":                 {func(r *Request) { r.Scope = Any }, none, ""},
		"a scope it does not have":  {func(r *Request) { r.Scope = ObjectRm }, fault.Forbidden, `"object:rm"`},
		"admin is not implied":      {func(r *Request) { r.Scope = Admin }, fault.Forbidden, `"admin"`},
		"no scope at all":           {func(r *Request) { r.Scope = "" }, fault.Internal, ""},
		"a scope that is none":      {func(r *Request) { r.Scope = "object:get" }, fault.Internal, ""},
		"at the last moment":        {func(r *Request) { r.Now = noon.Add(time.Hour - 1) }, none, ""},
		"expired":                   {func(r *Request) { r.Now = noon.Add(time.Hour) }, fault.Unauthorized, "expired at 2026-11-14T13:00:00Z"},
		"expired and out of scope":  {func(r *Request) { r.Now, r.Scope = noon.Add(time.Hour), Admin }, fault.Unauthorized, "expired"},
		"the prefix itself":         {func(r *Request) { r.Path = "/o" }, none, ""},
		"with a slash at the end":   {func(r *Request) { r.Path = "/o/" }, none, ""},
		"a path that only begins":   {func(r *Request) { r.Path = "/other" }, fault.Forbidden, `"/o"`},
		"a path that climbs":        {func(r *Request) { r.Path = "/o/../admin" }, fault.Forbidden, `"/o"`},
		"a path with a dot":         {func(r *Request) { r.Path = "/o/./x" }, fault.Forbidden, `"/o"`},
		"a path with two slashes":   {func(r *Request) { r.Path = "/o//x" }, fault.Forbidden, `"/o"`},
		"a path without a slash":    {func(r *Request) { r.Path = "o" }, fault.Forbidden, `"/o"`},
		"no path":                   {func(r *Request) { r.Path = "" }, fault.Forbidden, `"/o"`},
		"the root path":             {func(r *Request) { r.Path = "/" }, fault.Forbidden, `"/o"`},
		"the topic itself":          {func(r *Request) { r.Topic = "news" }, none, ""},
		"another topic":             {func(r *Request) { r.Topic = "newsroom" }, fault.Forbidden, `"news"`},
		"no topic":                  {func(r *Request) { r.Topic = "" }, fault.Forbidden, `"news"`},
		"a topic that climbs":       {func(r *Request) { r.Topic = "news/../x" }, fault.Forbidden, `"news"`},
		"another client":            {func(r *Request) { r.ClientIP = netip.MustParseAddr("11.0.0.1") }, fault.Forbidden, "10.0.0.0/8"},
		"no client":                 {func(r *Request) { r.ClientIP = netip.Addr{} }, fault.Forbidden, "10.0.0.0/8"},
		"IPv4 in IPv6":              {func(r *Request) { r.ClientIP = netip.MustParseAddr("::ffff:10.1.2.3") }, none, ""},
		"IPv6":                      {func(r *Request) { r.ClientIP = netip.MustParseAddr("2001:db8::1%eth0") }, none, ""},
		"another IPv6":              {func(r *Request) { r.ClientIP = netip.MustParseAddr("2001:db9::1") }, fault.Forbidden, "2001:db8::/32"},
		"a control character":       {func(r *Request) { r.Path = "/o/\x00" }, fault.Forbidden, `"/o"`},
		"a path that is not UTF-8":  {func(r *Request) { r.Path = "/o/\xff" }, fault.Forbidden, `"/o"`},
		"a segment of three points": {func(r *Request) { r.Path = "/o/..." }, none, ""},
	} {
		request := covered
		c.change(&request)
		err := a.Verify(token, request)
		testkit.WantKind(t, err, c.want, name)
		if err != nil && (!strings.Contains(err.Error(), c.detail) || fault.NextOf(err) == "") {
			t.Errorf("%s: %v does not say %s", name, err, c.detail)
		}
	}
}

func TestTheRootPathCoversEveryPath(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, Caveats{Scopes: []Scope{Admin}, Paths: []string{"/"}})
	for path, want := range map[string]fault.Kind{"/": none, "/o": none, "/o/x/": none, "": fault.Forbidden, "/../x": fault.Forbidden} {
		testkit.WantKind(t, a.Verify(token, Request{Scope: Admin, Path: path}), want, "path "+path)
	}
}

func TestSeveralScopeCaveatsIntersect(t *testing.T) {
	a := freshAuthority(t)
	admin := mint(t, a, Caveats{Scopes: []Scope{Admin}})
	two := narrow(t, admin, Caveats{Scopes: []Scope{ObjectPut, ObjectRm}})
	one := narrow(t, two, Caveats{Scopes: []Scope{ObjectRm, NameSet}})
	again := narrow(t, one, Caveats{Scopes: []Scope{Admin}}) // adding admin restores nothing
	for token, want := range map[string][]Scope{
		admin: Scopes(), two: {ObjectPut, ObjectRm}, one: {ObjectRm}, again: {ObjectRm},
	} {
		var got []Scope
		for _, scope := range Scopes() {
			if a.Verify(token, Request{Scope: scope}) == nil {
				got = append(got, scope)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the token covers %v, want %v", got, want)
		}
		if summary, err := Inspect(token); err != nil || !slices.Equal(summary.Scopes, want) {
			t.Errorf("Inspect says %v, want %v (%v)", summary.Scopes, want, err)
		}
	}
}

func TestTheZeroTimeIsThePresent(t *testing.T) {
	a := freshAuthority(t)
	past := mint(t, a, Caveats{Scopes: []Scope{Admin}, Expires: time.Now().Add(-time.Second)})
	testkit.WantKind(t, a.Verify(past, Request{Scope: Admin}), fault.Unauthorized, "expired a second ago")
	future := mint(t, a, Caveats{Scopes: []Scope{Admin}, Expires: time.Now().Add(time.Hour)})
	testkit.WantKind(t, a.Verify(future, Request{Scope: Admin}), none, "expires in an hour")
}

func TestWhatIsNoToken(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, everything)
	data, err := base64.RawURLEncoding.DecodeString(token[len(Prefix):])
	if err != nil {
		t.Fatal(err)
	}
	text := func(b []byte) string { return Prefix + base64.RawURLEncoding.EncodeToString(b) }
	for name, c := range map[string]struct{ token, detail string }{
		"nothing":             {"", "no token"},
		"only the prefix":     {Prefix, "damaged"},
		"without the prefix":  {token[len(Prefix):], "begins with mn1_"},
		"another prefix":      {"mn2_" + token[len(Prefix):], "begins with mn1_"},
		"not base64":          {Prefix + "!!!!", "damaged"},
		"too long":            {token + strings.Repeat("A", MaxToken), "longer than 4096"},
		"trailing bytes":      {text(append(slices.Clone(data), 0)), "damaged"},
		"a line break inside": {token[:20] + "\n" + token[20:], "damaged"},
		"a space at the end":  {token + " ", "damaged"},
		"the first form":      {text([]byte("0014location x")), "damaged"},
		"a longer varint":     {text(slices.Concat([]byte{2, 2 | 0x80, 0}, data[2:])), "damaged"},
		"an empty macaroon":   {text([]byte{2}), "damaged"},
	} {
		err := a.Verify(c.token, covered)
		testkit.WantKind(t, err, fault.Unauthorized, name)
		if err != nil && !strings.Contains(err.Error(), c.detail) {
			t.Errorf("%s: %v does not say %q", name, err, c.detail)
		}
	}
	for cut := range len(token) {
		testkit.WantKind(t, a.Verify(token[:cut], covered), fault.Unauthorized, fmt.Sprintf("cut to %d", cut))
	}
}

// A token with any bit changed, in the text or in the bytes that it encodes, is
// invalid.
func TestEveryBitIsSigned(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, everything)
	testkit.WantKind(t, a.Verify(token, covered), none, "untouched")
	requests := []Request{covered, {Scope: Admin, Now: noon}, {Scope: Any, Now: noon}}
	try := func(what string, changed string) {
		for _, request := range requests {
			testkit.WantKind(t, a.Verify(changed, request), fault.Unauthorized, what)
		}
	}
	for bit := range len(token) * 8 {
		changed := []byte(token)
		changed[bit/8] ^= 1 << (bit % 8)
		try(fmt.Sprintf("bit %d of the text", bit), string(changed))
	}
	data, _ := base64.RawURLEncoding.DecodeString(token[len(Prefix):])
	for bit := range len(data) * 8 {
		changed := slices.Clone(data)
		changed[bit/8] ^= 1 << (bit % 8)
		try(fmt.Sprintf("bit %d of the bytes", bit), Prefix+base64.RawURLEncoding.EncodeToString(changed))
	}
}

func TestATokenOfAnotherRootSaysSo(t *testing.T) {
	token := mint(t, freshAuthority(t), Caveats{Scopes: []Scope{Admin}})
	err := freshAuthority(t).Verify(token, Request{Scope: Admin})
	testkit.WantKind(t, err, fault.Unauthorized, "another root")
	if !strings.Contains(err.Error(), "another root") {
		t.Errorf("the error does not tell a restarted node from a forged token: %v", err)
	}
}

// forge makes a token with the library itself, as an attacker would who knows
// the format, and who may even know the key.
func forge(t *testing.T, key []byte, id []byte, location string, conditions ...string) string {
	t.Helper()
	m, err := macaroon.New(key, id, location, macaroon.V2)
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range conditions {
		if err := m.AddFirstPartyCaveat([]byte(condition)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return Prefix + base64.RawURLEncoding.EncodeToString(data)
}

// What was begun with a voucher may go on after it has expired, unlike what was
// begun with a token, also with a narrowed one. An expired voucher begins
// nothing, and it never covers more than its caveats.
func TestAVoucherIsForOneCall(t *testing.T) {
	a := freshAuthority(t)
	caveats := Caveats{Scopes: []Scope{Admin}, Expires: noon.Add(time.Minute), Paths: []string{"/part"}}
	voucher, err := a.MintVoucher(caveats)
	if err != nil {
		t.Fatal(err)
	}
	token := mint(t, a, caveats)
	at := func(path string, after time.Duration) Request {
		return Request{Scope: Admin, Path: path, Now: noon.Add(after)}
	}
	for _, one := range []string{voucher, token} {
		testkit.WantKind(t, a.Verify(one, at("/part", 0)), none, "to begin with")
		testkit.WantKind(t, a.Verify(one, at("/part", time.Hour)), fault.Unauthorized, "to begin late")
		testkit.WantKind(t, a.Check(one, at("/o", 0)), fault.Forbidden, "elsewhere")
	}
	testkit.WantKind(t, a.Check(voucher, at("/part", time.Hour)), none, "a voucher goes on")
	testkit.WantKind(t, a.Check(token, at("/part", time.Hour)), fault.Unauthorized, "a token does not")
}

func TestForgeries(t *testing.T) {
	a := freshAuthority(t)
	id := slices.Concat([]byte{idVersion}, a.root.id[:], make([]byte, nonceSize))
	newer := slices.Concat([]byte{idVersion + 1}, a.root.id[:], make([]byte, nonceSize))
	guessed, real := make([]byte, keySize), a.root.key[:]
	many := slices.Repeat([]string{"scope admin"}, MaxCaveats+1)
	for name, c := range map[string]struct {
		token string
		want  fault.Kind
	}{
		"a good one":                    {forge(t, real, id, "", "scope admin"), none},
		"a guessed key":                 {forge(t, guessed, id, "", "scope admin"), fault.Unauthorized},
		"no caveat at all":              {forge(t, real, id, ""), fault.Unauthorized},
		"no scope first":                {forge(t, real, id, "", "expires 2999-01-01T00:00:00Z", "scope admin"), fault.Unauthorized},
		"a location, which is unsigned": {forge(t, real, id, "here", "scope admin"), fault.Unauthorized},
		"an identifier of the future":   {forge(t, real, newer, "", "scope admin"), fault.Unauthorized},
		"a short identifier":            {forge(t, real, id[:5], "", "scope admin"), fault.Unauthorized},
		"too many caveats":              {forge(t, real, id, "", many...), fault.Unauthorized},
		"as many as may be":             {forge(t, real, id, "", many[1:]...), none},
	} {
		testkit.WantKind(t, a.Verify(c.token, Request{Scope: Admin, Now: noon}), c.want, name)
	}
}

// What conditions does not write, readCondition does not read: there is no
// second spelling, and nothing unknown is ignored.
func TestUnknownCaveatsAreRefused(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, Caveats{Scopes: []Scope{Admin}})
	for _, condition := range []string{
		"", " ", "weekday monday", "scope", "scope ", "scope all", "scope *", "scope admin ", "scope  admin", "scope admin admin",
		"scope object:put admin", "Scope admin", "scope\tadmin", "expires", "expires never", "expires 2999-01-01", "expires 2999-01-01T00:00:00+01:00",
		"expires 2999-01-01T00:00:00.000Z", "expires 0001-01-01T00:00:00Z", "path", "path /o", `path "/o/"`, `path "/o""/p"`, `path "/o" `, `path "/p" "/o"`,
		`path "o"`, `path "/.."`, "path `/o`", `path "/\x6f"`, `topic ""`, `topic "/news"`, "client", "client 10.0.0.1", "client 10.0.0.1/8", "client 10.0.0.0/8  ::/0",
		"client ::ffff:10.0.0.0/104", "rate", "rate 10", "rate 10/1s", "rate 10/1s burst 0", "rate 10/1000ms burst 10", "rate 0/1s burst 1", "rate 1/25h burst 1",
		"rate +1/1s burst 1", "rate 1/1s burst 1 ", "rate -1/1s burst 1", "rate 1/1s burst 1000001",
	} {
		testkit.WantKind(t, a.Verify(addRaw(t, token, condition), Request{Scope: Admin}), fault.Forbidden, fmt.Sprintf("%q", condition))
	}
	other := addThirdParty(t, token)
	testkit.WantKind(t, a.Verify(other, Request{Scope: Admin}), fault.Unauthorized, "a caveat of a third party")
}

// addRaw attenuates a token by a condition that this package may not write.
func addRaw(t testing.TB, token, condition string) string {
	t.Helper()
	return change(t, token, func(m *macaroon.Macaroon) error { return m.AddFirstPartyCaveat([]byte(condition)) })
}

func addThirdParty(t testing.TB, token string) string {
	t.Helper()
	return change(t, token, func(m *macaroon.Macaroon) error { return m.AddThirdPartyCaveat([]byte("key"), []byte("id"), "there") })
}

func change(t testing.TB, token string, how func(*macaroon.Macaroon) error) string {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(token[len(Prefix):])
	if err != nil {
		t.Fatal(err)
	}
	var m macaroon.Macaroon
	if err := errors.Join(m.UnmarshalBinary(data), how(&m)); err != nil {
		t.Fatal(err)
	}
	if data, err = m.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	return Prefix + base64.RawURLEncoding.EncodeToString(data)
}

func TestMintRefuses(t *testing.T) {
	a := freshAuthority(t)
	admin := []Scope{Admin}
	for name, c := range map[string]Caveats{
		"no scope":                 {},
		"an empty list of scopes":  {Scopes: []Scope{}},
		"an unknown scope":         {Scopes: []Scope{"object:get"}},
		"any":                      {Scopes: []Scope{Any}},
		"an expiry long ago":       {Scopes: admin, Expires: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
		"an expiry far ahead":      {Scopes: admin, Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"an empty list of paths":   {Scopes: admin, Paths: []string{}},
		"a relative path":          {Scopes: admin, Paths: []string{"o"}},
		"a path that climbs":       {Scopes: admin, Paths: []string{"/o/.."}},
		"an empty topic":           {Scopes: admin, Topics: []string{""}},
		"a topic with a slash":     {Scopes: admin, Topics: []string{"/news"}},
		"an empty list of clients": {Scopes: admin, Clients: []netip.Prefix{}},
		"an invalid client":        {Scopes: admin, Clients: []netip.Prefix{{}}},
		"a mapped client":          {Scopes: admin, Clients: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
		"a rate without a burst":   {Scopes: admin, Rate: Rate{Count: 1, Per: time.Second}},
		"a rate without a period":  {Scopes: admin, Rate: Rate{Count: 1, Burst: 1}},
		"a rate of a week":         {Scopes: admin, Rate: Rate{Count: 1, Burst: 1, Per: 7 * 24 * time.Hour}},
		"more than fits":           {Scopes: admin, Paths: []string{"/" + strings.Repeat("a", MaxToken)}},
	} {
		token, err := a.Mint(c)
		testkit.WantKind(t, err, fault.Malformed, name)
		if token != "" || fault.NextOf(err) == fault.Malformed.Next() {
			t.Errorf("%s: token %q, next step %q", name, token, fault.NextOf(err))
		}
	}
}

func TestAttenuateRefuses(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, Caveats{Scopes: []Scope{Admin}})
	if _, err := Attenuate(token, Caveats{}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("nothing to narrow by: %v", err)
	}
	if _, err := Attenuate(token, Caveats{Paths: []string{""}}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("a bad path: %v", err)
	}
	if _, err := Attenuate("something else", Caveats{Scopes: []Scope{Admin}}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("no token: %v", err)
	}
	full := token
	for range MaxCaveats - 1 {
		full = narrow(t, full, Caveats{Scopes: []Scope{Admin}})
	}
	testkit.WantKind(t, a.Verify(full, Request{Scope: Admin}), none, "as many caveats as may be")
	if _, err := Attenuate(full, Caveats{Scopes: []Scope{Admin}}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("one caveat too many: %v", err)
	}
}

// The caller's lists are read, not sorted in place.
func TestMintLeavesItsArgumentsAlone(t *testing.T) {
	c := Caveats{Scopes: []Scope{ObjectRm, Admin}, Paths: []string{"/z/", "/a"}, Topics: []string{"z", "a"}}
	mint(t, freshAuthority(t), c)
	if c.Scopes[0] != ObjectRm || c.Paths[0] != "/z/" || c.Topics[0] != "z" {
		t.Errorf("Mint changed what it was given: %v", c)
	}
}

func TestInspect(t *testing.T) {
	a := freshAuthority(t)
	token := narrow(t, mint(t, a, everything), Caveats{Expires: noon, Scopes: []Scope{ObjectPut}})
	token = addRaw(t, token, "weekday monday")
	got, err := Inspect(token)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"scope object:put overlay:pub", "expires 2026-11-14T13:00:00Z", `path "/o" "/overlay/publish"`, `topic "news"`,
		"client 10.0.0.0/8 2001:db8::/32", "rate 1000/1s burst 1000000", "scope object:put", "expires 2026-11-14T12:00:00Z", `unknown "weekday monday"`,
	}
	if !slices.Equal(got.Caveats, want) || got.Unknown != 1 || !got.Expires.Equal(noon) || got.Root != a.root.ID() || !slices.Equal(got.Scopes, []Scope{ObjectPut}) {
		t.Errorf("Inspect: %+v", got)
	}
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := parse(token)
	for _, form := range []string{string(m.Signature()), fmt.Sprintf("%x", m.Signature()), base64.RawURLEncoding.EncodeToString(m.Signature())} {
		if strings.Contains(string(encoded), form) {
			t.Error("the summary holds the signature")
		}
	}
	if _, err := Inspect("mn1_x"); fault.KindOf(err) != fault.Malformed {
		t.Errorf("Inspect of no token: %v", err)
	}
}

// savedToken is a token that was minted once under the fixed root. Tokens are
// shared between processes of different versions, so it must verify for ever.
const savedToken = "mn1_AgIZAe6XV2ABf5aaHHHCV2iSnRCORfCNYXUYBQACHHNjb3BlIG9iamVjdDpwdXQgb3ZlcmxheTpwdWIAAhxleHBpcmVzIDIwMjYtMTEtMTRUMTM6MDA6MDBaAAIccGF0aCAiL28iICIvb3ZlcmxheS9wdWJsaXNoIgACDHRvcGljICJuZXdzIgACH2NsaWVudCAxMC4wLjAuMC84IDIwMDE6ZGI4OjovMzIAAhpyYXRlIDEwMDAvMXMgYnVyc3QgMTAwMDAwMAAABiDbUnZCAJZK5SxyEgCTKAK2RRDhOgceDRg0zZ90Jq9y9g"

func TestKeptTokenStillVerifies(t *testing.T) {
	a := fixedAuthority(t)
	testkit.WantKind(t, a.Verify(savedToken, covered), none, "the kept token")
	if root := a.root.ID(); root != "ee975760017f969a" {
		t.Errorf("the root's ID is now %s", root)
	}
}

// chain computes the signature of a macaroon by the paper, without the library:
// the oracle of the fuzz test.
func chain(root []byte, id []byte, conditions []string) []byte {
	sum := func(key, data []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(data)
		return h.Sum(nil)
	}
	signature := sum(sum([]byte("macaroons-key-generator"), root), id)
	for _, condition := range conditions {
		signature = sum(signature, []byte(condition))
	}
	return signature
}

func FuzzVerify(f *testing.F) {
	a := fixedAuthority(f)
	good := mint(f, a, Caveats{Scopes: []Scope{Admin}})
	for _, token := range []string{"", Prefix, savedToken, good, good[:40], addRaw(f, good, "weekday monday"), addThirdParty(f, good),
		narrow(f, good, everything), strings.Repeat("A", MaxToken+1)} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		err := a.Verify(token, Request{Scope: Any, Path: "/o", Topic: "news", ClientIP: netip.MustParseAddr("10.1.2.3"), Now: noon})
		if err != nil && len(token) > 24 && strings.Contains(err.Error()+fault.NextOf(err), token) {
			t.Errorf("the error repeats the token")
		}
		m, why := parse(token)
		if why != noReason {
			testkit.WantKind(t, err, fault.Unauthorized, "what does not parse")
			return
		}
		var conditions []string
		for _, caveat := range m.Caveats() {
			conditions = append(conditions, string(caveat.Id))
		}
		genuine := hmac.Equal(chain(a.root.key[:], m.Id(), conditions), m.Signature())
		if err == nil && !genuine {
			t.Errorf("a forged token verifies")
		}
		if genuine != (fault.KindOf(err) != fault.Unauthorized) && !strings.Contains(fmt.Sprint(err), "expired") && !strings.Contains(fmt.Sprint(err), "begin with a scope") {
			t.Errorf("genuine %t, but: %v", genuine, err)
		}
		if _, err := Inspect(token); err != nil {
			t.Errorf("Inspect refuses what parses: %v", err)
		}
	})
}

// No token shows in the text of an error, whatever is wrong with it and
// wherever it is pasted.
func TestNoTokenInErrors(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, everything)
	signature := token[len(token)-40:]
	limited := mint(t, a, Caveats{Scopes: []Scope{Admin}, Rate: Rate{Count: 1, Per: time.Hour, Burst: 1}})
	_ = a.Verify(limited, Request{Scope: Admin})
	_, scopeErr := ParseScope(token)
	_, longErr := Attenuate(token, Caveats{Paths: []string{"/" + strings.Repeat("x", MaxToken)}})
	_, cutErr := Attenuate(token[:50], everything)
	_, inspectErr := Inspect(token + "x")
	_, rootErr := RootFrom(token, nil)
	_, rateErr := ParseRate(token)
	_, mintErr := a.Mint(Caveats{Scopes: []Scope{Scope(token)}})
	for i, err := range []error{
		a.Verify(token, Request{Scope: Admin, Now: noon}), a.Verify(token, Request{Scope: Any}), a.Verify(token+"x", covered), a.Verify(token[:60], covered),
		freshAuthority(t).Verify(token, covered), a.Verify(addRaw(t, token, "x"), covered), a.Verify(limited, Request{Scope: Admin}),
		a.Verify(token, Request{}), scopeErr, longErr, cutErr, inspectErr, rootErr, rateErr, mintErr,
	} {
		text := fmt.Sprintf("%v %+v %#v %s", err, err, err, fault.NextOf(err))
		if err == nil || strings.Contains(text, token[:24]) || strings.Contains(text, signature) || strings.Contains(text, limited) {
			t.Errorf("error %d repeats the token, or is none: %v", i, err)
		}
	}
}

// All tokens that one was narrowed to have its family, and no other token has.
func TestFamily(t *testing.T) {
	a := freshAuthority(t)
	one := mint(t, a, Caveats{Scopes: []Scope{EdgePurge}})
	other := mint(t, a, Caveats{Scopes: []Scope{EdgePurge}})
	twice := narrow(t, narrow(t, one, Caveats{Expires: time.Now().Add(time.Hour)}), Caveats{Paths: []string{"/edge"}})
	if Family(one) == "" || Family(twice) != Family(one) || Family(other) == Family(one) {
		t.Errorf("%q, narrowed %q, another %q", Family(one), Family(twice), Family(other))
	}
	voucher, err := a.MintVoucher(Caveats{Scopes: []Scope{EdgePurge}})
	if err != nil || Family(voucher) != "" || Family("mn1_x") != "" || Family("") != "" {
		t.Errorf("%v: a voucher has the family %q", err, Family(voucher))
	}
}

// What looks for tokens in texts knows those that are minted.
func TestAMintedTokenIsFoundInTexts(t *testing.T) {
	token := mint(t, freshAuthority(t), Caveats{Scopes: []Scope{Admin}})
	for _, text := range []string{"x" + token, url.QueryEscape(strings.ReplaceAll(token, "_", "%5F")), base64.StdEncoding.EncodeToString([]byte(":" + token))} {
		if !tokentext.Found(text) || strings.Contains(tokentext.Redact(text), token[len(token)/2:]) {
			t.Errorf("%q is not found", text)
		}
	}
}
