/*
 * How frames get from the gossip engine to one peer, and what becomes of them and
 * of their permits.
 *
 * Two workers of the engine have frames for a peer, each on a topic of its own. They
 * offer them to the peer's lane, a queue with a bound. The lane takes a frame; or it
 * takes it at the cost of the other topic, if that holds more; or there is no room
 * for it. Then the worker may wait until there is, and when its patience ends the
 * policy decides: the frame is turned away, or the oldest of its own topic is. The
 * peer's writer takes frames out of the lane, each with a permit, of which there is
 * a fixed number; it leaves out what has expired, writes the rest, and gives all
 * their permits back. The peer may hang up at any moment, a write may fail at any
 * moment, and a drain may begin at any moment. Everything goes at its own speed.
 *
 * The rules that are proved right here. First the queue, then the permit: so the
 * queue can fill up, what is in it can still be dropped, and a busy topic does not
 * starve another. Whoever ends a frame's way settles it, once: the writer what it
 * took, whatever became of it; the worker what came back from its offer, be it its
 * own frame or one that was displaced; and the writer of a peer that is gone closes
 * the lane first and sweeps it then, so that nothing comes in behind its back.
 *
 * Each switch in capitals (#ifdef) puts one mistake in; README.md says what it
 * shows, and check.sh runs them all. Four switches are no mistakes. HEALTHY takes
 * away hang-ups, failed writes, expiry and displacement: then every frame that the
 * lane took is written. STAY takes the drain away: a lane must get empty without
 * anybody asking for it. PATIENT takes away the end of patience: who waits for room
 * must get it, or be told that there will be none. WITNESS notes what has happened,
 * to show that the model can do it.
 */

#define CAP      2              /* permits */
#define ROOM     2              /* how many frames may wait in the lane */
#define FRAMES   4              /* 0, 1 and 2 of the busy topic, 3 of the other */
#define NONE     255

#define topic(f) (f / 3)        /* 0 or 1 */

/* Where a frame is. Why it was over makes no difference afterwards, and keeping it
 * would only make the same states look different. */
#define UNSEEN   0
#define HELD     1              /* its worker has it */
#define WAITING  2              /* in the lane, or displaced from it */
#define TAKEN    3              /* the writer has it, and a permit for it */
#define OVER     4

#ifdef WITNESS
#define note(x) x = true
#else
#define note(x) skip
#endif

short out;                      /* permits that are out */

/* ---- the lane: one state under one mutex, so each step on it is atomic ---- */

/* There is more room than ROOM, so that it is our own check that keeps the bound. */
chan lane = [FRAMES] of { byte };
byte holds[2];                  /* how many of each topic are in the lane */
bool closed;                    /* offers are turned away */
bool parked;                    /* the writer waits */
bool woken;
bool waits[2];                  /* a worker waits for room */

chan hand = [FRAMES] of { byte };  /* what the writer has taken */

byte frame[FRAMES];

bool hung_up;                   /* the reader saw the peer go */
bool writer_gone;
bool asked;                     /* to drain */
bool drained;

/* ---- what is watched, and steers nothing ---- */

bool lost;                      /* a frame that the lane took was not written */
bool starved;                   /* a topic was turned away while the other held more */
bool was_full, was_waited, was_turned, was_displaced, was_oldest, was_expired, was_broken, was_swept, was_batch, was_saturated;

/* The frame's way ends. Who took it from the lane has a permit to give back. */
inline settle(f) {
	assert(frame[f] == HELD || frame[f] == WAITING || frame[f] == TAKEN);
#ifndef PERMIT_FIRST
	if
	:: frame[f] == TAKEN -> assert(out > 0); out--
	:: frame[f] != TAKEN
	fi;
#else
	assert(out > 0);
	out--;
#endif
	frame[f] = OVER
}

inline wake_writer() {
	if
	:: parked  -> parked = false; woken = true
	:: !parked
	fi
}

inline wake_workers() {
	waits[0] = false;
	waits[1] = false
}

inline close_lane() {
	atomic { closed = true; wake_writer(); wake_workers() }
}

inline put(f) {
	lane ! f;
	holds[topic(f)]++;
	frame[f] = WAITING;
	wake_writer()
}

/* The newest of the other topic makes room. Numbers of a topic go up. */
inline displace_newest(other) {
	if
	:: other == 1               -> turned = 3
	:: other == 0 && lane ?? [2] -> turned = 2
	:: other == 0 && !(lane ?? [2]) -> turned = 1   /* two of three are in it */
	fi;
	lane ?? eval(turned);
	holds[other]--
}

/* Fair.OfferSome: never waits. What is to be settled is left in turned; room says
 * whether the frame went in. */
inline offer(f) {
#ifndef SPLIT_OFFER
	atomic {
#endif
		if
		:: closed -> turned = f; room = true; note(was_turned)
		:: !closed && len(lane) < ROOM -> put(f); room = true
		:: !closed && len(lane) >= ROOM ->
			note(was_full);
			if
			:: holds[1 - topic(f)] > holds[topic(f)] + 1 ->
#ifdef HEALTHY
				room = false
#else
				displace_newest(1 - topic(f));
				put(f);
				room = true;
				lost = true;
				note(was_displaced)
#endif
			:: holds[1 - topic(f)] <= holds[topic(f)] + 1 -> room = false
			fi
		fi
#ifndef SPLIT_OFFER
	}
#endif
}

/* Fair.Offer, when patience has ended: the policy decides. */
inline offer_last(f) {
	atomic {
		if
		:: closed -> turned = f
		:: !closed && len(lane) < ROOM -> put(f)
		:: !closed && len(lane) >= ROOM && holds[1 - topic(f)] > holds[topic(f)] + 1 ->
#ifdef HEALTHY
			turned = f
#else
			displace_newest(1 - topic(f));
			put(f);
			lost = true
#endif
		:: !closed && len(lane) >= ROOM && holds[1 - topic(f)] <= holds[topic(f)] + 1 ->
			if
			:: turned = f                   /* newest */
#ifndef HEALTHY
			:: holds[topic(f)] > 0 && topic(f) == 0 ->      /* oldest */
				if
				:: lane ?? [0] -> turned = 0
				:: !(lane ?? [0]) -> turned = 1
				fi;
				lane ?? eval(turned);
				holds[0]--;
				put(f);
				lost = true;
				note(was_oldest)
#endif
			fi
		fi
	}
}

/* Fair.AwaitRoom: until there may be room, or patience ends. */
inline await_room() {
#ifndef LOST_ROOM
	atomic {
		if
		:: closed || len(lane) < ROOM
		:: !closed && len(lane) >= ROOM -> waits[me] = true; note(was_waited)
		fi
	}
#else
	/* The mistake: looking and waiting are two steps. */
	if
	:: closed || len(lane) < ROOM
	:: !closed && len(lane) >= ROOM -> waits[me] = true
	fi;
#endif
	if
	:: !waits[me]
#ifndef PATIENT
	:: atomic { waits[me] = false; patient = false }
#endif
	fi
}

/* A worker of the engine, with the frames that are for this peer. */
active [2] proctype Worker() {
	byte me = _pid;
	byte f = me * 3;
	byte end = me + 3;
	byte turned = NONE;
	bool room = false;
	bool patient = true;

	do
	:: f < end ->
		atomic { frame[f] = HELD; room = false; patient = true };
#ifdef PERMIT_FIRST
		/* The mistake: a permit is taken before the queue is asked. */
		atomic {
			if
			:: out >= CAP ->
				starved = starved || (!closed && holds[1 - me] > holds[me] + 1);
				frame[f] = OVER;
				goto next
			:: out < CAP -> out++
			fi
		};
#endif
		do
		:: !room && patient ->
			offer(f);
			if
			:: !room -> await_room()
			:: room
			fi
		:: !room && !patient ->
			offer_last(f);
			atomic {
				starved = starved || (turned == f && !closed && holds[1 - me] > holds[me] + 1);
				room = true
			}
		:: room -> break
		od;
		if
#ifdef FORGET_DISPLACED
		/* The mistake: only the own frame is settled. */
		:: turned != NONE && turned != f -> turned = NONE
		:: turned == f ->
#else
		:: turned != NONE ->
#endif
			atomic { settle(turned); turned = NONE }
		:: turned == NONE
		fi;
#ifdef PERMIT_FIRST
next:
#endif
		f++
	:: f >= end -> break
	od
}

/* A frame leaves the lane, with a permit. */
inline take() {
	lane ? a;
	holds[topic(a)]--;
#ifndef PERMIT_FIRST
	out++;
#endif
	frame[a] = TAKEN;
	hand ! a;
	a = NONE;
	wake_workers()
}

#ifdef NO_BOUND
#define permitted true                  /* the mistake: nobody looks how many are out */
#else
#ifdef PERMIT_FIRST
#define permitted true
#else
#define permitted (out < CAP)
#endif
#endif

/* Everything that the writer has in hand is settled, whatever became of it. */
inline settle_hand() {
	atomic {
		do
		:: nempty(hand) -> hand ? a; settle(a); a = NONE
		:: empty(hand) -> break
		od
	}
}

/* The one writer of the session. */
active proctype Writer() {
	byte a = NONE;

look:
	atomic {
		if
		:: hung_up -> goto dying
		:: !hung_up && nempty(lane) -> take(); goto collect
		:: !hung_up && empty(lane) && closed -> goto gone
		:: !hung_up && empty(lane) && !closed
		fi;
#ifdef LOST_WAKE
	}
	/* The mistake: looking and parking are two steps. */
	atomic {
#endif
		parked = true
	}
#ifdef STAY
end_idle:
#endif
	atomic {
		woken || hung_up -> woken = false;
		parked = false;
		goto look
	}
collect:
	/* What waits goes out in one write, as far as there are permits. */
	do
	:: atomic { nempty(lane) && permitted -> take(); note(was_batch) }
	:: atomic { nempty(lane) && !permitted -> note(was_saturated); break }
	:: break
	od;
#ifndef HEALTHY
	/* One has expired and is left out. Its permit comes back with the others'. */
	if
	:: atomic { hand ? a; lost = true; note(was_expired);
#ifdef EXPIRED_TWICE
		settle(a);      /* the mistake: at once, and with the others again */
#endif
#ifndef FORGET_EXPIRED
		hand ! a;       /* forgetting it is the mistake */
#endif
		a = NONE }
	:: true
	fi;
#endif
	if
	:: settle_hand() -> goto look
#ifndef HEALTHY
	:: atomic { lost = true; note(was_broken) }
#endif
	fi;
dying:
#ifndef SWEEP_FIRST
	close_lane();
#endif
#ifdef DIE_SILENT
	/* The mistake: what was in hand when the write failed is forgotten. */
	atomic {
		do
		:: nempty(hand) -> hand ? _
		:: empty(hand) -> break
		od
	}
#endif
	settle_hand();
	do
	:: atomic { nempty(lane) -> take(); lost = true; note(was_swept) };
		settle_hand()
	:: atomic { empty(lane) -> break }
	od;
#ifdef SWEEP_FIRST
	/* The mistake: between the last look into the lane and this, a frame may come. */
	close_lane();
#endif
gone:
	writer_gone = true
}

#ifndef HEALTHY
/* The peer hangs up, or not. */
active proctype Reader() {
	if
	:: hung_up = true
	:: true
	fi
}
#endif

#ifndef STAY
/* The session is drained: nothing comes in any more, and what is in goes out. */
active proctype Drain() {
	byte i = 0;

	asked = true;
	close_lane();
	out == 0 && writer_gone;
	/* The account: no frame is in the lane, and none is on its way. */
	atomic {
		assert(empty(lane) && empty(hand));
		for (i : 0 .. FRAMES - 1) {
			assert(frame[i] != TAKEN)
		}
		i = 0;
		drained = true
	}
}
#endif

/* ---- safety ---- */

ltl permits { [] (0 <= out && out <= CAP && len(hand) <= CAP) }
ltl room    { [] (len(lane) <= ROOM) }
ltl fair    { [] !starved }

/* ---- liveness, under weak fairness ---- */

#define ends(i) ([] ((frame[i] == HELD || frame[i] == WAITING || frame[i] == TAKEN) -> <> (frame[i] == OVER)))

ltl drains  { [] (asked -> <> drained) }
ltl home    { [] <> (out == 0) }         /* every run comes to rest, so: in the end for good */
ltl settled { ends(0) && ends(1) && ends(2) && ends(3) }

/* ---- a healthy peer gets all that its lane took ---- */

ltl all_written { [] !lost }

/* ---- what must be able to happen: each of these has to be refuted ---- */

ltl never_full      { [] !was_full }
ltl never_waited    { [] !was_waited }
ltl never_saturated { [] !was_saturated }
ltl never_turned    { [] !was_turned }
ltl never_displaced { [] !was_displaced }
ltl never_oldest    { [] !was_oldest }
ltl never_expired   { [] !was_expired }
ltl never_broken    { [] !was_broken }
ltl never_swept     { [] !was_swept }
ltl never_batch     { [] !was_batch }
ltl never_drained   { [] !drained }
