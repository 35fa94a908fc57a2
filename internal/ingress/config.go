package ingress

import (
	"errors"
	"net"
	"time"

	"micronode/internal/config"
)

// HTTP is the section [http]: where the gateway listens, and how long things
// may take there and on the admin plane.
type HTTP struct {
	Addr     string   `toml:"addr" doc:"Where the gateway listens, as host:port. Port 0 picks one." restart:"true"`
	Hosts    []string `toml:"hosts" doc:"More Host values that a loopback listener answers, besides localhost and its own address." restart:"true"`
	CertFile string   `toml:"cert_file" doc:"PEM file with the certificate and its chain. With it, the listener speaks TLS. Read again at every reload."`
	KeyFile  string   `toml:"key_file" doc:"PEM file with the key of cert_file. Read again at every reload."`
	ClientCA string   `toml:"client_ca" doc:"PEM file with the authorities whose client certificates are demanded (mTLS). Read again at every reload."`
	Warm     bool     `toml:"warm" doc:"Answer plain GETs of prepared responses before the HTTP parser, on loopback listeners without TLS." restart:"true"`

	CORS []string        `toml:"cors" doc:"Origins whose pages may read from the gateway, like https://maps.example.org. A star lets every page read; to change something, an origin must be listed by name. Empty: no page but our own." restart:"true"`
	HSTS config.Duration `toml:"hsts" doc:"How long a browser is told to use nothing but TLS with this host, where there is TLS. Zero tells it nothing." restart:"true"`

	HeaderTimeout config.Duration `toml:"header_timeout" doc:"How long a client may take for the header of a request." seed:"read_timeout" restart:"true"`
	IdleTimeout   config.Duration `toml:"idle_timeout" doc:"How long a connection may be idle between two requests." seed:"idle_timeout" restart:"true"`
	TLSTimeout    config.Duration `toml:"tls_timeout" doc:"How long a TLS handshake may take." restart:"true"`
	Deadline      config.Duration `toml:"deadline" doc:"How long a control route may take, unless the route has its own deadline." seed:"ingress.timeout_secs" restart:"true"`
	FirstByte     config.Duration `toml:"first_byte" doc:"How long a transfer may take until its first byte." restart:"true"`
	Progress      config.Duration `toml:"progress" doc:"How long a transfer may go without progress in either direction." seed:"write_timeout" restart:"true"`
	Heartbeat     config.Duration `toml:"heartbeat" doc:"How long a stream may be silent." restart:"true"`
}

// DefaultHTTP is the section's built-in default.
func DefaultHTTP() HTTP {
	return HTTP{
		Addr: "127.0.0.1:8080", Warm: true, HSTS: 365 * 24 * time.Hour,
		HeaderTimeout: 5 * time.Second, IdleTimeout: 60 * time.Second, TLSTimeout: 2 * time.Second,
		Deadline: 2 * time.Second, FirstByte: 5 * time.Second, Progress: 5 * time.Second, Heartbeat: 15 * time.Second,
	}
}

// Validate checks the section by itself. Whether the listener may be reached
// from outside depends on more: see Exposure.
func (h HTTP) Validate() error {
	if err := checkAddr(h.Addr); err != nil {
		return err
	}
	switch {
	case (h.CertFile == "") != (h.KeyFile == ""):
		return config.Wrong("cert_file", "Set cert_file and key_file together.", "a certificate without a key, or a key without a certificate")
	case h.ClientCA != "" && h.CertFile == "":
		return config.Wrong("client_ca", "Set cert_file and key_file too, or remove client_ca.", "client certificates are demanded, but the listener does not speak TLS")
	}
	var wrong []error
	if err := checkOrigins(h.CORS); err != nil {
		wrong = append(wrong, err)
	}
	if h.HSTS < 0 || h.HSTS%time.Second != 0 {
		wrong = append(wrong, config.Wrong("hsts", "Use whole seconds, like 8760h for a year, or 0 to say nothing.", "%s cannot be told to a browser", h.HSTS))
	}
	for _, one := range []struct {
		key   string
		value config.Duration
	}{
		{"header_timeout", h.HeaderTimeout}, {"idle_timeout", h.IdleTimeout}, {"tls_timeout", h.TLSTimeout},
		{"deadline", h.Deadline}, {"first_byte", h.FirstByte}, {"progress", h.Progress}, {"heartbeat", h.Heartbeat},
	} {
		if one.value <= 0 {
			wrong = append(wrong, config.Wrong(one.key, "Use a duration above zero: every wait has a deadline.", "%s would end everything at once", one.value))
		}
	}
	return errors.Join(wrong...)
}

// Files is what TLS is made from.
func (h HTTP) Files() Files { return Files{Cert: h.CertFile, Key: h.KeyFile, ClientCA: h.ClientCA} }

// Admin is the section [admin]. Deadlines and TLS are those of [http].
type Admin struct {
	Addr  string   `toml:"addr" doc:"Where the admin plane listens, as host:port. Port 0 picks one." restart:"true"`
	Hosts []string `toml:"hosts" doc:"More Host values that the admin plane answers on loopback." restart:"true"`
}

// DefaultAdmin is the section's built-in default.
func DefaultAdmin() Admin { return Admin{Addr: "127.0.0.1:9600"} }

// Validate checks the section by itself.
func (a Admin) Validate() error { return checkAddr(a.Addr) }

// Limits is the section [limits]: what one client, and all together, may use.
type Limits struct {
	Body         config.Size `toml:"body" doc:"The largest request body, unless the route has its own cap." seed:"ingress.body_bytes,limits.max_body_bytes" restart:"true"`
	Header       config.Size `toml:"header" doc:"The largest header of a request." restart:"true"`
	Inflate      config.Size `toml:"inflate" doc:"The largest request body after decompression." seed:"ingress.decompress_abs_bytes" restart:"true"`
	InflateRatio int         `toml:"inflate_ratio" doc:"How much larger than sent a request body may be after decompression." seed:"ingress.decompress_max_ratio,limits.decompress_ratio_cap" restart:"true"`
	Inflight     int         `toml:"inflight" doc:"How many requests may be answered at a time. Streams are counted apart." seed:"ingress.max_inflight" restart:"true"`
	Streams      int         `toml:"streams" doc:"How many streams (SSE and WebSocket) may be open at a time." restart:"true"`
	MaxConns     int         `toml:"max_conns" doc:"How many connections a listener keeps." seed:"max_conns" restart:"true"`
	ConnsPerIP   int         `toml:"conns_per_ip" doc:"How many connections one IP may have. An IPv6 /64 counts as one IP." restart:"true"`
	Rate         int         `toml:"rate" unit:"requests a second" doc:"How many requests one IP may send." seed:"ingress.rps_limit,limits.rps" restart:"true"`
	Burst        int         `toml:"burst" doc:"How many requests one IP may send at once after a pause." restart:"true"`
	WorkRate     int         `toml:"work_rate" unit:"requests a second" doc:"How many requests a service takes into its work queue." restart:"true"`
}

// DefaultLimits is the section's built-in default.
func DefaultLimits() Limits {
	return Limits{
		Body: 1 * config.MiB, Header: 32 * config.KiB, Inflate: 10 * config.MiB, InflateRatio: 10,
		Inflight: 512, Streams: 1024, MaxConns: 4096, ConnsPerIP: 256, Rate: 500, Burst: 1000, WorkRate: 500,
	}
}

// Validate checks the section by itself.
func (l Limits) Validate() error {
	var wrong []error
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"body", int64(l.Body)}, {"header", int64(l.Header)}, {"inflate", int64(l.Inflate)}, {"inflate_ratio", int64(l.InflateRatio)},
		{"inflight", int64(l.Inflight)}, {"streams", int64(l.Streams)}, {"max_conns", int64(l.MaxConns)},
		{"conns_per_ip", int64(l.ConnsPerIP)}, {"rate", int64(l.Rate)}, {"burst", int64(l.Burst)}, {"work_rate", int64(l.WorkRate)},
	} {
		if one.value < 1 {
			wrong = append(wrong, config.Wrong(one.key, "Use 1 or more.", "with %d, nobody would be served", one.value))
		}
	}
	return errors.Join(wrong...)
}

func checkAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return config.Wrong("addr", "Write host:port, like 127.0.0.1:8080.", "%q is not host:port", addr)
	}
	return nil
}
