package keyfile_test

import (
	"crypto/rand"
	"fmt"
	"strings"

	"micronode/internal/registry/keyfile"
)

func Example() {
	key, _ := keyfile.Generate(rand.Reader)
	sealed, _ := keyfile.SealWith(key, "correct horse", 4) // use Seal in production: 4 is for examples
	first, _, _ := strings.Cut(string(sealed), "\n")
	fmt.Println(first)

	again, err := keyfile.Open(sealed, func() (string, error) { return "correct horse", nil })
	fmt.Println(again.Equal(key), err)
	_, err = keyfile.Open(sealed, func() (string, error) { return "wrong pony", nil })
	fmt.Println(err)
	fmt.Println(keyfile.SignerName("keys/Alice.key.pub"))
	// Output:
	// -----BEGIN AGE ENCRYPTED FILE-----
	// true <nil>
	// keyfile.open: the passphrase is wrong
	// alice
}
