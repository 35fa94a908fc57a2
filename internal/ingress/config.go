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
	Addr     string   `toml:"addr" doc:"The listen address of the gateway, as host:port. Port 0 picks one." restart:"true"`
	Hosts    []string `toml:"hosts" doc:"More Host values that a loopback listener answers, besides localhost and its own address, and that a trusted proxy may say that a client used." restart:"true"`
	CertFile string   `toml:"cert_file" doc:"PEM file with the certificate and its chain. With it, the listener speaks TLS. Read again at every reload."`
	KeyFile  string   `toml:"key_file" doc:"PEM file with the key of cert_file. Read again at every reload."`
	ClientCA string   `toml:"client_ca" doc:"PEM file with the authorities of client certificates; a client certificate is then required (mTLS). Read again at every reload."`
	Warm     bool     `toml:"warm" doc:"Answer plain GETs of prepared responses before the HTTP parser, on loopback listeners without TLS." restart:"true"`

	CORS   []string `toml:"cors" doc:"Origins whose pages may read from the gateway, like https://maps.example.org. A star allows every page to read; writes need an origin that is listed by name. Empty: only pages of this node. What http.public opens every page may read."`
	Public []string `toml:"public" doc:"Groups of reads that need no capability, not even beyond loopback: objects, tiles, assets, sites, names, registry. What a stranger reads must be here: see limits.public_work." restart:"true"`

	LAN bool `toml:"lan" doc:"Listen on the addresses of this machine in private networks too, without TLS and for reads only: of the groups in http.public, or if that is empty of objects, tiles, assets and sites." restart:"true"`

	ACME ACME `toml:"acme" doc:"Certificates from an authority, obtained and renewed by the node."`

	PublicURL      string   `toml:"public_url" doc:"The URL under which clients see this node, like https://maps.example.org or https://example.org/maps. It is in TileJSON, OpenAPI and Location. Empty: what the request says, or a trusted proxy."`
	TrustedProxies []string `toml:"trusted_proxies" doc:"Addresses and networks of proxies in front of this node. Forwarded and X-Forwarded-For, -Proto and -Host are read from these only, for limits, logs and URLs. What comes through a proxy has no rights that come with loopback. A listener beyond loopback without TLS is for these only: it closes all other connections."`
	ProxyProtocol  bool     `toml:"proxy_protocol" doc:"Connections from http.trusted_proxies begin with a header of the PROXY protocol, version 1 or 2." restart:"true"`

	HSTS config.Duration `toml:"hsts" doc:"The max-age of Strict-Transport-Security on TLS listeners. Zero omits the header." restart:"true"`

	HeaderTimeout config.Duration `toml:"header_timeout" doc:"The deadline for the header of a request." seed:"read_timeout" restart:"true"`
	IdleTimeout   config.Duration `toml:"idle_timeout" doc:"The maximum idle time of a connection between two requests." seed:"idle_timeout" restart:"true"`
	TLSTimeout    config.Duration `toml:"tls_timeout" doc:"The deadline of a TLS handshake." restart:"true"`
	Deadline      config.Duration `toml:"deadline" doc:"The deadline of control routes without their own." seed:"ingress.timeout_secs" restart:"true"`
	FirstByte     config.Duration `toml:"first_byte" doc:"The deadline for the first byte of a transfer." restart:"true"`
	Progress      config.Duration `toml:"progress" doc:"The maximum time of a transfer without progress in either direction." seed:"write_timeout" restart:"true"`
	Heartbeat     config.Duration `toml:"heartbeat" doc:"The interval of heartbeats on a silent stream." restart:"true"`
}

// DefaultHTTP is the section's built-in default.
func DefaultHTTP() HTTP {
	return HTTP{
		Addr: "127.0.0.1:8080", Warm: true, HSTS: 365 * 24 * time.Hour,
		ACME:          DefaultACME(),
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
	case h.CertFile != "" && len(h.ACME.Domains) > 0:
		return config.Invalid("acme.domains", "Remove cert_file and key_file, or the domains.", "certificates are to be read from files and to be obtained")
	case (h.CertFile == "") != (h.KeyFile == ""):
		return config.Invalid("cert_file", "Set cert_file and key_file together.", "a certificate without a key, or a key without a certificate")
	case h.ClientCA != "" && h.CertFile == "":
		return config.Invalid("client_ca", "Set cert_file and key_file too, or remove client_ca.", "client certificates are required, but the listener has no TLS")
	}
	var wrong []error
	if err := checkOrigins(h.CORS); err != nil {
		wrong = append(wrong, err)
	}
	if _, err := parseProxies(h.TrustedProxies); err != nil {
		wrong = append(wrong, err)
	}
	if h.ProxyProtocol && len(h.TrustedProxies) == 0 {
		wrong = append(wrong, config.Invalid("proxy_protocol", "List the addresses of the proxies in http.trusted_proxies.", "no proxy is trusted to send the header"))
	}
	if err := checkPublicURL(h.PublicURL); err != nil {
		wrong = append(wrong, err)
	}
	if err := checkPublic(h.Public); err != nil {
		wrong = append(wrong, err)
	}
	if h.HSTS < 0 || h.HSTS%time.Second != 0 {
		wrong = append(wrong, config.Invalid("hsts", "Use whole seconds, like 8760h for a year, or 0 to omit the header.", "%s is not a number of whole seconds", h.HSTS))
	}
	for _, one := range []struct {
		key   string
		value config.Duration
	}{
		{"header_timeout", h.HeaderTimeout}, {"idle_timeout", h.IdleTimeout}, {"tls_timeout", h.TLSTimeout},
		{"deadline", h.Deadline}, {"first_byte", h.FirstByte}, {"progress", h.Progress}, {"heartbeat", h.Heartbeat},
	} {
		if one.value <= 0 {
			wrong = append(wrong, config.Invalid(one.key, "Use a duration above zero: every wait has a deadline.", "%s is not above zero", one.value))
		}
	}
	return errors.Join(wrong...)
}

// TLSFiles is what TLS is made from.
func (h HTTP) TLSFiles() TLSFiles {
	return TLSFiles{Cert: h.CertFile, Key: h.KeyFile, ClientCA: h.ClientCA}
}

// Admin is the section [admin]. Deadlines are those of [http].
type Admin struct {
	Addr  string   `toml:"addr" doc:"The listen address of the admin plane, as host:port. Port 0 picks one." restart:"true"`
	Hosts []string `toml:"hosts" doc:"More Host values that the admin plane answers on loopback." restart:"true"`
	TLS   string   `toml:"tls" enum:"auto,on,off" doc:"Whether the admin plane speaks TLS, whatever the gateway does: auto (if http.cert_file is set), on (with the certificates of the gateway), off." restart:"true"`
}

// DefaultAdmin is the section's built-in default.
func DefaultAdmin() Admin { return Admin{Addr: "127.0.0.1:9600", TLS: "auto"} }

// Validate checks the section by itself.
func (a Admin) Validate() error { return checkAddr(a.Addr) }

// Limits is the section [limits]: what one client, and all together, may use.
type Limits struct {
	Body           config.Size `toml:"body" doc:"The largest request body, unless the route has its own cap." seed:"ingress.body_bytes,limits.max_body_bytes" restart:"true"`
	Header         config.Size `toml:"header" doc:"The largest header of a request." restart:"true"`
	Inflate        config.Size `toml:"inflate" doc:"The largest request body after decompression." seed:"ingress.decompress_abs_bytes" restart:"true"`
	InflateRatio   int         `toml:"inflate_ratio" doc:"The maximum ratio between a request body after and before decompression." seed:"ingress.decompress_max_ratio,limits.decompress_ratio_cap" restart:"true"`
	Memory         config.Size `toml:"memory" doc:"The memory of what requests hold: headers that arrive, bodies that are read whole (compressed ones as what they inflate to) and large answers. One client may hold at most as much as is left. Where there is memory for it, the default is a sixteenth of that, up to 1GiB." restart:"true"`
	Inflight       int         `toml:"inflight" doc:"The maximum number of concurrent requests. One client may hold at most as many as are still free; one route, four times that. Streams are counted separately; health and the local socket are not counted." seed:"ingress.max_inflight" restart:"true"`
	Reads          int         `toml:"reads" doc:"The maximum number of concurrent requests for what is in memory or in a file: tiles, objects, assets, sites. One client may hold at most as many as are still free; the rest waits its turn." restart:"true"`
	ReadsWaiting   int         `toml:"reads_waiting" doc:"How many of these requests may wait. When it is full, the client with most of them loses its newest one, with 429." restart:"true"`
	Streams        int         `toml:"streams" doc:"The maximum number of open streams (SSE and WebSocket)." restart:"true"`
	MaxConns       int         `toml:"max_conns" doc:"The maximum number of connections of a listener." seed:"max_conns" restart:"true"`
	ConnsPerIP     int         `toml:"conns_per_ip" doc:"The maximum number of connections of one IP. An IPv6 /64 counts as one IP." seed:"server.connection_limit_per_ip" restart:"true"`
	OpenRate       int         `toml:"open_rate" unit:"connections a second" doc:"The rate at which one IP may open connections without TLS. The excess is closed at once." restart:"true"`
	OpenBurst      int         `toml:"open_burst" doc:"The burst of connections without TLS that one IP may open after a pause." restart:"true"`
	HandshakeRate  int         `toml:"handshake_rate" unit:"connections a second" doc:"The rate at which one IP may open connections with TLS: a handshake costs as much as a hundred requests. The excess is closed before the handshake." restart:"true"`
	HandshakeBurst int         `toml:"handshake_burst" doc:"The burst of connections with TLS that one IP may open after a pause." restart:"true"`
	Rate           int         `toml:"rate" unit:"requests a second" doc:"The rate of requests of one IP, except for what is in memory or in a file, and for callers on this machine with a capability." seed:"ingress.rps_limit,limits.rps,ratelimit.*" restart:"true"`
	Burst          int         `toml:"burst" doc:"The burst of requests of one IP after a pause." restart:"true"`
	Stuck          int         `toml:"stuck" doc:"The number of stuck requests of one route, whose handler did not return by its deadline, from which the route refuses new ones at once." restart:"true"`
	PublicWork     int         `toml:"public_work" unit:"operations a second" doc:"The rate at which callers without a capability may make this node ask other nodes and origins, on routes that http.public opens. One client may use at most what is still free in a second. Zero: never; they read what is here." restart:"true"`
	PublicBytes    config.Rate `toml:"public_bytes" doc:"The rate at which callers without a capability may read what http.public opens, all together, from beyond this machine. It is shared evenly: one client gets what the others leave." restart:"true"`
	WorkRate       int         `toml:"work_rate" unit:"requests a second" doc:"The rate at which a service accepts requests into its work queue, except from callers on this machine with a capability. One client may use at most what is still free in a second; alone it may use all." seed:"quotas.*" restart:"true"`
}

// DefaultLimits is the section's built-in default.
func DefaultLimits() Limits {
	return Limits{
		Reads: 512, ReadsWaiting: 8192,
		Body: 1 * config.MiB, Header: 32 * config.KiB, Inflate: 10 * config.MiB, InflateRatio: 10, Memory: 128 * config.MiB,
		Inflight: 512, Streams: 1024, MaxConns: 4096, ConnsPerIP: 256, Rate: 500, Burst: 1000, WorkRate: 500, Stuck: 32,
		OpenRate: 1000, OpenBurst: 2000, HandshakeRate: 50, HandshakeBurst: 256,
	}
}

// Validate checks the section by itself.
func (l Limits) Validate() error {
	var wrong []error
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"body", int64(l.Body)}, {"header", int64(l.Header)}, {"inflate", int64(l.Inflate)}, {"inflate_ratio", int64(l.InflateRatio)}, {"memory", int64(l.Memory)},
		{"inflight", int64(l.Inflight)}, {"streams", int64(l.Streams)}, {"max_conns", int64(l.MaxConns)},
		{"conns_per_ip", int64(l.ConnsPerIP)}, {"rate", int64(l.Rate)}, {"burst", int64(l.Burst)}, {"work_rate", int64(l.WorkRate)},
		{"reads", int64(l.Reads)}, {"reads_waiting", int64(l.ReadsWaiting)}, {"stuck", int64(l.Stuck)}, {"open_rate", int64(l.OpenRate)}, {"open_burst", int64(l.OpenBurst)},
		{"handshake_rate", int64(l.HandshakeRate)}, {"handshake_burst", int64(l.HandshakeBurst)},
	} {
		if one.value < 1 {
			wrong = append(wrong, config.Invalid(one.key, "Use 1 or more.", "%d is below 1", one.value))
		}
	}
	if l.PublicWork < 0 {
		wrong = append(wrong, config.Invalid("public_work", "Use 0 for none, or more.", "%d is below 0", l.PublicWork))
	}
	if l.PublicBytes != 0 && l.PublicBytes < MinBandwidth {
		wrong = append(wrong, config.Invalid("public_bytes", `Use "32KiB" or more, or "off".`, "%s a second is too slow for any transfer", l.PublicBytes))
	}
	return errors.Join(wrong...)
}

// MinBandwidth is the lowest limit of bytes a second: a chunk between two nodes
// has to arrive within the patience of the other one.
const MinBandwidth config.Rate = 32 << 10

func checkAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return config.Invalid("addr", "Write host:port, like 127.0.0.1:8080.", "%q is not host:port", addr)
	}
	return nil
}
