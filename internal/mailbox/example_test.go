package mailbox_test

import (
	"context"
	"fmt"
	"time"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

func Example() {
	c := mailbox.DefaultConfig()
	engine := mailbox.NewRAM(flow.NewInventory(), c.RAMSpec(false))
	defer engine.Close()
	ctx := context.Background()

	_, _ = engine.Send(ctx, mailbox.Message{Box: "thumbnails", Key: "photo-1", Body: []byte("b3:…")})
	again, _ := engine.Send(ctx, mailbox.Message{Box: "thumbnails", Key: "photo-1", Body: []byte("b3:…")})
	fmt.Println("sent before:", again.Repeated)

	job, _ := engine.Receive(ctx, "thumbnails", time.Minute, 0)
	fmt.Printf("delivery %d: %s\n", job.Deliveries, job.Body)
	_ = engine.Nack(ctx, "thumbnails", job.Receipt, 0, "the store is busy")

	job, _ = engine.Receive(ctx, "thumbnails", time.Minute, 0)
	fmt.Printf("delivery %d: %s\n", job.Deliveries, job.Body)
	fmt.Println("acknowledged:", engine.Ack(ctx, "thumbnails", job.Receipt) == nil)
	// Output:
	// sent before: true
	// delivery 1: b3:…
	// delivery 2: b3:…
	// acknowledged: true
}
