package freshness

import "net/http"

// heuristicStatus are the statuses that are cacheable by default, and may have
// a heuristic lifetime (RFC 9110 §15.1; 451 by RFC 7725 §3). 206 is one of them
// by the standard, but a part is never stored here.
var heuristicStatus = map[int]bool{
	200: true, 203: true, 204: true,
	300: true, 301: true, 308: true,
	404: true, 405: true, 410: true, 414: true, 451: true,
	501: true,
}

// understoodStatus are, besides heuristicStatus, the statuses whose caching
// requirements we know (RFC 9111 §5.2.2.3): the final ones of RFC 9110 that
// need no more than the rules in this package.
var understoodStatus = map[int]bool{
	201: true, 202: true, 205: true,
	302: true, 303: true, 307: true,
	400: true, 401: true, 402: true, 403: true, 406: true, 408: true, 409: true,
	411: true, 413: true, 415: true, 421: true, 422: true, 426: true,
	500: true, 502: true, 503: true, 504: true, 505: true,
}

// unstorableStatus are the final statuses that are never stored, whatever the
// directives say, and why.
var unstorableStatus = map[int]string{
	206: "it is a part, not the whole",
	304: "it updates a stored response and is none itself",
	407: "it is between us and a proxy",
	412: "it answers the conditions of one request",
	416: "it answers the range of one request",
	417: "it answers the expectations of one request",
	428: "RFC 6585 forbids to store 428",
	429: "RFC 6585 forbids to store 429",
	431: "RFC 6585 forbids to store 431",
	511: "RFC 6585 forbids to store 511",
}

// Storable reports whether a shared cache may store the response, with the
// header as it was received, and if not why (RFC 9111 §3). A response that
// varies on everything is refused too: it would never match again (§4.1).
func Storable(req Request, resp Response) (ok bool, reason string) {
	reason = notStorableReason(req, resp)
	return reason == "", reason
}

// notStorableReason says why a response is not stored, or "".
func notStorableReason(req Request, resp Response) string {
	d := ResponseDirectives(resp.Header)
	known := heuristicStatus[resp.Status] || understoodStatus[resp.Status]
	switch {
	case req.method() != http.MethodGet:
		return "only answers to GET are stored"
	case resp.Status < 200 || resp.Status > 599:
		return "the status is not a final one of HTTP"
	case unstorableStatus[resp.Status] != "":
		return unstorableStatus[resp.Status]
	case RequestDirectives(req.Header).NoStore:
		return "the request says no-store"
	case d.MustUnderstand && !known:
		return "the response says must-understand, and its status is not known"
	case d.NoStore && !d.MustUnderstand:
		// With must-understand, no-store is for caches that do not know
		// must-understand (§5.2.2.3).
		return "the response says no-store"
	case d.Private:
		return "the response is private"
	case namesEssential(d.PrivateFields):
		return "the response makes a field private that it needs"
	case namesEssential(nominatedFields(resp.Header)):
		return "the response ties a field to the connection that it needs"
	case len(req.Header["Authorization"]) > 0 && !allowsShared(d):
		return "the request has Authorization, and the response is not marked for all"
	case variesOnAll(resp.Header):
		return "the response varies on everything"
	case !cacheable(resp, d):
		return "neither the status nor the response allows it"
	}
	return ""
}

// allowsShared reports whether a response may be shared although its request was
// authenticated (RFC 9111 §3.5).
func allowsShared(d Directives) bool {
	return d.Public || d.MustRevalidate || d.SMaxAge.Valid
}

// cacheable reports whether a response says, or its status implies, that it may
// be stored (RFC 9111 §3, the last point).
func cacheable(resp Response, d Directives) bool {
	return d.Public || d.MaxAge.Given || d.SMaxAge.Given || len(resp.Header["Expires"]) > 0 || heuristicStatus[resp.Status]
}
