package b3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"micronode/b3"
)

func Example() {
	// The address follows from the bytes, so any holder of it can check them.
	address := b3.Of([]byte("hello\n"))
	fmt.Println(address)

	_, err := b3.Copy(os.Stdout, strings.NewReader("hello\n"), address)
	fmt.Println("error:", err)

	_, err = b3.Copy(io.Discard, strings.NewReader("hullo\n"), address)
	fmt.Println("mismatch:", errors.Is(err, b3.ErrMismatch))
	// Output:
	// b3:8e4c7c1b99dbfd50e7a95185fead5ee1448fa904a2fdd778eaf5f2dbfd629a99
	// hello
	// error: <nil>
	// mismatch: true
}

func ExampleParse() {
	_, err := b3.Parse("b3:AF13")
	fmt.Println(err)
	// Output:
	// b3: malformed "b3:AF13": there are 4 bytes after b3:, not 64; an address is b3: and 64 lower-case hex digits, such as b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
}

func ExampleAddress_CID() {
	empty := b3.Of(nil)
	fmt.Println(empty.CID())

	back, err := b3.ParseCID("bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi")
	fmt.Println(back == empty, err)
	// Output:
	// bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi
	// true <nil>
}

func ExampleHasher() {
	var h b3.Hasher
	fmt.Fprint(&h, "hel")
	fmt.Fprint(&h, "lo\n")
	fmt.Println(h.N(), h.Sum() == b3.Of([]byte("hello\n")))
	// Output:
	// 6 true
}

func ExampleNewReader() {
	// A source that ends too early ends with an error.
	address := b3.Of([]byte("all of it"))
	_, err := io.ReadAll(b3.NewReader(strings.NewReader("all of"), address))

	var mismatch *b3.Mismatch
	if errors.As(err, &mismatch) {
		fmt.Println("wanted", mismatch.Want == address, "and got", mismatch.Got == b3.Of([]byte("all of")))
	}
	// Output:
	// wanted true and got true
}

func ExampleVerifyRange() {
	// Once, when the content is stored: hash it and keep the outboard beside it.
	content := []byte(strings.Repeat("All work and no play. ", 5000))
	address, size, outboard, err := b3.NewOutboard(bytes.NewReader(content))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(size, "bytes,", len(outboard), "beside them")

	// Later, from a disk that is not trusted: the first byte has rotted.
	content[0] = 'B'
	disk := bytes.NewReader(content)
	part, err := b3.VerifyRange(address, size, outboard, disk, 66_000, 20)
	fmt.Printf("%q %v\n", part, err)

	_, err = b3.VerifyRange(address, size, outboard, disk, 0, 20)
	fmt.Println("mismatch:", errors.Is(err, b3.ErrMismatch))
	// Output:
	// 110000 bytes, 920 beside them
	// "All work and no play" <nil>
	// mismatch: true
}

func ExampleOpen() {
	content := []byte(strings.Repeat("0123456789", 4000))
	address, size, outboard, err := b3.NewOutboard(bytes.NewReader(content))
	if err != nil {
		fmt.Println(err)
		return
	}

	// The size is proved here, once for all ranges.
	verified, err := b3.Open(address, size, outboard, bytes.NewReader(content))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, off := range []int64{5, 39_990} {
		part, err := verified.Range(off, 10)
		if err != nil {
			fmt.Println(err)
			return
		}
		text, err := io.ReadAll(part)
		fmt.Println(string(text), err)
	}
	// Output:
	// 5678901234 <nil>
	// 0123456789 <nil>
}
