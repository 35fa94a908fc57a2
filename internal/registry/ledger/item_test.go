package ledger_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

const peer = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestItems(t *testing.T) {
	n := item(t, edge1)
	node, ok := n.Node()
	if !ok || n.Kind != "node" || node.PeerID.String() != peer || node.Region != "eu" || len(node.Addrs) != 2 || n.Hash != b3.Of(n.JSON) {
		t.Errorf("%+v, %+v", n, node)
	}
	if want := `{"addrs":["edge-1.example:7070","[2001:db8::1]:7070"],"id":"edge-1","kind":"node","peer_id":"` + peer + `","region":"eu"}`; string(n.JSON) != want {
		t.Errorf("%s, want %s", n.JSON, want)
	}
	address, ok := name(t, "docs", "x").Manifest()
	if !ok || address != b3.Of([]byte("x")) {
		t.Errorf("%v %t", address, ok)
	}
	region, ok := item(t, `{"kind":"region","id":"eu-west","title":"Western Europe","parent":"eu","labels":{"tier":"1","a/b.c-d":""}}`).Region()
	if !ok || region.Title != "Western Europe" || region.Parent != "eu" || region.Labels["tier"] != "1" || len(region.Labels) != 2 {
		t.Errorf("%+v", region)
	}
	set, ok := signersItem(t, signersOf(2, alice, bob)).SignerSet()
	if !ok || set.M != 2 || set.Keys[1].Public != bob.public() {
		t.Errorf("%+v", set)
	}
	if _, ok := n.Manifest(); ok {
		t.Error("a node has no manifest")
	}
	if _, ok := n.Region(); ok {
		t.Error("a node is no region")
	}
	if _, ok := n.SignerSet(); ok {
		t.Error("a node is no signer set")
	}
	if _, ok := name(t, "docs", "x").Node(); ok {
		t.Error("a name is no node")
	}
}

func TestItemsAreStrict(t *testing.T) {
	for _, good := range []string{
		`{"kind":"region","id":"münchen"}`, `{"kind":"region","id":"東京"}`, `{"kind":"region","id":"a\"b\\c"}`, `{"kind":"region","id":"😀"}`,
		`{"kind":"region","id":"` + strings.Repeat("a", 253) + `"}`,
		`{"kind":"node","id":"n","peer_id":"` + peer + `","addrs":[]}`,
		`{"kind":"node","id":"n","peer_id":"` + peer + `","addrs":["127.0.0.1:1","localhost:65535","xn--mnchen-3ya.example:80"]}`,
	} {
		if _, err := ledger.ParseItem([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	key := func(k testSigner) string { return fmt.Sprintf(`{"signer_id":%q,"public":%q}`, k.id, k.public()) }
	nodeWith := func(addrs ...string) string {
		list, _ := json.Marshal(addrs)
		return fmt.Sprintf(`{"kind":"node","id":"n","peer_id":%q,"addrs":%s}`, peer, list)
	}
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf("h%d:1", i)
	}
	for bad, detail := range map[string]string{
		`[]`:                      "must be an object",
		`{"id":"a"}`:              "kind is missing",
		`{"kind":"name"}`:         "id is missing",
		`{"kind":"cat","id":"a"}`: "kind must be node, name, region or signers",
		`{"kind":"region","id":"a","colour":"red"}`:                                     "colour is not a known field",
		`{"KIND":"region","id":"a"}`:                                                    "kind is missing",
		`{"kind":"region","id":"a","id":"a"}`:                                           `"id" is there twice`,
		`{"kind":"region","id":""}`:                                                     "1 to 253 bytes",
		`{"kind":"region","id":"` + strings.Repeat("a", 254) + `"}`:                     "1 to 253 bytes",
		`{"kind":"region","id":7}`:                                                      "id must be a text",
		`{"kind":"region","id":"Eu"}`:                                                   "lower case",
		`{"kind":"region","id":"É"}`:                                                    "lower case",
		`{"kind":"region","id":"a b"}`:                                                  "white space",
		`{"kind":"region","id":"a\u00a0b"}`:                                             "white space",
		`{"kind":"region","id":"a\u0000"}`:                                              "control",
		`{"kind":"region","id":"a\u202eb"}`:                                             "invisible",
		`{"kind":"region","id":"a\u200bb"}`:                                             "invisible",
		`{"kind":"region","id":"a\ufffdb"}`:                                             "control",
		`{"kind":"region","id":"e\u0301"}`:                                              "NFC",
		`{"kind":"region","id":"a","title":""}`:                                         "title must be",
		`{"kind":"region","id":"a","title":"a\nb"}`:                                     "title must be",
		`{"kind":"region","id":"a","title":"` + strings.Repeat("a", 257) + `"}`:         "title must be",
		`{"kind":"region","id":"a","title":"e\u0301"}`:                                  "title must be",
		`{"kind":"region","id":"a","title":null}`:                                       "title must be a text",
		`{"kind":"region","id":"a","parent":"a"}`:                                       "another region",
		`{"kind":"region","id":"a","labels":[]}`:                                        "labels must be",
		`{"kind":"region","id":"a","labels":{"A":"x"}}`:                                 "labels holds",
		`{"kind":"region","id":"a","labels":{"":"x"}}`:                                  "labels holds",
		`{"kind":"region","id":"a","labels":{"a":1}}`:                                   "labels holds",
		`{"kind":"region","id":"a","labels":{"a":"\u0007"}}`:                            "labels holds",
		`{"kind":"name","id":"a","manifest":"b3:00"}`:                                   "must be an address",
		`{"kind":"name","id":"a","manifest":"` + b3.Of(nil).String()[:66] + `G"}`:       "must be an address",
		`{"kind":"name","id":"a"}`:                                                      "manifest is missing",
		`{"kind":"node","id":"a","peer_id":"x","addrs":[]}`:                             "peer_id must be",
		`{"kind":"node","id":"a","peer_id":"` + strings.ToUpper(peer) + `","addrs":[]}`: "peer_id must be",
		`{"kind":"node","id":"a","peer_id":"` + peer + `"}`:                             "addrs is missing",
		`{"kind":"node","id":"a","peer_id":"` + peer + `","addrs":{}}`:                  "addrs must be a list",
		`{"kind":"node","id":"a","peer_id":"` + peer + `","addrs":[1]}`:                 "addrs holds",
		`{"kind":"node","id":"a","peer_id":"` + peer + `","addrs":[],"region":""}`:      "1 to 253",
		nodeWith(many...):                                                               "0 to 16",
		nodeWith("a:1", "a:1"):                                                          "twice",
		nodeWith("a"):                                                                   "not host:port",
		nodeWith(":1"):                                                                  "not host:port",
		nodeWith("a:0"):                                                                 "not host:port",
		nodeWith("a:01"):                                                                "not host:port",
		nodeWith("a:65536"):                                                             "not host:port",
		nodeWith("a:http"):                                                              "not host:port",
		nodeWith("A:1"):                                                                 "not host:port",
		nodeWith("a_b:1"):                                                               "not host:port",
		nodeWith("-a:1"):                                                                "not host:port",
		nodeWith("a..b:1"):                                                              "not host:port",
		nodeWith("[fe80::1%eth0]:1"):                                                    "not host:port",
		nodeWith("[2001:DB8::1]:1"):                                                     "not host:port",
		nodeWith("2001:db8::1:1"):                                                       "not host:port",
		nodeWith(strings.Repeat("a.", 127) + "a:1"):                                     "not host:port",
		`{"kind":"signers","id":"team","m":1,"keys":[` + key(alice) + `]}`:              `id must be "signers"`,
		`{"kind":"signers","id":"signers","m":0,"keys":[` + key(alice) + `]}`:           "m must be a whole number from 1 to 1",
		`{"kind":"signers","id":"signers","m":2,"keys":[` + key(alice) + `]}`:           "m must be a whole number from 1 to 1",
		`{"kind":"signers","id":"signers","m":1.0,"keys":[` + key(alice) + `]}`:         "whole number",
		`{"kind":"signers","id":"signers","m":1,"keys":[]}`:                             "keys must be a list",
		`{"kind":"signers","id":"signers","m":1,"keys":[` + key(alice) + `,` + key(alice) + `]}`:   "twice",
		`{"kind":"signers","id":"signers","m":1,"keys":[{"signer_id":"a"}]}`:                       "keys[0].public is missing",
		`{"kind":"signers","id":"signers","m":1,"keys":[{"signer_id":"a","public":7}]}`:            "keys[0].public must be a text",
		`{"kind":"signers","id":"signers","m":1,"keys":[{"signer_id":"a","public":"rsa:AAAA"}]}`:   "not a public key",
		`{"kind":"signers","id":"signers","m":1,"keys":[{"signer_id":"a","public":"x","more":1}]}`: "not a public key",
		`{"kind":"signers","id":"signers","m":1,"keys":[7]}`:                                       "keys[0] must be an object",
	} {
		_, err := ledger.ParseItem([]byte(bad))
		testkit.WantRefusal(t, err, fault.Malformed, "")
		if !strings.Contains(fault.DetailOf(err), detail) {
			t.Errorf("%.100s: %v does not say %q", bad, err, detail)
		}
	}
	wide := `{"kind":"region","id":"a"`
	for i := range 80 {
		wide += fmt.Sprintf(`,"f%d":1`, i)
	}
	_, err := ledger.ParseItem([]byte(wide + "}"))
	testkit.WantRefusal(t, err, fault.Malformed, "")
}

// Keys for which a signature proves nothing never get into a signer set.
func TestWeakKeysAreRefused(t *testing.T) {
	small := map[string]string{
		"order 1":                        "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"order 2":                        "7P///////////////////////////////////////38=",
		"order 4":                        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"order 4, negative":              "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIA=",
		"order 8":                        "xxdqcD1N2E+6PAt2DRBnDyogU/osOczGTsf9d5KsA3o=",
		"order 8, another":               "JuiVj8KyJ7BFw/SJ8u+Y8NXfrAXTxjM5sTgCiG1T/AU=",
		"order 1, second spelling":       "7v///////////////////////////////////////38=",
		"second spelling of 0":           "7f///////////////////////////////////////38=",
		"no point":                       "AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"order 1 with the sign of x set": "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIA=",
	}
	for _, what := range slices.Sorted(maps.Keys(small)) {
		_, err := ledger.ParsePublicKey("ed25519:" + small[what])
		if testkit.WantRefusal(t, err, fault.Malformed, ""); t.Failed() {
			t.Fatal(what)
		}
	}
	good := alice.public().String()
	for _, bad := range []string{"", good[8:], "ED25519:" + good[8:], good + "=", good[:len(good)-1], good[:len(good)-2] + "/=", strings.Replace(good, "i", "\n", 1)} {
		_, err := ledger.ParsePublicKey(bad)
		testkit.WantRefusal(t, err, fault.Malformed, "")
	}
	var key ledger.PublicKey
	if err := key.UnmarshalText([]byte(good)); err != nil || key != alice.public() {
		t.Errorf("%v, %v", key, err)
	}
	if key.UnmarshalText([]byte("x")) == nil || key != alice.public() {
		t.Error("a bad key was taken")
	}
	set, err := json.Marshal(signersOf(1, alice))
	if want := `{"m":1,"keys":[{"signer_id":"alice","public":"` + good + `"}]}`; err != nil || string(set) != want {
		t.Errorf("%s, %v", set, err)
	}
}
