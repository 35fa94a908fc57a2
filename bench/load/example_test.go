package load_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"micronode/bench/load"
)

// A burst of two requests over one connection, each answer checked.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	defer server.Close()

	left := 2
	report, err := load.Run(context.Background(), load.Plan{
		Address:     server.Listener.Addr().String(),
		Connections: 1,
		Script: func(int) (load.Exchange, bool) {
			left--
			return load.Exchange{
				Request: []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"),
				Status:  http.StatusOK, Length: 5, Body: []byte("hello"),
			}, left >= 0
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Responses, "answers")
	// Output: 2 answers
}
