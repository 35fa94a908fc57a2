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

// What holds where a Spec says nothing, and what cannot be exceeded.
const (
	defaultRegion    = "us-east-1"
	defaultMaxObject = 1 << 30
	defaultTimeout   = 30 * time.Second
	defaultPuts      = 16

	// largestCopy is what S3 copies in one piece on the server's side. An object
	// whose address is found while it comes in has to be copied to it.
	largestCopy = 5 << 30
)

// The settings, as errors name them.
const (
	setURL       = "store.url"
	setRegion    = "store.region"
	setAccess    = "store.access_key"
	setSecret    = "store.secret_key"
	setCA        = "store.ca_file"
	setCreate    = "store.create_bucket"
	setTimeout   = "store.timeout"
	setMaxObject = "store.max_object_bytes"
)

// Spec says which bucket to use and how.
type Spec struct {
	// Service is the owner of the store in the inventory.
	Service string

	// URL is where objects are kept: s3+https://host[:port]/bucket[/prefix].
	// With s3+http nothing is encrypted, so the host has to be this machine.
	URL string

	// Region is what requests are signed for; us-east-1 if empty, which most
	// servers other than Amazon's take.
	Region string

	AccessKey string
	SecretKey string

	// CAFile names a file with certificates of authorities to trust instead of
	// the system's.
	CAFile string

	// CreateBucket makes a bucket that is missing.
	CreateBucket bool

	// MaxObject is how large one object may be: 1 GiB if zero, 5 GiB at most.
	MaxObject int64

	// Puts is how many bodies may come in at a time; 16 if zero. Each takes up
	// to 8 MiB of memory.
	Puts int

	// Timeout is how long one call may take, or one read may bring nothing; 30
	// seconds if zero. A caller's deadline that is earlier wins.
	Timeout time.Duration

	dial func(ctx context.Context, network, address string) (net.Conn, error) // for tests
}

// location is what a URL says.
type location struct {
	secure bool
	host   string // with the port, if there is one
	bucket string
	prefix string // empty, or ends with a slash
}

// complete fills in what a Spec leaves open, and refuses what cannot be meant.
func (s *Spec) complete() (location, error) {
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
		return location{}, wrong(fault.Unauthorized, "Set "+setAccess+".", "there is no access key")
	case s.SecretKey == "":
		return location{}, wrong(fault.Unauthorized, "Set "+setSecret+".", "there is no secret key")
	case s.MaxObject < 0 || s.MaxObject > largestCopy:
		return location{}, wrong(fault.Malformed, "Set "+setMaxObject+" to at most 5 GiB: S3 copies no more than that in one piece.",
			"objects of up to %d bytes", s.MaxObject)
	case s.Timeout < 0 || s.Puts < 0:
		return location{}, wrong(fault.Malformed, "Leave it out, or write a number above zero.", "a negative time-out or number of puts")
	}
	return parse(s.URL)
}

// parse reads the URL of a bucket.
func parse(text string) (location, error) {
	const good = "Write " + setURL + ` as "s3+https://host/bucket" or "s3+https://host:port/bucket/prefix".`
	u, err := url.Parse(text)
	if err != nil {
		return location{}, wrong(fault.Malformed, good, "the URL of the bucket does not parse")
	}
	at := location{secure: u.Scheme == "s3+https", host: u.Host}
	bucket, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	at.bucket = bucket
	if prefix != "" {
		at.prefix = prefix + "/"
	}
	switch {
	case u.User != nil:
		return location{}, wrong(fault.Malformed, "Take the keys out of the URL and set "+setAccess+" and "+setSecret+".", "keys do not belong into a URL, which is shown and logged")
	case !at.secure && u.Scheme != "s3+http":
		return location{}, wrong(fault.Malformed, good, "the scheme is %q", u.Scheme)
	case !at.secure && !config.OnThisMachine(u.Hostname()):
		return location{}, wrong(fault.Malformed, "Use s3+https.", "s3+http sends objects in the clear, so it is for this machine only")
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return location{}, wrong(fault.Malformed, good, "the URL needs a host and a bucket, and nothing after them but a prefix")
	case s3utils.CheckValidBucketNameStrict(bucket) != nil:
		return location{}, wrong(fault.Malformed, good, "%q is not the name of a bucket", bucket)
	case strings.Contains("/"+at.prefix, "//") || strings.Contains("/"+at.prefix, "/./") || strings.Contains("/"+at.prefix, "/../"):
		return location{}, wrong(fault.Malformed, good, "the prefix %q has an empty or dotted part", prefix)
	}
	return at, nil
}

func wrong(kind fault.Kind, next, format string, args ...any) error {
	err := fault.New(opSpec, kind, format, args...)
	err.Next = next
	return err
}

// newTransport makes the connections. There is no proxy from the environment:
// where objects go is for the configuration alone to say.
func newTransport(spec Spec) (*http.Transport, error) {
	trust, err := config.Trust{CA: config.Named{Setting: setCA, File: spec.CAFile}}.TLS(opSpec)
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
