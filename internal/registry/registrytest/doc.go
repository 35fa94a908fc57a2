// Package registrytest checks a registry for linearizability.
//
// Many clients propose, approve, commit and read at the same time, over HTTP.
// The answers that they got are the history. It is right if all of it could
// have happened one after another in the model of model.go, a few lines of
// arithmetic that are independent of the code under test:
//
//	w := registrytest.Workload{URLs: []string{url}, Client: http.DefaultClient, Signers: registrytest.Signers()}
//	_, err := w.Init(ctx)
//	history := w.Run(ctx)
//	err = registrytest.Check(history)
//
// The workload needs nothing but a URL, so the same one runs against a registry
// in the process of the test and against a node on an etcd of which a member is
// killed meanwhile. An answer that was lost is part of the history: the commit
// happened, or it did not, and from then on all answers have to agree.
//
// With two URLs the clients are divided between two nodes on one storage. Each
// node shows commits of the other one a little later, so the history is not
// linearizable, and the clients do not read. What must hold all the same is for
// the caller to check: [History.Commits] lists which node acknowledged which
// version.
//
// The package exists for tests. No product code imports it.
package registrytest
