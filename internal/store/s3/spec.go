package s3

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"micronode/fault"
	"micronode/internal/config"
)

const opSpec = "s3.open"

// Defaults and limits of a Spec.
const (
	defaultRegion    = "us-east-1"
	defaultMaxObject = 1 << 30
	defaultTimeout   = 30 * time.Second
	defaultPuts      = 16

	// largestCopy is the maximum that S3 copies at once on the server's side.
	// An object whose address is computed while it is uploaded has to be copied
	// to it.
	largestCopy = 5 << 30
)

// The settings, as errors name them.
const (
	settingURL          = "store.url"
	settingRegion       = "store.region"
	settingAccessKey    = "store.access_key"
	settingSecretKey    = "store.secret_key"
	settingCAFile       = "store.ca_file"
	settingCreateBucket = "store.create_bucket"
	settingTimeout      = "store.timeout"
	settingMaxObject    = "store.max_object_bytes"
)

// Spec configures the connection to a bucket.
type Spec struct {
	// Service is the owner of the store in the inventory.
	Service string

	// URL is where objects are kept: s3+https://host[:port]/bucket[/prefix].
	// With s3+http nothing is encrypted, so the host has to be this machine.
	URL string

	// Region is what requests are signed for; us-east-1 if empty, which most
	// servers other than Amazon's accept.
	Region string

	AccessKey string
	SecretKey string

	// CAFile names a file with certificates of authorities to trust instead of
	// the system's.
	CAFile string

	// CreateBucket creates a missing bucket.
	CreateBucket bool

	// MaxObject is how large one object may be: 1 GiB if zero, 5 GiB at most.
	MaxObject int64

	// Puts is how many bodies may be uploaded at a time; 16 if zero. Each takes
	// up to 8 MiB of memory.
	Puts int

	// Timeout is how long one call may take, or one read may wait for data; 30
	// seconds if zero. A caller's deadline that is earlier wins.
	Timeout time.Duration

	dial func(ctx context.Context, network, address string) (net.Conn, error) // for tests
}

// location is a parsed URL.
type location struct {
	secure bool
	host   string // with the port, if there is one
	bucket string
	prefix string // empty, or ends with a slash
}

// resolve fills in defaults, and rejects invalid settings.
func (s *Spec) resolve() (location, error) {
	if s.Region == "" {
		s.Region = defaultRegion
	}
	if s.MaxObject == 0 {
		s.MaxObject = defaultMaxObject
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.Puts == 0 {
		s.Puts = defaultPuts
	}
	switch {
	case s.AccessKey == "":
		return location{}, specFault(fault.Unauthorized, "Set "+settingAccessKey+".", "there is no access key")
	case s.SecretKey == "":
		return location{}, specFault(fault.Unauthorized, "Set "+settingSecretKey+".", "there is no secret key")
	case s.MaxObject < 0 || s.MaxObject > largestCopy:
		return location{}, specFault(fault.Malformed, "Set "+settingMaxObject+" to at most 5 GiB: S3 copies no more than that in one piece.",
			"objects of up to %d bytes", s.MaxObject)
	case s.Timeout < 0 || s.Puts < 0:
		return location{}, specFault(fault.Malformed, "Leave it out, or write a number above zero.", "a negative time-out or number of puts")
	}
	return parse(s.URL)
}

// parse reads the URL of a bucket.
func parse(text string) (location, error) {
	const good = "Write " + settingURL + ` as "s3+https://host/bucket" or "s3+https://host:port/bucket/prefix".`
	u, err := url.Parse(text)
	if err != nil {
		return location{}, specFault(fault.Malformed, good, "the URL of the bucket does not parse")
	}
	at := location{secure: u.Scheme == "s3+https", host: u.Host}
	bucket, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	at.bucket = bucket
	if prefix != "" {
		at.prefix = prefix + "/"
	}
	switch {
	case u.User != nil:
		return location{}, specFault(fault.Malformed, "Take the keys out of the URL and set "+settingAccessKey+" and "+settingSecretKey+".", "keys in a URL would be shown and logged")
	case !at.secure && u.Scheme != "s3+http":
		return location{}, specFault(fault.Malformed, good, "the scheme is %q", u.Scheme)
	case !at.secure && !config.IsLoopbackHost(u.Hostname()):
		return location{}, specFault(fault.Malformed, "Use s3+https.", "s3+http is not encrypted, and allowed on this machine only")
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return location{}, specFault(fault.Malformed, good, "the URL needs a host and a bucket, and nothing after them but a prefix")
	case s3utils.CheckValidBucketNameStrict(bucket) != nil:
		return location{}, specFault(fault.Malformed, good, "%q is not the name of a bucket", bucket)
	case strings.Contains("/"+at.prefix, "//") || strings.Contains("/"+at.prefix, "/./") || strings.Contains("/"+at.prefix, "/../"):
		return location{}, specFault(fault.Malformed, good, "the prefix %q has an empty or dotted part", prefix)
	}
	return at, nil
}

func specFault(kind fault.Kind, next, format string, args ...any) error {
	return fault.New(opSpec, kind, format, args...).Advise(next)
}

// newTransport returns the transport. It takes no proxy from the environment:
// where objects go is decided by the configuration alone.
func newTransport(spec Spec) (*http.Transport, error) {
	trust, err := config.TLSFiles{CA: config.FileSetting{Setting: settingCAFile, File: spec.CAFile}}.TLS(opSpec)
	if err != nil {
		return nil, err
	}
	dial := spec.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: spec.Timeout, KeepAlive: 60 * time.Second}).DialContext
	}
	return &http.Transport{
		DialContext:         dial,
		TLSHandshakeTimeout: spec.Timeout,
		MaxIdleConnsPerHost: 2 * spec.Puts,
		IdleConnTimeout:     60 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10, // bodies are long, and a connection has one of each
		ReadBufferSize:      64 << 10,
		TLSClientConfig:     trust,
	}, nil
}
