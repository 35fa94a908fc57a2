package edge

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirement is something that a standard requires of a shared cache in front
// of origins, and the tests that would fail without it. An optional part that
// we do not implement has no test, but a reason.
type requirement struct {
	section string
	what    string
	tests   string // separated by spaces
	choice  string
}

// requirements lists the standards of HTTP caching in their order.
var requirements = []requirement{
	{"RFC 9110 §5.6.1", "lists are split at commas that are not quoted, and empty members are left out", "TestCacheControl TestVaryFields TestAHostileListIsReadOnce", ""},
	{"RFC 9110 §5.6.7", "dates are read in three forms, and written in one", "TestDates TestWhatIsNoDate TestYearsOfTwoDigits TestDatesAreWrittenInGMT", ""},
	{"RFC 9110 §6.6.1", "an answer without a Date gets the time when it came; the Date of others is not changed", "TestAgeAndDate TestTheDateIsTheOrigins TestTheWarmLaneKeepsTheDate", ""},
	{"RFC 9110 §7.6.1", "Connection, what it names, and the other fields of one hop are not passed on", "TestWhichFieldsAreEndToEnd TestMissThenHit TestWhatTheOriginSees", ""},
	{"RFC 9110 §7.6.3", "Via names us to the origin", "TestWhatTheOriginSees", ""},
	{"RFC 9110 §8.8.2.2", "Last-Modified of the second in which the answer was made is weak", "TestConditionsByTheOriginsValidators", ""},
	{"RFC 9110 §8.8.3", "an entity tag is quoted, once, and weak with a capital W; others are none", "TestETagSyntax TestTheValidatorsAreTheOrigins", ""},
	{"RFC 9110 §8.8.3.2", "strong and weak comparison", "TestETagComparison TestConditionsByTheOriginsValidators", ""},
	{"RFC 9110 §9.3.1", "GET is answered from the cache and fills it", "TestMissThenHit TestAnOriginIsFetchedOnce", ""},
	{"RFC 9110 §9.3.2", "HEAD is answered as GET, without the body", "TestHead TestAnOriginIsFetchedOnce TestAnswers", ""},
	{"RFC 9110 §10.2.2", "a relative Location means a place at the origin", "TestRedirectsThatAreRelayed", ""},
	{"RFC 9110 §10.2.3", "Retry-After is seconds or a date", "TestRetryAfter TestRetries", ""},
	{"RFC 9110 §11.6.2", "credentials for us are not passed on, others only where the operator says so", "TestOurCapabilitiesReachNoOrigin TestWhatTheOriginSees", ""},
	{"RFC 9110 §12.5.3", "codings that a client accepts are compared without case, order and repetition", "TestMatches", ""},
	{"RFC 9110 §12.5.5", "Vary names fields; a star, or what is no name, is everything", "TestVaryFields TestVary", ""},
	{"RFC 9110 §13.1.1", "If-Match compares strongly", "TestConditionsByTheOriginsValidators", ""},
	{"RFC 9110 §13.1.2", "If-None-Match compares weakly", "TestConditionsByTheOriginsValidators", ""},
	{"RFC 9110 §13.1.3", "If-Modified-Since is looked at without If-None-Match", "TestConditionsByTheOriginsValidators", ""},
	{"RFC 9110 §13.1.5", "If-Range compares strongly, also by date", "TestConditionsByTheOriginsValidators", ""},
	{"RFC 9110 §14.2", "a range of a 200; one that is outside is 416", "TestAnOriginIsFetchedOnce TestEveryReasonIsCounted TestARangeOfWhatComes", ""},
	{"RFC 9110 §15", "a status of an unknown number is relayed, and treated by its class", "TestUnknownStatuses", ""},
	{"RFC 9110 §15.3.7", "a 206 is not taken for the whole", "TestHostileOrigins", ""},
	{"RFC 9110 §15.4", "redirects are followed a bounded number of times, where they may be", "TestRedirects TestRedirectsThatAreRelayed TestRedirectToAPrivateAddress", ""},
	{"RFC 9110 §15.4.5", "a 304 speaks for what it was asked about", "TestRevalidation TestA304ForNothing", ""},
	{"RFC 9110 §15.5.6", "405 says in Allow what can be done", "TestUnsafeMethods", ""},
	{"RFC 9110 §15.6.5", "504 is what we say when the origin takes too long", "TestTheSettingsDecideHowLong TestSlowOriginsAreAskedAgain", ""},

	{"RFC 9111 §1.2.2", "numbers of seconds stop at 2³¹", "TestLifetime TestAge", ""},
	{"RFC 9111 §3", "what may be stored: method, status, no-store, private, explicit or heuristic permission", "TestStorable TestNotKept TestWhichStatusesAreCacheableByThemselves", ""},
	{"RFC 9111 §3.1", "hop-by-hop fields and those of private=\"…\" and no-cache=\"…\" are not stored", "TestWhichFieldsAreStored TestWhichFieldsAreEndToEnd", ""},
	{"RFC 9111 §3.2", "a 304 updates the stored header, but for what describes bytes", "TestUpdate TestA304UpdatesTheHeader", ""},
	{"RFC 9111 §3.3", "half a body is not stored", "TestHostileOrigins TestWhatBreaksOffHasNoEnd", ""},
	{"RFC 9111 §3.5", "answers to Authorization are kept only where the origin allows it", "TestAuthorization TestStorable TestPersonalFlightsTakeNobody", ""},
	{"RFC 9111 §4", "a stored answer is used for the same URI and variant, while it is fresh, with its Age", "TestMissThenHit TestJudge TestTargets", ""},
	{"RFC 9111 §4", "requests that wait for the same are collapsed, unless the answer is not for all", "TestManyAskOneFetches TestManyAskForWhatCannotBeKept TestWhatComesForOne", ""},
	{"RFC 9111 §4.1", "variants are told apart by the fields that Vary names", "TestVary TestMatches TestKeysAreEqualWhenRequestsMatch TestManyAskForDifferentVariants", ""},
	{"RFC 9111 §4.2.1", "s-maxage before max-age before Expires; of two the stricter; what is invalid is stale", "TestLifetime TestCacheControl TestStricterIsNeverFresher", ""},
	{"RFC 9111 §4.2.2", "a lifetime is guessed only where there is none, and only for some statuses", "TestLifetime TestNegative", ""},
	{"RFC 9111 §4.2.3", "the age is that of Date or of Age, with the delay and the time here", "TestAge TestAgeAndDate TestAgeNeverShrinks", ""},
	{"RFC 9111 §4.2.4", "stale answers are used only where that is allowed, and never against must-revalidate", "TestJudge TestStaleIfError TestStaleWhileRevalidate", ""},
	{"RFC 9111 §4.3.1", "validation sends the stored validators", "TestConditions TestRevalidation", ""},
	{"RFC 9111 §4.3.2", "conditions of a client are answered from the cache; without Last-Modified, Date stands in", "TestConditionsByTheOriginsValidators", ""},
	{"RFC 9111 §4.3.3", "a whole answer replaces; a 5xx is relayed, or what is stale stands in", "TestRevalidation TestFailuresOfTheOriginAreRelayed TestStaleIfError TestNoLongerKept", ""},
	{"RFC 9111 §4.3.4", "which stored answers a 304 freshens", "TestSelected TestUpdate TestUpdateRefuses TestA304ForNothing", ""},
	{"RFC 9111 §4.3.5", "freshening by HEAD", "", "a HEAD is asked as a GET, which brings the whole answer"},
	{"RFC 9111 §4.4", "invalidation by unsafe methods", "", "unsafe methods are refused with 405, so none passes"},
	{"RFC 9111 §5.1", "Age is written in whole seconds, and one that cannot be read makes stale", "TestAgeAndDate TestLifetime TestAnInvalidAgeMakesStale", ""},
	{"RFC 9111 §5.2.1", "what a request says: max-age, max-stale, min-fresh, no-cache, no-store, only-if-cached", "TestWhatTheClientWants TestJudge", ""},
	{"RFC 9111 §5.2.2", "what a response says: all directives of the section", "TestCacheControl TestJudge TestStorable TestLifetime", ""},
	{"RFC 9111 §5.2.2.3", "must-understand overrules no-store for a known status, and forbids an unknown one", "TestStorable", ""},
	{"RFC 9111 §5.3", "Expires that is no date is in the past", "TestLifetime TestWhatIsNoDate", ""},
	{"RFC 9111 §5.4", "Pragma: no-cache counts in requests without Cache-Control", "TestPragma", ""},
	{"RFC 9111 §7.3", "an answer with Set-Cookie may be stored", "TestCookiesOfTheOriginAreNotOurs", "it is, if it says public; otherwise what is meant for one client is not given to others"},

	{"RFC 5861 §3", "stale-while-revalidate serves and refreshes behind", "TestStaleWhileRevalidate TestJudge", ""},
	{"RFC 5861 §4", "stale-if-error serves when the origin fails, or answers 500, 502, 503 or 504", "TestStaleIfError TestErrorStatus", ""},
	{"RFC 8246 §2.1", "what is immutable and fresh is not checked again for max-age of a request", "TestJudge", ""},
	{"RFC 9211 §2", "a cache may add itself to Cache-Status", "", "that of the origin is relayed; ours is said by Age and by metrics, and the warm lane writes no more than it must"},
	{"RFC 9213 §2.2", "a cache may obey a field that is targeted at it", "", "no target list is configured, so Cache-Control holds, and targeted fields are relayed to those in front"},
}

// Every requirement names tests that exist, or says why there is none.
func TestRequirementsHaveTests(t *testing.T) {
	written := map[string]bool{}
	header := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, folder := range []string{".", "fill", "fill/freshness"} {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range header.FindAllStringSubmatch(string(text), -1) {
				written[found[1]] = true
			}
		}
	}
	for _, one := range requirements {
		tests := strings.Fields(one.tests)
		if len(tests) == 0 && one.choice == "" {
			t.Errorf("%s, %s: neither a test nor a reason", one.section, one.what)
		}
		for _, name := range tests {
			if !written[name] {
				t.Errorf("%s, %s: there is no %s", one.section, one.what, name)
			}
		}
	}
	for _, standard := range []string{"RFC 9110", "RFC 9111", "RFC 5861", "RFC 8246", "RFC 9211", "RFC 9213"} {
		if !slices.ContainsFunc(requirements, func(one requirement) bool { return strings.HasPrefix(one.section, standard+" ") }) {
			t.Errorf("nothing is asked by %s", standard)
		}
	}
}
