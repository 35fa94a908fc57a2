package ingress

import "testing"

func TestDomainsAreChecked(t *testing.T) {
	good := ACME{Domains: []string{"maps.example.org", "xn--bcher-kva.example"}, Directory: ACMEStaging, PlainAddr: ":80", Email: "a@example.org"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"*.example.org", "localhost", "192.0.2.7", "Maps.example.org", "maps..example", "-a.example", "maps.example.org.", "a_b.example", "bücher.example"} {
		one := good
		one.Domains = []string{name}
		if one.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, change := range []func(*ACME){
		func(c *ACME) { c.Directory = "http://acme.example" }, func(c *ACME) { c.Email = "nobody" }, func(c *ACME) { c.PlainAddr = "80" },
	} {
		one := good
		change(&one)
		if one.Validate() == nil {
			t.Errorf("%+v", one)
		}
	}
}
