package observe

import (
	"net/http"
	"net/http/pprof"
	"net/url"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// Admin is the admin plane: what an operator, a monitor and a load balancer
// ask. Every answer is worked out on the spot from what the node knows anyway;
// nothing is queued and nothing waits, so it answers when nothing else does.
type Admin struct {
	// set at construction
	Sources
	Metrics *Metrics
	Build   Build

	// Allow says who may profile the node, which shows memory and costs time:
	// a caller with a capability, or on the local socket. If it is nil, nobody.
	Allow func(*http.Request) bool
}

var noSuchPath = &fault.Error{Op: "admin", Kind: fault.NotFound, Detail: "the admin plane has no such path",
	Next: "Ask for /metrics, /healthz, /readyz, /version, /debug/inventory or /debug/pprof/."}

const pprofPrefix = "/debug/pprof/"

// ServeHTTP answers the paths of the contract.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handle := a.route(r.URL.Path)
	r = CarryCorrID(w, r)
	switch {
	case handle == nil:
		WriteProblem(w, r, noSuchPath)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		WriteProblem(w, r, fault.New("admin", fault.MethodNotAllowed, "%s only answers GET and HEAD", r.URL.Path))
	default:
		handle(w, r)
	}
}

func (a *Admin) route(path string) http.HandlerFunc {
	switch path {
	case "/metrics":
		return a.metrics
	case "/healthz":
		return Healthz
	case "/readyz":
		return a.Readyz
	case "/version":
		return a.Version
	case "/debug/inventory":
		return a.inventory
	}
	if strings.HasPrefix(path, pprofPrefix) {
		return a.pprof
	}
	return nil
}

// metrics answers a scrape. A scrape that fails says why in our own words.
func (a *Admin) metrics(w http.ResponseWriter, r *http.Request) {
	families, err := a.Metrics.Gatherer().Gather()
	if err != nil {
		WriteProblem(w, r, &fault.Error{Op: "admin.metrics", Kind: fault.Internal, Detail: err.Error(), Err: err})
		return
	}
	read := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
	promhttp.HandlerFor(read, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// Healthz answers as long as the process lives.
func Healthz(w http.ResponseWriter, r *http.Request) {
	CarryCorrID(w, r)
	writeJSON(w, http.StatusOK, "application/json", struct {
		Alive bool `json:"alive"`
	}{true})
}

// Readyz answers 200 if the node is ready for everything, or with for=read as
// long as it serves reads; otherwise 503. The body says why, either way.
func (a *Admin) Readyz(w http.ResponseWriter, r *http.Request) {
	r = CarryCorrID(w, r)
	reads, err := readyFor(r.URL.Query())
	if err != nil {
		WriteProblem(w, r, err)
		return
	}
	verdict, status := a.Readiness.Evaluate(), http.StatusOK
	if !verdict.Whole() && !(reads && verdict.Ready) {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", strconv.Itoa(verdict.RetryAfter))
	}
	writeJSON(w, status, "application/json", verdict)
}

// readyFor reads the question: for everything, or for reads.
func readyFor(query url.Values) (reads bool, err error) {
	asked, given := query["for"]
	switch {
	case !given:
		return false, nil
	case len(asked) == 1 && asked[0] == "read":
		return true, nil
	}
	wrong := fault.New("admin.readyz", fault.Malformed, "ready for %q is not a question it answers", asked)
	wrong.Next = "Ask /readyz, or /readyz?for=read for reads alone."
	return false, wrong
}

// Version answers which build this is.
func (a *Admin) Version(w http.ResponseWriter, r *http.Request) {
	CarryCorrID(w, r)
	writeJSON(w, http.StatusOK, "application/json", a.Build)
}

// inventory answers what there is that can be full, locked or running.
func (a *Admin) inventory(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "application/json", ReadInventory(a.Sources))
}

// pprof hands allowed callers to the profiler of the Go runtime. (Importing it
// also fills http.DefaultServeMux, which nothing here serves.)
func (a *Admin) pprof(w http.ResponseWriter, r *http.Request) {
	if a.Allow == nil || !a.Allow(r) {
		err := fault.New("admin.pprof", fault.Forbidden, "profiles are for the admin scope")
		err.Next = "Ask on the local socket, or with a capability of scope admin."
		WriteProblem(w, r, err)
		return
	}
	if err := checkSeconds(r); err != nil {
		WriteProblem(w, r, err)
		return
	}
	switch strings.TrimPrefix(r.URL.Path, pprofPrefix) {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// profileMost is the longest profile in seconds.
const profileMost = 60

// checkSeconds refuses a profile that would run for days.
func checkSeconds(r *http.Request) error {
	text := r.URL.Query().Get("seconds")
	if text == "" {
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err == nil && seconds > 0 && seconds <= profileMost {
		return nil
	}
	wrong := fault.New("admin.pprof", fault.Malformed, "a profile of %q seconds", text)
	wrong.Next = "Ask for more than 0 and at most 60 seconds."
	return wrong
}

// Inventory is the answer of GET /debug/inventory.
type Inventory struct {
	Queues []QueueLine      `json:"queues"`
	Locks  []LockLine       `json:"locks"`
	Tasks  []supervise.Task `json:"tasks"`
}

// QueueLine is a queue, lane, bus, snapshot or set of permits.
type QueueLine struct {
	Service   string            `json:"service"`
	Name      string            `json:"name"`
	Kind      string            `json:"kind"`
	Cap       int               `json:"cap"`
	Depth     int               `json:"depth"`
	Policy    string            `json:"policy"`
	From      string            `json:"from"`
	To        string            `json:"to"`
	Waiting   int               `json:"waiting,omitempty"`
	Each      string            `json:"each,omitempty"`
	Instances int               `json:"instances"`
	Inside    int               `json:"inside"`
	Accepted  uint64            `json:"accepted"`
	Delivered uint64            `json:"delivered"`
	Refused   uint64            `json:"refused"`
	Expired   uint64            `json:"expired"`
	Dropped   uint64            `json:"dropped"`
	Coalesced uint64            `json:"coalesced"`
	Lagged    map[string]uint64 `json:"lagged,omitempty"`
}

// LockLine is a named lock.
type LockLine struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Rank    int    `json:"rank"`
}

// ReadInventory reads the inventory and the supervisor.
func ReadInventory(sources Sources) Inventory {
	all := Inventory{Queues: []QueueLine{}, Locks: []LockLine{}, Tasks: []supervise.Task{}}
	if sources.Inventory != nil {
		for _, part := range sources.Inventory.Read() {
			if part.Kind == "lock" {
				all.Locks = append(all.Locks, LockLine{part.Service, part.Name, part.Rank})
			} else {
				all.Queues = append(all.Queues, queueLine(part))
			}
		}
	}
	if sources.Supervisor != nil {
		all.Tasks = append(all.Tasks, sources.Supervisor.Tasks()...)
	}
	return all
}

func queueLine(part flow.Stat) QueueLine {
	return QueueLine{
		Service: part.Service, Name: part.Name, Kind: part.Kind, Cap: part.Cap, Depth: part.Depth,
		Policy: part.Policy, From: part.From, To: part.To, Waiting: part.Waiting, Each: part.Each,
		Instances: part.Instances, Inside: part.Inside, Accepted: part.Accepted, Delivered: part.Delivered,
		Refused: part.Refused, Expired: part.Expired, Dropped: part.Dropped, Coalesced: part.Coalesced, Lagged: part.Lagged,
	}
}
