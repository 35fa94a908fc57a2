#!/usr/bin/env bash
# Checks the models with Spin: every property of the true model must be proved by
# a search that went to its end, every mutation must be refuted, and everything
# that the model is meant to show must be able to happen. README.md says more.
set -euo pipefail

models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in spin gcc; do
	if ! command -v "$tool" >/dev/null; then
		echo "models/check.sh: $tool is missing; on Debian: apt-get install $tool" >&2
		exit 2
	fi
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

model=   # which one is being checked
speed=   # how well gcc optimizes its checker

# build KIND [SWITCH...]: makes a checker of the model, once for each kind and
# set of switches, and prints its folder. "states" looks for failed assertions and for
# states where the system hangs; "claim" for runs against an LTL property.
build() {
	local kind=$1 dir flags
	shift
	dir="$place/$(IFS=+; echo "$model+$kind+$*")"
	if [[ ! -x $dir/pan ]]; then
		case $kind in
		states) flags=(-DSAFETY -DNOCLAIM) ;;
		claim) flags=(-DNFAIR=3) ;;
		esac
		mkdir -p "$dir"
		(
			cd "$dir" || exit 1
			if ! spin -a "${@/#/-D}" "$models/$model.pml" >spin.out 2>&1; then
				grep Error spin.out >&2
				exit 1
			fi
			# Spin's own code makes gcc warn; -w keeps that out of the report.
			gcc -w "$speed" -DMEMLIM=2000 "${flags[@]}" -o pan pan.c
		) || return 1
	fi
	echo "$dir"
}

# search PROPERTY [SWITCH...]: searches and leaves the checker's words in $found.
# "sound" stands for the assertions and for no hanging; properties that promise
# an end are checked under weak fairness.
search() {
	local property=$1 kind=claim dir options
	shift
	case $property in
	sound) kind=states options=() ;;
	stops | answered | drains | home | settled | placed) options=(-a -f -N "$property") ;;
	*) options=(-a -N "$property") ;;
	esac
	if dir=$(build "$kind" "$@"); then
		found=$(cd "$dir" && ./pan -m100000 "${options[@]}" 2>&1) || true
	else
		found="error: the model does not compile"
	fi
}

ok() {
	echo "ok  $*"
}

fail() {
	echo "FAIL  $*"
	grep -E '^pan:|^error|not completed' <<<"$found" | sed 's/^/      /' || true
}

# prove PROPERTY [SWITCH...]: no error, and nothing left unsearched.
prove() {
	local name=$1 states
	search "$@"
	[[ $# -eq 1 ]] || name="$1 ($(IFS=,; echo "${*:2}"))"
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' <<<"$found")
	if [[ -z $states ]] || ! grep -q 'errors: 0' <<<"$found"; then
		fail "$model  $name"
	elif grep -qiE 'depth too small|not completed|out of memory|MEMLIM' <<<"$found"; then
		fail "$model  $name  the search did not go to its end"
	else
		ok "$model  $name  $states states"
	fi
}

# refuted WORDS PROPERTY [SWITCH...]: whether an error was found, and the very
# kind of error that was looked for.
refuted() {
	local words=$1
	shift
	search "$@"
	grep -q 'errors: [1-9]' <<<"$found" && grep -q "^pan:1: $words" <<<"$found"
}

# mutation NAME WORDS PROPERTY [SWITCH...]
mutation() {
	local name=$1 words=$2
	shift 2
	if refuted "$words" "$@" "$name"; then
		ok "$model  mutation $name refuted by $1"
	else
		fail "$model  mutation $name was not refuted by $1"
	fi
}

# witness NAME: the model can do what never_NAME denies.
witness() {
	if refuted "assertion violated" "never_$1" WITNESS; then
		ok "$model  witness $1 happens"
	else
		fail "$model  witness $1 never happens"
	fi
}

# From the first mutation on a search ends at the first error, and compiling is
# what costs.

check_shutdown() {
	speed=-O2
	prove sound
	prove bounded
	prove ready_first
	prove admin_last
	prove no_drop
	prove stops FEWER
	prove answered FEWER
	prove sound HEALTHY
	prove all_done HEALTHY
	prove stops HEALTHY
	prove answered HEALTHY
	speed=-O0
	mutation CLOSE_LATE    "assertion violated" sound
	mutation ADMIN_FIRST   "assertion violated" admin_last
	mutation LOST_SHUTDOWN "acceptance cycle"   stops HEALTHY
	mutation READY_LATE    "assertion violated" ready_first
	mutation SPLIT_PUSH    "assertion violated" bounded
	mutation DROP_OLDEST   "assertion violated" no_drop
	mutation ANSWER_TWICE  "assertion violated" sound
	mutation SILENT_ABORT  "assertion violated" sound
	mutation NO_ABORT      "acceptance cycle"   stops FEWER
	for thing in full busy refused stuck late canceled left stopped; do
		witness "$thing"
	done
}

check_lanes() {
	speed=-O2
	prove sound
	prove permits
	prove room
	prove fair
	prove drains
	prove home
	prove settled
	prove sound STAY
	prove home STAY
	prove settled STAY
	prove settled STAY PATIENT
	prove all_written HEALTHY
	prove drains HEALTHY
	speed=-O0
	mutation PERMIT_FIRST     "assertion violated" fair
	mutation NO_BOUND         "assertion violated" permits
	mutation SPLIT_OFFER      "assertion violated" room
	mutation FORGET_DISPLACED "acceptance cycle"   settled
	mutation FORGET_EXPIRED   "acceptance cycle"   drains
	mutation EXPIRED_TWICE    "assertion violated" sound
	mutation DIE_SILENT       "acceptance cycle"   home STAY
	mutation SWEEP_FIRST      "acceptance cycle"   settled STAY
	mutation LOST_WAKE        "acceptance cycle"   settled STAY
	mutation LOST_ROOM        "acceptance cycle"   settled STAY PATIENT
	for thing in full waited saturated turned displaced oldest expired broken swept batch drained; do
		witness "$thing"
	done
}

check_head() {
	speed=-O2
	prove sound
	prove head_is_last
	prove acked_kept
	prove refused_not
	prove answered FEWER
	prove placed FEWER
	prove sound WITHIN
	prove answered WITHIN FEWER
	speed=-O0
	mutation NO_CAS        "assertion violated" sound
	mutation SPLIT_COMMIT  "assertion violated" head_is_last
	mutation ACK_EARLY     "assertion violated" acked_kept
	mutation ASSUME_FAILED "assertion violated" sound
	mutation ASSUME_DONE   "assertion violated" acked_kept
	mutation FORGET        "assertion violated" sound
	mutation BATCH_BLIND   "assertion violated" sound WITHIN
	mutation RETRY_BLIND   "acceptance cycle"   answered
	for thing in both mismatch unknown_kept partial late late_in_vain crash_kept batch refused met; do
		witness "$thing"
	done
}

# A checker uses one processor, so the models are checked side by side. What they print comes in their order.
all=(shutdown lanes head)
pids=()
for model in "${all[@]}"; do
	"check_$model" >"$place/$model.out" 2>&1 &
	pids+=($!)
done
broken=0
for pid in "${pids[@]}"; do
	wait "$pid" || broken=$((broken + 1))
done
for model in "${all[@]}"; do
	cat "$place/$model.out"
done | tee "$place/all.out"

passed=$(grep -c '^ok ' "$place/all.out") || true
failed=$(grep -c '^FAIL ' "$place/all.out") || true
echo "$passed passed, $failed failed"
if [[ $broken -gt 0 ]]; then
	echo "models/check.sh: $broken of the models were not checked to their end" >&2
	exit 1
fi
[[ $failed -eq 0 && $passed -gt 0 ]]
