package kad

import (
	"log/slog"
	"sync"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/gologshim"
)

// quiet silences the library's logs, which would go to the standard error
// output beside the node's own and in another form. What went wrong is in the
// errors that it returns. The logs are global to the program, and only this
// package uses them.
var quiet = sync.OnceFunc(func() {
	gologshim.SetDefaultHandler(slog.DiscardHandler)
	_ = golog.SetLogLevel("*", "fatal") // both words are known
})
