//go:build !noetcd

package node

import (
	"context"

	"micronode/internal/registry"
	"micronode/internal/registry/etcd"
)

// openEtcd reaches for a registry's log in an etcd cluster. It is left out of
// the program by the build tag noetcd.
func openEtcd(ctx context.Context, s registry.Storage) (registry.Journal, error) {
	journal, err := etcd.Open(ctx, etcd.Spec{
		URL: s.URL, Username: s.Username, Password: s.Password.Reveal(),
		CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, Timeout: s.Timeout,
	})
	if err != nil {
		return nil, err // not an interface around nothing
	}
	return journal, nil
}
