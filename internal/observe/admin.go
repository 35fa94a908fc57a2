package observe

import (
	"net/http"
	"net/http/pprof"
	"net/url"
	runtimepprof "runtime/pprof"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// Admin is the admin plane: the endpoints for operators, monitors and load
// balancers. Every answer is computed on the spot from state in memory; nothing
// is queued and nothing waits, so it answers when nothing else does.
type Admin struct {
	// set at construction
	Sources
	Metrics *Metrics
	Build   Build

	// Allow says which requests may profile the node, which shows memory and
	// costs time: those with a capability, or on the local socket. If it is
	// nil, none may.
	Allow func(*http.Request) bool
}

var noSuchPath = &fault.Error{Op: "admin", Kind: fault.NotFound, Detail: "the admin plane has no such path",
	Next: "Ask for /metrics, /healthz, /readyz, /version, /debug/inventory or /debug/pprof/."}

var noSuchProfile = &fault.Error{Op: "admin.pprof", Kind: fault.NotFound, Detail: "there is no such profile", Next: "GET /debug/pprof/ lists them."}

const pprofPrefix = "/debug/pprof/"

// ServeHTTP answers the paths of the contract.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handle := a.route(r.URL.Path)
	r = ensureCorrID(w, r)
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
		return healthz
	case "/readyz":
		return a.readyz
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

// metrics answers a scrape. A scrape that fails answers with a Problem.
func (a *Admin) metrics(w http.ResponseWriter, r *http.Request) {
	families, err := a.Metrics.Gatherer().Gather()
	if err != nil {
		WriteProblem(w, r, &fault.Error{Op: "admin.metrics", Kind: fault.Internal, Detail: err.Error(), Err: err})
		return
	}
	read := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
	promhttp.HandlerFor(read, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// healthz answers as long as the process lives.
func healthz(w http.ResponseWriter, r *http.Request) {
	ensureCorrID(w, r)
	writeJSON(w, http.StatusOK, "application/json", HealthResponse{true})
}

// HealthResponse is the answer of GET /healthz.
type HealthResponse struct {
	Alive bool `json:"alive"`
}

// readyz answers 200 if the node is ready for everything, or with for=read as
// long as it serves reads; otherwise 503. The body has the reasons, either way.
func (a *Admin) readyz(w http.ResponseWriter, r *http.Request) {
	r = ensureCorrID(w, r)
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

// readyFor parses the query: ready for everything, or for reads.
func readyFor(query url.Values) (reads bool, err error) {
	asked, given := query["for"]
	switch {
	case !given:
		return false, nil
	case len(asked) == 1 && asked[0] == "read":
		return true, nil
	}
	return false, fault.New("admin.readyz", fault.Malformed, "/readyz does not know for=%q", asked).
		Advise("Use /readyz, or /readyz?for=read for reads only.")
}

// Version answers which build this is.
func (a *Admin) Version(w http.ResponseWriter, r *http.Request) {
	ensureCorrID(w, r)
	writeJSON(w, http.StatusOK, "application/json", a.Build)
}

// inventory answers with all queues, locks and tasks.
func (a *Admin) inventory(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "application/json", readInventory(a.Sources))
}

// pprof passes allowed requests to the profiler of the Go runtime. (Importing
// it also fills http.DefaultServeMux, which nothing here serves.)
func (a *Admin) pprof(w http.ResponseWriter, r *http.Request) {
	if a.Allow == nil || !a.Allow(r) {
		err := fault.New("admin.pprof", fault.Forbidden, "profiles need the scope admin").
			Advise("Ask on the local socket, or with a capability of scope admin.")
		WriteProblem(w, r, err)
		return
	}
	if err := checkSeconds(r); err != nil {
		WriteProblem(w, r, err)
		return
	}
	switch name := strings.TrimPrefix(r.URL.Path, pprofPrefix); name {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "":
		pprof.Index(w, r)
	default:
		if runtimepprof.Lookup(name) == nil {
			WriteProblem(w, r, noSuchProfile)
			return
		}
		pprof.Index(w, r)
	}
}

// maxProfileSeconds is the longest profile in seconds.
const maxProfileSeconds = 60

// checkSeconds refuses a profile that would run for days.
func checkSeconds(r *http.Request) error {
	text := r.URL.Query().Get("seconds")
	if text == "" {
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err == nil && seconds > 0 && seconds <= maxProfileSeconds {
		return nil
	}
	return fault.New("admin.pprof", fault.Malformed, "a profile of %q seconds", text).
		Advise("Ask for more than 0 and at most 60 seconds.")
}

// InventoryResponse is the answer of GET /debug/inventory.
type InventoryResponse struct {
	Queues []QueueInfo      `json:"queues"`
	Locks  []struct{}       `json:"locks"` // empty: no lock has a name. Clients of this answer expect the field.
	Tasks  []supervise.Task `json:"tasks"`
}

// QueueInfo is a queue, lane, bus, snapshot or set of permits.
type QueueInfo struct {
	Service   string            `json:"service"`
	Name      string            `json:"name"`
	Kind      string            `json:"kind"`
	Cap       int               `json:"cap"`
	Depth     int               `json:"depth"`
	Policy    string            `json:"policy"`
	Displaces bool              `json:"displaces,omitempty"` // first from the class that holds most
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

// readInventory reads the inventory and the supervisor.
func readInventory(sources Sources) InventoryResponse {
	all := InventoryResponse{Queues: []QueueInfo{}, Locks: []struct{}{}, Tasks: []supervise.Task{}}
	if sources.Inventory != nil {
		for _, stat := range sources.Inventory.Read() {
			all.Queues = append(all.Queues, newQueueInfo(stat))
		}
	}
	if sources.Supervisor != nil {
		all.Tasks = append(all.Tasks, sources.Supervisor.Tasks()...)
	}
	return all
}

func newQueueInfo(stat flow.Stat) QueueInfo {
	return QueueInfo{
		Service: stat.Service, Name: stat.Name, Kind: stat.Kind, Cap: stat.Cap, Depth: stat.Depth,
		Policy: stat.Policy, Displaces: stat.Displaces, From: stat.From, To: stat.To, Waiting: stat.Waiting, Each: stat.Each,
		Instances: stat.Instances, Inside: stat.Inside, Accepted: stat.Accepted, Delivered: stat.Delivered,
		Refused: stat.Refused, Expired: stat.Expired, Dropped: stat.Dropped, Coalesced: stat.Coalesced, Lagged: stat.Lagged,
	}
}
