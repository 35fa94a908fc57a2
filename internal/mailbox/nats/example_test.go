package nats

import (
	"context"
	"fmt"
	"time"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
)

func Example() {
	servers := newFakeServer() // in production: a NATS cluster, and Spec{URL: "nats+tls://one:4222,nats+tls://two:4222,nats+tls://three:4222", Replicas: 3}
	ctx := context.Background()
	open := func() *Mailbox {
		m, err := Open(ctx, flow.NewInventory(), Spec{URL: "nats://localhost", Limits: mailboxtest.Limits(), dialer: servers})
		if err != nil {
			panic(err)
		}
		return m
	}
	here, there := open(), open()
	defer here.Close()
	defer there.Close()

	// What is sent at one node is received at another, and sending it a second
	// time is the same message.
	job := mailbox.Message{Box: "jobs", Key: "order 17", Body: []byte("paint the fence")}
	_, err := here.Send(ctx, job)
	fmt.Println(err)
	again, err := there.Send(ctx, job)
	fmt.Println(again.Repeated, err)

	got, err := there.Receive(ctx, "jobs", time.Minute, 0)
	fmt.Printf("%s, delivery %d, %v\n", got.Body, got.Deliveries, err)
	fmt.Println(here.Ack(ctx, "jobs", got.Receipt))

	// Output:
	// <nil>
	// true <nil>
	// paint the fence, delivery 1, <nil>
	// <nil>
}
