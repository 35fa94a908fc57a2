// Package registrytest holds a registry to what its clients may see of it.
//
// Many clients propose, approve, commit and read at the same time, over HTTP,
// as strangers do. What they were told is the history. It is right if all of it
// could have been told to them one after another, by the few lines of arithmetic
// in model.go, which know nothing of the code that they are held against:
//
//	w := registrytest.Workload{URLs: []string{url}, Client: http.DefaultClient, Signers: registrytest.Signers()}
//	_, err := w.Begin(ctx)
//	history := w.Run(ctx)
//	err = registrytest.Check(history)
//
// The workload asks for nothing but a URL, so the same one runs against a
// registry in the process of the test and against a node on an etcd of which a
// member is killed meanwhile. An answer that was lost is part of the history:
// the commit happened, or it did not, and from then on everybody has to agree.
//
// With two URLs the clients are shared out between two nodes on one storage.
// Each node shows what the other one committed a little later, so what they are
// told cannot be put in one row, and nobody reads. What holds all the same is
// for the caller to look at: [History.Commits] says who was told which version.
//
// The package exists for tests. No product code imports it.
package registrytest
