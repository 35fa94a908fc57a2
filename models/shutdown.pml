/*
 * How a node stops, and what becomes of the work that it has accepted.
 *
 * Two ingress tasks offer requests to one bounded queue; two workers take jobs
 * from it; an admin plane looks on; a supervisor takes all of it down in a fixed
 * order while requests keep coming. Everything that can go at its own speed does,
 * so the checker sees a shutdown begin at every moment, and every race that
 * follows from it.
 *
 * The order that is proved right here:
 *
 *   not ready -> listeners stop accepting -> queue refuses -> workers drain
 *   -> whoever is late is aborted, and counted and left behind if need be
 *   -> admin plane last
 *
 * Each switch in capitals (#ifdef) puts one mistake in; README.md says what it
 * shows, and check.sh runs them all. Three switches are no mistakes. HEALTHY
 * takes the deadline and the stuck workers away: a healthy node has to drain
 * without either. WITNESS notes what has happened, to show that the model can do
 * it. FEWER takes one request away, for the searches that cost most.
 */

#define CAP      2              /* how many jobs may wait */
#define EACH     2              /* requests that come to each ingress */
#define REQUESTS 4              /* for two ingress tasks */
#define NONE     255

#ifdef FEWER
#define last(me) (me * EACH + EACH - me)        /* the second ingress gets one only */
#else
#define last(me) (me * EACH + EACH)
#endif

/* Where a request is. That it was Busy, refused or answered makes no difference
 * afterwards, and keeping it would only make the same states look different. */
#define UNSEEN   0
#define WAITING  1              /* accepted by the queue, and its handler waits for the answer */
#define OVER     2              /* answered, or never accepted */

/* How a waiting worker was woken. */
#define PARKED   0
#define GRANTED  1
#define ENDED    2

#ifdef WITNESS
#define note(x) x = true
#else
#define note(x) skip
#endif

/* ---- the node ---- */

bool requested;                 /* SIGTERM, SIGINT or the bus: all the same */
bool ready = true;              /* what /readyz says */
bool admin_up = true;
bool stopped;

/* Told by the supervisor. */
bool stop_listening;
bool stop_admin;
bool aborted_ingress;
bool aborted[2];
bool left[2];                   /* aborted, still there after the grace: counted and named */

/* Told by the tasks. */
bool listening[2] = true;
bool ingress_gone[2];
bool worker_gone[2];

/* ---- the queue: one state under one mutex, so each step on it is atomic ---- */

/* There is more room than CAP, so that it is our own check that keeps the bound. */
chan work    = [REQUESTS] of { byte };
chan poppers = [2] of { byte };         /* who waits, in the order of coming */
bool closed;                            /* pushes are refused */
bool ending;                            /* pops of an empty queue end; as closed, but in CLOSE_LATE */
byte woken[2];
byte given[2] = NONE;

byte request[REQUESTS];

/* ---- what is watched, and steers nothing ---- */

bool canceled;                  /* some job was answered by the abort */
bool dropped;                   /* queue_dropped_total{queue="work"} */
bool was_busy, was_refused, was_stuck, was_late;

#define staff     (!worker_gone[0] || !worker_gone[1])
#define lives(w)  (!worker_gone[w] && !left[w])
#define idle      (worker_gone[0] && worker_gone[1] && ingress_gone[0] && ingress_gone[1])

/* A job is answered by whoever comes first; for all others it is over. */
inline answer(job, aborting) {
	atomic {
		if
#ifndef ANSWER_TWICE
		:: request[job] == OVER -> note(was_late)
		:: request[job] != OVER ->
#else
		:: true ->
#endif
			assert(request[job] == WAITING);
			request[job] = OVER;
#if defined(HEALTHY) || defined(WITNESS)
			canceled = canceled || aborting
#endif
		fi
	}
}

inline accept(job) {
	assert(!closed);        /* nothing is accepted after the queue is closed */
	assert(staff);          /* nor when nobody is left to do it */
	assert(request[job] == UNSEEN);
	request[job] = WAITING;
	if
	:: nempty(poppers) ->
		poppers ? peer;
		given[peer] = job;
		woken[peer] = GRANTED;
		peer = 0
	:: empty(poppers) ->
		work ! job
	fi
}

inline busy(job) {
#ifndef DROP_OLDEST
	request[job] = OVER;
	note(was_busy)
#else
	work ? peer;
	dropped = true;
	peer = 0;
	accept(job)
#endif
}

inline refuse(job) {
	request[job] = OVER;
	note(was_refused)
}

/* Queue.TryPush of the request in hand: never waits. */
inline try_push() {
#ifndef SPLIT_PUSH
	atomic {
		if
		:: closed                       -> refuse(hand)
		:: !closed && len(work) >= CAP  -> busy(hand)
		:: !closed && len(work) < CAP   -> accept(hand)
		fi;
		hand = NONE
	}
#else
	/* The mistake: looking and pushing are two steps. */
	if
	:: closed                       -> refuse(hand)
	:: !closed && len(work) >= CAP  -> busy(hand)
	:: !closed && len(work) < CAP   -> atomic { accept(hand) }
	fi;
	hand = NONE
#endif
}

/* Wakes everybody who waits for more, for there will be no more. */
inline end_pops() {
	ending = true;
	do
	:: nempty(poppers) -> poppers ? peer; woken[peer] = ENDED
	:: empty(poppers) -> break
	od;
	peer = 0
}

/*
 * One listener, and the handlers of the requests that came through it. A
 * request is in hand from the accept to the push, and the listener may close in
 * between. A handler whose request was accepted by the queue waits for the
 * answer, and gives it itself when it is aborted. The task is gone when the
 * listener is closed and no handler is left.
 */
active [2] proctype Ingress() {
	byte me = _pid;
	byte hand = NONE;
	byte next = me * EACH;
	byte peer = 0;

#define waits(i)   (request[me * EACH + i] == WAITING)

	do
	:: atomic { listening[me] && hand == NONE && next < last(me) -> hand = next; next++ }
	:: atomic { listening[me] && stop_listening -> listening[me] = false }
	:: hand != NONE -> try_push()
#ifdef SILENT_ABORT
	/* The mistake: an aborted handler just goes. */
	:: atomic { aborted_ingress -> listening[me] = false; ingress_gone[me] = true; break }
#endif
	:: aborted_ingress && waits(0) -> answer(me * EACH, true)
	:: aborted_ingress && waits(1) -> answer(me * EACH + 1, true)
	:: atomic { !listening[me] && hand == NONE && !waits(0) && !waits(1) -> ingress_gone[me] = true; break }
	od
}

/*
 * A worker takes a job, does it, and takes the next. It may get stuck in a job,
 * and then a closed queue does not reach it. Once it is aborted, the stuck job
 * may still come to an end, late, or never.
 */
active [2] proctype Worker() {
	byte me = _pid - 2;
	byte job = NONE;

take:
	atomic {
		if
		:: aborted[me] -> goto gone
		:: nempty(work) -> work ? job; goto doing
		:: empty(work) && ending -> goto gone
		:: empty(work) && !ending
		fi;
#ifdef LOST_SHUTDOWN
	}
	/* The mistake: looking and parking are two steps. */
	atomic {
#endif
		poppers ! me
	}
	atomic {
		if
		:: woken[me] == GRANTED -> woken[me] = PARKED; job = given[me]; given[me] = NONE
		:: woken[me] == ENDED -> woken[me] = PARKED; goto gone
		:: woken[me] == PARKED && aborted[me] -> poppers ?? eval(me); goto gone
		fi
	}
doing:
	if
	:: answer(job, false)
	:: aborted[me]                  /* the job heeds its context, and its handler answers */
#ifndef HEALTHY
	:: note(was_stuck);
		aborted[me];
		if
		:: answer(job, false)   /* too late perhaps, but it tries */
		:: true ->
end_stuck:		false
		fi
#endif
	fi;
	job = NONE;
	goto take;
gone:
	worker_gone[me] = true
}

active proctype Admin() {
	atomic { stop_admin -> admin_up = false }
}

inline not_ready()   { ready = false }
inline stop_accept() { stop_listening = true; !listening[0] && !listening[1] }
inline admin_off()   { stop_admin = true; !admin_up }

/* Abort everybody who is still there. Handlers heed that; for a worker there is
 * a short grace, and then the shutdown goes on without it. */
inline abort_all() {
	aborted_ingress = true;
	aborted[0] = true;
	aborted[1] = true;
	ingress_gone[0] && ingress_gone[1];
	if
	:: worker_gone[0]
	:: atomic { !worker_gone[0] -> left[0] = true }
	fi;
	if
	:: worker_gone[1]
	:: atomic { !worker_gone[1] -> left[1] = true }
	fi
}

/* The drain's deadline may pass at any time, the first moment included. */
#if defined(HEALTHY) || defined(NO_ABORT)
#define deadline false
#else
#define deadline true
#endif

active proctype Supervisor() {
	byte peer = 0;
	byte i = 0;

	requested = true;
#ifndef READY_LATE
	not_ready();
	stop_accept();
#else
	stop_accept();
	not_ready();
#endif
#ifdef ADMIN_FIRST
	admin_off();
#endif
#ifndef CLOSE_LATE
	atomic { closed = true; end_pops() };
#else
	atomic { end_pops() };
	(worker_gone[0] && worker_gone[1]) || deadline;
	closed = true;
#endif
	if
	:: idle
	:: deadline -> abort_all()
	fi;
#ifndef ADMIN_FIRST
	admin_off();
#endif
	/* The account: nobody waits for an answer any more. */
	atomic {
		for (i : 0 .. REQUESTS - 1) {
			assert(request[i] != WAITING)
		}
		i = 0;
		stopped = true
	}
}

/* ---- safety ---- */

#define all_listen  (listening[0] && listening[1])
#define anybody     (lives(0) || lives(1) || !ingress_gone[0] || !ingress_gone[1])

ltl bounded     { [] (len(work) <= CAP) }
ltl ready_first { [] (ready -> all_listen) }
ltl admin_last  { [] (anybody -> admin_up) }
ltl no_drop     { [] !dropped }

/* ---- liveness, under weak fairness ---- */

ltl stops    { [] (requested -> <> stopped) }
ltl answered { ([] (request[0] == WAITING -> <> (request[0] == OVER))) &&
               ([] (request[1] == WAITING -> <> (request[1] == OVER))) &&
               ([] (request[2] == WAITING -> <> (request[2] == OVER))) &&
               ([] (request[3] == WAITING -> <> (request[3] == OVER))) }

/* ---- a healthy node finishes all that it accepted ---- */

ltl all_done { [] !canceled }

/* ---- what must be able to happen: each of these has to be refuted ---- */

ltl never_full     { [] (len(work) < CAP) }
ltl never_busy     { [] !was_busy }
ltl never_refused  { [] !was_refused }
ltl never_stuck    { [] !was_stuck }
ltl never_late     { [] !was_late }
ltl never_canceled { [] !canceled }
ltl never_left     { [] !(left[0] && left[1]) }
ltl never_stopped  { [] !stopped }
