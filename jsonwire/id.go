package jsonwire

import "strconv"

// maxSafeInteger is the largest integer every JSON reader holds exactly.
const maxSafeInteger = 1<<53 - 1

// IDFault says why a checked value is no JSON-RPC id that comes back exactly as it
// was sent, in words for the client that sent it; "" if it is one: a string of
// Unicode text, or an integer that survives a float64.
func IDFault(value []byte) string {
	switch KindOf(value) {
	case KindString:
		if HasLoneSurrogate(value) {
			return "id must be valid Unicode: it has an unpaired surrogate escape"
		}
		return ""
	case KindNumber:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err == nil && n >= -maxSafeInteger && n <= maxSafeInteger && string(value) != "-0" {
			return ""
		}
	}
	return "id must be a string or an integer within ±(2^53-1), written without fraction and exponent"
}
