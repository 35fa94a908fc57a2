package kad

import (
	"log/slog"
	"sync"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/gologshim"
)

// silenceLogs silences the library's logs, which would go to standard error
// besides the node's own and in another format. Failures are in the errors that
// it returns. The logs are global to the program, and only this package uses
// them.
var silenceLogs = sync.OnceFunc(func() {
	gologshim.SetDefaultHandler(slog.DiscardHandler)
	_ = golog.SetLogLevel("*", "fatal") // both arguments are valid
})
