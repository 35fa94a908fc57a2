package main

import (
	"strings"

	"rsc.io/qr"
)

// printQR prints a URL for the camera of a telephone, on a terminal. Two rows of
// the code are one line of text.
func (c *console) printQR(url string) {
	if !c.colours {
		return // a pipe, or a terminal that cannot show it
	}
	if text, ok := qrText(url); ok {
		c.print("\n%s\n", text)
	}
}

// qrText draws the code of a text, dark on light whatever the terminal's colours
// are.
func qrText(text string) (string, bool) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", false
	}
	const quiet = 2 // light modules around the code
	var out strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		out.WriteString("  \x1b[30;47m")
		for x := -quiet; x < code.Size+quiet; x++ {
			switch upper, lower := code.Black(x, y), code.Black(x, y+1); {
			case upper && lower:
				out.WriteString("█")
			case upper:
				out.WriteString("▀")
			case lower:
				out.WriteString("▄")
			default:
				out.WriteString(" ")
			}
		}
		out.WriteString("\x1b[0m\n")
	}
	return out.String(), true
}
