package main

import (
	"slices"
	"strings"
	"testing"

	"micronode/client"
	"micronode/internal/config"
	"micronode/internal/node"
	"micronode/internal/testkit"
)

// What is in front of the public is in the banner: its URLs, what strangers
// may read, and for a telephone the code of the best address in the network.
func TestTheBannerSaysWhatIsPublic(t *testing.T) {
	info := node.Info{PeerID: someID, HTTP: "https://127.0.0.1:443", Admin: "http://127.0.0.1:2", Socket: "x",
		Domains: []string{"https://maps.example.org"}, LAN: []string{"http://192.168.0.7:8080", "http://172.17.0.1:8080"}, Public: []string{"tiles", "sites"}, Notes: []string{"--lan does not listen on 10.0.0.7:8080"}}
	lines := []string{
		"\n  public   https://maps.example.org\n", "http://192.168.0.7:8080\n", "http://172.17.0.1:8080\n", "(without TLS, for reads only)\n",
		"\n  public   tiles, sites: strangers may read these\n", "--lan does not listen on 10.0.0.7:8080\n",
	}
	code, drawn := qrText("http://192.168.0.7:8080")
	other, _ := qrText("http://172.17.0.1:8080")
	for _, colours := range []bool{false, true} {
		s := newTestConsole(t)
		s.colours = colours
		s.printBanner(info, "", "")
		text := s.stdout.String()
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%q is not in\n%s", line, text)
			}
		}
		if !drawn || strings.Contains(text, code) != colours || strings.Contains(text, other) {
			t.Errorf("on a terminal %t:\n%s", colours, text)
		}
	}
	s := newTestConsole(t)
	s.printBanner(node.Info{PeerID: someID, HTTP: info.HTTP, Admin: info.Admin, Socket: "x"}, "", "")
	if text := s.stdout.String(); strings.Contains(text, "public") || strings.Contains(text, "lan") {
		t.Errorf("it shows what is not there:\n%s", text)
	}
}

// The status says the same in a line each, and names the pages that may not read.
func TestTheStatusSaysWhatIsPublic(t *testing.T) {
	s := newTestConsole(t)
	statusReport{Status: client.Status{Version: "1", Ready: true, WriteReady: true, Public: []string{"tiles", "sites"},
		Certificates:   []client.Certificate{{Name: "maps.example.org", Expires: "2027-01-01T00:00:00Z"}},
		RefusedOrigins: []client.RefusedOrigin{{Origin: "https://page.example", Route: "/edge/packs", Next: `[http] cors = ["https://page.example"]`}}}}.print(s.console, false)
	for _, words := range []string{"tiles, sites\n", "maps.example.org, until 2027-01-01T00:00:00Z\n", "A page of https://page.example may not read /edge/packs.", `[http] cors = ["https://page.example"]`} {
		if !strings.Contains(s.stdout.String(), words) {
			t.Errorf("%q is not in\n%s", words, &s.stdout)
		}
	}
}

// The flags for the public are settings.
func TestFlagsForThePublic(t *testing.T) {
	list := (&runCommand{LAN: true, Public: true, Domain: []string{"maps.example.org"}, CORS: []string{"https://page.example"}}).flags()
	for _, want := range []config.Flag{
		{Key: "http.lan", Name: "--lan", Value: "true"}, {Key: "overlay.lan", Name: "--lan", Value: "true"}, {Key: "http.public", Name: "--public", Value: "sites"},
		{Key: "http.acme.domains", Name: "--domain", Value: "maps.example.org"}, {Key: "http.cors", Name: "--cors", Value: "https://page.example"},
	} {
		if !slices.Contains(list, want) {
			t.Errorf("%+v is not among %+v", want, list)
		}
	}
	testkit.Equal(t, "without flags", len((&runCommand{}).flags()), 0)
}
