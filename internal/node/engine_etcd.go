//go:build !noetcd && !slim

package node

import (
	"context"

	"micronode/internal/registry"
	"micronode/internal/registry/etcd"
)

// openEtcd opens a registry's log in an etcd cluster. The build tag noetcd
// leaves it out of the program.
func openEtcd(ctx context.Context, s registry.Storage) (registry.Journal, error) {
	journal, err := etcd.Open(ctx, etcd.Spec{
		URL: s.URL, Username: s.Username, Password: s.Password.Reveal(),
		CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, Timeout: s.Timeout,
	})
	if err != nil {
		return nil, err // not a non-nil interface around nil
	}
	return journal, nil
}
