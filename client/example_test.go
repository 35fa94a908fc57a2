package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// start runs a small node in this process, as `micronode run` would in another.
func start(node http.Handler) (url string, stop func()) {
	server := httptest.NewServer(node)
	return server.URL, server.Close
}

func Example() {
	url, stop := start(client.NewFakeNode())
	defer stop()
	ctx := context.Background()

	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	object, err := c.Put(ctx, strings.NewReader("hello\n"), client.PutOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(object.Address, object.Size, object.Created)

	r, err := c.Get(ctx, object.Address, client.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	_, err = io.Copy(os.Stdout, r)
	fmt.Println("error:", err)
	// Output:
	// b3:8e4c7c1b99dbfd50e7a95185fead5ee1448fa904a2fdd778eaf5f2dbfd629a99 6 true
	// hello
	// error: <nil>
}

func ExampleClient_Put() {
	url, stop := start(client.NewFakeNode())
	defer stop()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	// The address is known beforehand. If the file differs, nothing is stored.
	expected := b3.Of([]byte("release 1.0"))
	_, err = c.Put(context.Background(), strings.NewReader("release 1.O"), client.PutOptions{Want: expected})
	fmt.Println(errors.Is(err, fault.IntegrityFail))
	fmt.Println(fault.NextOf(err))

	object, err := c.Put(context.Background(), strings.NewReader("release 1.0"), client.PutOptions{
		Want:     expected,
		Progress: func(done, total int64) { fmt.Println(done, "of", total) },
	})
	fmt.Println(object.Created, err)
	// Output:
	// true
	// Nothing was stored. Check the source, or leave out Want.
	// 11 of 11
	// true <nil>
}

func ExampleClient_Get_part() {
	node := client.NewFakeNode()
	address := node.Add([]byte("a needle in a haystack"))
	url, stop := start(node)
	defer stop()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	r, err := c.Get(context.Background(), address, client.GetOptions{Offset: 2, Length: 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	part, err := io.ReadAll(r)
	fmt.Printf("%s, of %d bytes in all, %v\n", part, r.Size(), err)
	// Output:
	// needle, of 22 bytes in all, <nil>
}

func ExampleClient_Download() {
	node := client.NewFakeNode()
	address := node.Add([]byte("what was asked for"))
	node.Corrupt(address, []byte("what a liar sends!"))
	url, stop := start(node)
	defer stop()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	err = c.Download(context.Background(), address, filepath.Join(folder, "file"))
	left, _ := os.ReadDir(folder)
	fmt.Println(fault.KindOf(err).Code(), len(left))
	fmt.Println(fault.NextOf(err))
	// Output:
	// IntegrityFail 0
	// No corrupt bytes were stored. Fetch from another provider, or put the object again.
}

func ExampleClient_Ready() {
	url, stop := start(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"ready":true,"write_ready":false,"degraded":false,"missing":["store/disk"],
			"reasons":[{"dep":"store/disk","reason":"the disk is full","next":"Make room."}],"retry_after":1}`)
	}))
	defer stop()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	verdict, err := c.Ready(context.Background())
	fmt.Println(verdict.Ready, verdict.WriteReady, err)
	for _, reason := range verdict.Reasons {
		fmt.Printf("%s: %s. %s\n", reason.Dep, reason.Reason, reason.Next)
	}
	// Output:
	// true false <nil>
	// store/disk: the disk is full. Make room.
}

func ExampleCorrID() {
	url, stop := start(client.NewFakeNode())
	defer stop()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	ctx := client.WithCorrID(context.Background(), "nightly-backup-17")
	_, err = c.Stat(ctx, b3.Of([]byte("never stored")))
	fmt.Println(fault.KindOf(err).Code(), client.CorrID(err))
	// Output:
	// NotFound nightly-backup-17
}

func ExampleClient_Subscribe() {
	url, stop := start(client.NewFakeNode())
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	s, err := c.Subscribe(ctx, "news/local")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if _, err := c.Publish(ctx, "news/local", []byte("the bridge is open again")); err != nil {
		fmt.Println(err)
		return
	}
	message, err := s.Next(ctx)
	fmt.Printf("%s: %s (signed: %t), %v\n", message.Topic, message.Data, message.Signed, err)
	// Output:
	// news/local: the bridge is open again (signed: true), <nil>
}
