package spawn

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"micronode/internal/flow"
)

func spawns(ctx context.Context, wg *sync.WaitGroup, g *errgroup.Group) {
	go work()                    // want `go statement outside supervise and flow: a goroutine needs an owner that restarts, drains and counts it: use supervise.Service, Pool or Group`
	wg.Go(work)                  // want `\(\*sync.WaitGroup\).Go starts a goroutine: .*use supervise.Service, Pool or Group`
	time.AfterFunc(1, work)      // want `time.AfterFunc starts a goroutine`
	context.AfterFunc(ctx, work) // want `context.AfterFunc starts a goroutine`
	g.Go(nil)                    // want `\(\*errgroup.Group\).Go starts a goroutine`
	g.TryGo(nil)                 // want `\(\*errgroup.Group\).TryGo starts a goroutine`
	later := time.AfterFunc      // want `time.AfterFunc starts a goroutine`
	_ = later
	flow.Start(work)
	time.NewTimer(1).Stop()
	g.Wait()
}

func work() {}
