package ingress

import (
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/config"
)

// sections is how node combines the sections.
type sections struct {
	HTTP   HTTP   `toml:"http" doc:"The gateway."`
	Admin  Admin  `toml:"admin" doc:"The admin plane."`
	Limits Limits `toml:"limits" doc:"What callers may use."`
}

func defaults() sections { return sections{DefaultHTTP(), DefaultAdmin(), DefaultLimits()} }

func TestDefaultsAreTheContracts(t *testing.T) {
	d := defaults()
	if err := d.HTTP.Validate(); err != nil {
		t.Error(err)
	}
	if err := d.Limits.Validate(); err != nil {
		t.Error(err)
	}
	if d.HTTP.Addr != "127.0.0.1:8080" || d.Admin.Addr != "127.0.0.1:9600" || d.HTTP.HeaderTimeout.Seconds() != 5 || d.HTTP.IdleTimeout.Seconds() != 60 ||
		d.HTTP.Deadline.Seconds() != 2 || d.HTTP.FirstByte.Seconds() != 5 || d.HTTP.Progress.Seconds() != 5 || d.HTTP.Heartbeat.Seconds() != 15 {
		t.Errorf("%+v", d.HTTP)
	}
	l := d.Limits
	if l.Body != config.MiB || l.Inflate != 10*config.MiB || l.InflateRatio != 10 || l.Inflight != 512 || l.ConnsPerIP != 256 ||
		l.MaxConns != 4096 || l.Rate != 500 || l.Burst != 1000 || l.WorkRate != 500 {
		t.Errorf("%+v", l)
	}
}

func TestSectionsSayWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sections)
		says   string
	}{
		"no port":              {func(a *sections) { a.HTTP.Addr = "localhost" }, "host:port"},
		"no admin port":        {func(a *sections) { a.Admin.Addr = "" }, "host:port"},
		"half a key pair":      {func(a *sections) { a.HTTP.CertFile = "c.pem" }, "without a key"},
		"authorities, no TLS":  {func(a *sections) { a.HTTP.ClientCA = "ca.pem" }, "has no TLS"},
		"no deadline":          {func(a *sections) { a.HTTP.Deadline = 0 }, "above zero"},
		"nobody":               {func(a *sections) { a.Limits.Inflight = 0 }, "below 1"},
		"inflates to nothing":  {func(a *sections) { a.Limits.InflateRatio = 0 }, "below 1"},
		"two wrongs at a time": {func(a *sections) { a.Limits.Rate, a.Limits.Burst = 0, 0 }, "below 1"},
	} {
		a := defaults()
		c.change(&a)
		var err error
		for _, section := range []interface{ Validate() error }{a.HTTP, a.Admin, a.Limits} {
			if e := section.Validate(); e != nil {
				err = e
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v, want something about %q", name, err, c.says)
		}
	}
}

func TestExposure(t *testing.T) {
	tls := TLSFiles{Cert: "c", Key: "k"}
	mutual := TLSFiles{Cert: "c", Key: "k", ClientCA: "ca"}
	for name, c := range map[string]struct {
		exposure Exposure
		refused  bool
	}{
		"loopback":                  {Exposure{Addr: "127.0.0.1:80"}, false},
		"loopback by name":          {Exposure{Addr: "localhost:80"}, false},
		"loopback 6":                {Exposure{Addr: "[::1]:80"}, false},
		"mapped loopback":           {Exposure{Addr: "[::ffff:127.0.0.1]:80"}, false},
		"everywhere":                {Exposure{Addr: ":80", Tokens: true}, true},
		"a name":                    {Exposure{Addr: "localhost.example.com:80", Tokens: true}, true},
		"outside without TLS":       {Exposure{Addr: "0.0.0.0:80", Tokens: true}, true},
		"outside, TLS and tokens":   {Exposure{Addr: "0.0.0.0:443", Files: tls, Tokens: true}, false},
		"outside, TLS, no tokens":   {Exposure{Addr: "0.0.0.0:443", Files: tls}, true},
		"outside, mTLS, no tokens":  {Exposure{Addr: "0.0.0.0:443", Files: mutual}, false},
		"authorities but no TLS":    {Exposure{Addr: "0.0.0.0:443", Files: TLSFiles{ClientCA: "ca"}}, true},
		"plain, behind a proxy":     {Exposure{Addr: "0.0.0.0:80", Tokens: true, Proxies: []string{"10.0.0.1"}}, false},
		"plain, all are proxies":    {Exposure{Addr: "0.0.0.0:80", Tokens: true, Proxies: []string{"10.0.0.1", "::/0"}}, true},
		"plain, open, a proxy":      {Exposure{Addr: "0.0.0.0:80", Proxies: []string{"10.0.0.1"}}, true},
		"TLS, all are proxies":      {Exposure{Addr: "0.0.0.0:443", Files: tls, Tokens: true, Proxies: []string{"::/0"}}, false},
		"not an address of any use": {Exposure{Addr: "nonsense"}, true},
	} {
		c.exposure.Setting = "http.addr"
		err := c.exposure.Validate()
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (fault.KindOf(err) != fault.RejectPolicy || !strings.Contains(err.Error(), "http.addr") || !strings.Contains(fault.NextOf(err), "127.0.0.1")) {
			t.Errorf("%s: %v. %s", name, err, fault.NextOf(err))
		}
	}
}
