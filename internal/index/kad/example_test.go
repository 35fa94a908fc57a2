package kad

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// Two nodes connect. One has an object, and the other finds its address.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	supervisor, _ := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	tasks, _ := supervisor.NewGroup(supervise.GroupSpec{Service: "index", Kind: "dht", Stage: "all", Max: 1})

	// In production these are the keys of the nodes, generated once and kept.
	_, first, _ := ed25519.GenerateKey(nil)
	_, second, _ := ed25519.GenerateKey(nil)

	there, err := Open(ctx, Spec{
		Key: first, Listen: []string{"127.0.0.1:0"},
		Advertise: func() []string { return []string{"/ip4/127.0.0.1/tcp/9500/tls"} }, // its overlay
	})
	if err != nil {
		panic(err)
	}
	defer there.Close()
	here, err := Open(ctx, Spec{Key: second, Listen: []string{"127.0.0.1:0"}, Bootstrap: there.Addrs(), Tasks: tasks})
	if err != nil {
		panic(err)
	}
	defer here.Close()
	testkit.Poll(func() bool { return here.Size() > 0 && there.Size() > 0 })

	object := b3.Of([]byte("hello"))
	fmt.Println("announced:", there.Provide(ctx, object))
	answer, err := here.Walk(ctx, record.Question{Kind: record.CID, Address: object})
	fmt.Println("found:", answer.Providers[0].Overlay, err)

	answer, err = here.Walk(ctx, record.Question{Kind: record.CID, Address: b3.Of([]byte("lost"))})
	fmt.Println("nobody has it:", len(answer.Providers), err)
	// Output:
	// announced: <nil>
	// found: [127.0.0.1:9500] <nil>
	// nobody has it: 0 <nil>
}
