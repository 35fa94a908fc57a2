package observe

import "testing"

func TestSecretNames(t *testing.T) {
	for _, name := range []string{
		"authorization", "Authorization", "token", "MICRO_TOKEN", "tokenRoot", "auth.root", "secret", "client_secret", "password",
		"dbPassword", "passphrase", "key", "api_key", "X-Api-Key", "apiKey", "signingKey", "signing.key", "keys", "cookie", "Set-Cookie",
		"macaroon", "seed", "identity-seed", "pwd", "credentials", "privkey", "APIKEY", "private_key", "bearer",
	} {
		if !secretName(name) {
			t.Errorf("%q must be redacted", name)
		}
	}
	for _, name := range []string{
		"", "msg", "monkey", "keyboard", "keep", "seeder", "public_key", "pubKey", "corr_id", "peer", "author", "addr", "queue", "op", "pin", "ключ",
	} {
		if secretName(name) {
			t.Errorf("%q is no secret", name)
		}
	}
}

func TestScrub(t *testing.T) {
	for in, want := range map[string]string{
		"nothing to hide":                                             "nothing to hide",
		"sent Bearer abc.DEF-123_~+/== to it":                         "sent Bearer [redacted] to it",
		"bearer\tabc":                                                 "bearer [redacted]",
		"Authorization: Basic dXNlcjpwYXNz":                           "Authorization: [redacted]",
		`{"authorization":"Bearer abc"}`:                              `{"authorization":"[redacted]"}`,
		"Authorization: Bearer abc, next":                             "Authorization: [redacted], next",
		"GET /x?token=abc&limit=3":                                    "GET /x?token=[redacted]&limit=3",
		"MICRO_TOKEN=abc micronode":                                   "MICRO_TOKEN=[redacted] micronode",
		`{"password": "abc","user":"ada"}`:                            `{"password": "[redacted]","user":"ada"}`,
		"passphrase=abc;x=1":                                          "passphrase=[redacted];x=1",
		"x-api-key=abc":                                               "x-api-key=[redacted]",
		"dial https://ada:pass@host/x":                                "dial https://[redacted]@host/x",
		"dial https://host:443/x?a=b@c":                               "dial https://host:443/x?a=b@c",
		"GET https://tiles.test/mn1_AgIZAQ-a_b/x":                     "GET https://tiles.test/mn1_[redacted]/x",
		"xmn1_AgIZAQ-a_b, column1_x, Bearer\tmn1_AgIZ":                "xmn1_[redacted], column1_x, Bearer [redacted]",
		`Cookie: a=mn1_AgIZAQ-a_b; c=d`:                               `Cookie: a=mn1_[redacted]; c=d`,
		"token: expired":                                              "token: expired",
		"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----": "-----BEGIN PRIVATE KEY-----[redacted]-----END PRIVATE KEY-----",
		"-----BEGIN EC PRIVATE KEY-----\nabc\ncut off":                "-----BEGIN EC PRIVATE KEY-----[redacted]",
	} {
		if got := scrub(in); got != want {
			t.Errorf("Scrub(%q)\n got %q\nwant %q", in, got, want)
		}
	}
}

func TestScrubOfAnOrdinaryTextAllocatesNothing(t *testing.T) {
	text := "gateway: answered GET /o/{b3} with 200 in 1.2 ms"
	if n := testing.AllocsPerRun(100, func() { scrub(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { secretName("route_pattern") }); n != 0 {
		t.Errorf("%v allocations for a name", n)
	}
}
