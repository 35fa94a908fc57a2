package b3

import "fmt"

// The kinds of fault as the rest of the system writes them. They are text
// here, because this package may not import fault.
const (
	codeMalformed = "Malformed"
	codeMismatch  = "IntegrityFail"
	codeRange     = "InvalidRange"
)

// The kinds of error, for errors.Is.
var (
	// ErrMalformed is matched by every [Malformed].
	ErrMalformed error = refusal{"b3: malformed address", codeMalformed}
	// ErrMismatch is matched by every [Mismatch].
	ErrMismatch error = refusal{"b3: bytes do not match their address", codeMismatch}
	// ErrRange is matched by every [OutOfRange].
	ErrRange error = refusal{"b3: range outside the content", codeRange}
)

// refusal is a kind of error without details.
type refusal struct {
	text string
	code string
}

func (r refusal) Error() string     { return r.text }
func (r refusal) FaultCode() string { return r.code }

// maxQuote bounds how much of a bad input an error repeats: enough for an
// address with a few bytes too many.
const maxQuote = 80

// Examples of valid input: both name the empty content.
const (
	addressExample = "an address is b3: and 64 lower-case hex digits, such as " +
		"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	cidExample = "a CID of ours is version 1, raw, BLAKE3 with 32 bytes, in lower-case base32, such as " +
		"bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi"
)

// Malformed says why a text is not an address.
type Malformed struct {
	Input  string // what was given, cut short when it is long
	Reason string // what is wrong with it
	Good   string // what a good one looks like
}

func notAddress(input, reason string) error { return malformed(input, reason, addressExample) }
func notCID(input, reason string) error     { return malformed(input, reason, cidExample) }

func malformed(input, reason, good string) error {
	if len(input) > maxQuote {
		input = input[:maxQuote] + "..."
	}
	return &Malformed{Input: input, Reason: reason, Good: good}
}

// Error quotes the input, because it may hold anything.
func (e *Malformed) Error() string {
	return fmt.Sprintf("b3: malformed %q: %s; %s", e.Input, e.Reason, e.Good)
}

// Is makes errors.Is(err, ErrMalformed) true.
func (e *Malformed) Is(target error) bool { return target == ErrMalformed }

// FaultCode is "Malformed".
func (e *Malformed) FaultCode() string { return codeMalformed }

// Mismatch says that bytes are not what their address says they are.
type Mismatch struct {
	// Want is the address that was requested.
	Want Address
	// Got is the address of the bytes that were read. It is zero when only a
	// part was checked, because a part has no address.
	Got Address
	// Part says where the damage is when only a part was checked, such as
	// "16384 bytes at offset 32768". It is empty for whole contents.
	Part string
}

// Error names the wanted address, the actual one, and the next step.
func (e *Mismatch) Error() string {
	if e.Part != "" {
		return fmt.Sprintf("b3: %s does not match: %s; fetch it again from another source", e.Want, e.Part)
	}
	return fmt.Sprintf("b3: want %s, the bytes are %s; fetch them again from another source", e.Want, e.Got)
}

// Is makes errors.Is(err, ErrMismatch) true.
func (e *Mismatch) Is(target error) bool { return target == ErrMismatch }

// FaultCode is "IntegrityFail".
func (e *Mismatch) FaultCode() string { return codeMismatch }

// OutOfRange says that a requested range is not within the content.
type OutOfRange struct {
	Off, N, Size int64
}

// Error names the range and the size that it has to fit.
func (e *OutOfRange) Error() string {
	return fmt.Sprintf("b3: %d bytes at offset %d are not within a content of %d bytes", e.N, e.Off, e.Size)
}

// Is makes errors.Is(err, ErrRange) true.
func (e *OutOfRange) Is(target error) bool { return target == ErrRange }

// FaultCode is "InvalidRange".
func (e *OutOfRange) FaultCode() string { return codeRange }
