/*
 * How frames get from the gossip engine to one peer, and what becomes of their
 * permits.
 *
 * Two workers of the engine have frames for a peer. For each they take a permit,
 * of which there is a fixed number, and offer the frame to the peer's lane, a
 * queue with a bound of its own. The lane takes it, or turns it away, or takes it
 * and displaces another. The peer's writer takes what waits in batches, leaves
 * out what has expired, writes the rest, and gives the permits of the whole batch
 * back. The peer may hang up at any moment, a write may fail at any moment, and a
 * drain may begin at any moment. Everything goes at its own speed.
 *
 * The rule that is proved right here: whoever ends a frame's way gives its permit
 * back. The writer does so for what it took, whatever became of it; the worker for
 * what came back from its offer, be it its own frame or one that was displaced;
 * and the writer of a peer that is gone closes the lane first and sweeps it then,
 * so that nothing comes in behind its back.
 *
 * Each switch in capitals (#ifdef) puts one mistake in; README.md says what it
 * shows, and check.sh runs them all. Three switches are no mistakes. HEALTHY takes
 * away hang-ups, failed writes, expiry and displacement: then every frame that the
 * lane took is written. STAY takes the drain away: a lane must get empty without
 * anybody asking for it. WITNESS notes what has happened, to show that the model
 * can do it.
 */

#define CAP      3              /* permits */
#define ROOM     2              /* how many frames may wait in the lane */
#define EACH     2              /* frames that each worker has for the peer */
#define FRAMES   4              /* for two workers */
#define NONE     255

/* Where a frame is. Why it was over makes no difference afterwards, and keeping it
 * would only make the same states look different. */
#define UNSEEN   0
#define HELD     1              /* it has a permit, and its worker has it in hand */
#define WAITING  2              /* accepted: in the lane, or taken or displaced from it */
#define OVER     3              /* it has no permit: given back, or never had one */

#ifdef WITNESS
#define note(x) x = true
#else
#define note(x) skip
#endif

short out;                      /* permits that are out */
bool shut;                      /* no further permits */

/* ---- the lane: one state under one mutex, so each step on it is atomic ---- */

/* There is more room than ROOM, so that it is our own check that keeps the bound. */
chan lane = [FRAMES] of { byte };
bool closed;                    /* offers are turned away */
bool parked;                    /* the writer waits */
bool woken;

byte frame[FRAMES];

bool hung_up;                   /* the reader saw the peer go */
bool writer_gone;
bool asked;                     /* to drain */
bool drained;

/* ---- what is watched, and steers nothing ---- */

bool lost;                      /* a frame that the lane took was not written */
bool was_full, was_saturated, was_turned, was_displaced, was_expired, was_broken, was_swept, was_batch;

/* The frame's way ends, and its permit comes back. */
inline give_back(f) {
	assert(frame[f] == HELD || frame[f] == WAITING);
	assert(out > 0);
	frame[f] = OVER;
	out--
}

inline wake_writer() {
	if
	:: parked  -> parked = false; woken = true
	:: !parked
	fi
}

/* Permits.TryAcquire: never waits. */
inline take_permit(f) {
#ifndef SPLIT_PERMIT
	atomic {
		if
		:: shut                -> frame[f] = OVER
		:: !shut && out >= CAP -> frame[f] = OVER; note(was_saturated)
		:: !shut && out < CAP  -> out++; frame[f] = HELD
		fi
	}
#else
	/* The mistake: looking and taking are two steps. */
	if
	:: shut || out >= CAP  -> frame[f] = OVER
	:: !shut && out < CAP  -> atomic { out++; frame[f] = HELD }
	fi
#endif
}

inline put(f) {
	lane ! f;
	frame[f] = WAITING;
	wake_writer()
}

/* Fair.Offer: never waits. What is turned away is left in turned. */
inline offer(f) {
#ifndef SPLIT_OFFER
	atomic {
#endif
		if
		:: closed                      -> turned = f; note(was_turned)
		:: !closed && len(lane) < ROOM -> put(f)
		:: !closed && len(lane) >= ROOM ->
			note(was_full);
			if
			:: turned = f
#ifndef HEALTHY
			:: lane ? turned;
				put(f);
				lost = true;
				note(was_displaced)
#endif
			fi
		fi
#ifndef SPLIT_OFFER
	}
#endif
}

/* A worker of the engine, with the frames that are for this peer. */
active [2] proctype Worker() {
	byte f = _pid * EACH;
	byte end = f + EACH;
	byte turned = NONE;

	do
	:: f < end ->
		take_permit(f);
		if
		:: frame[f] == HELD ->
			offer(f);
			if
#ifdef FORGET_DISPLACED
			/* The mistake: only the own frame's permit is given back. */
			:: turned != NONE && turned != f -> turned = NONE
			:: turned == f ->
#else
			:: turned != NONE ->
#endif
				atomic { give_back(turned); turned = NONE }
			:: turned == NONE
			fi
		:: frame[f] != HELD
		fi;
		f++
	:: f >= end -> break
	od
}

/* One of the batch has expired and is left out. Its permit comes back with the
 * others'. */
inline expire(f) {
	atomic {
		f != NONE -> lost = true;
		note(was_expired);
#ifdef FORGET_EXPIRED
		f = NONE        /* the mistake: it is left out of the account, too */
#endif
#ifdef EXPIRED_TWICE
		give_back(f)    /* the mistake: at once, and with the others again */
#endif
		skip
	}
}

/* Permits.ReleaseMany for the batch in hand. */
inline give_back_batch() {
	atomic {
		if
		:: a != NONE -> give_back(a); a = NONE
		:: a == NONE
		fi;
		if
		:: b != NONE -> give_back(b); b = NONE
		:: b == NONE
		fi
	}
}

/* The one writer of the session. */
active proctype Writer() {
	byte a = NONE;          /* the batch in hand: up to two frames */
	byte b = NONE;

take:
	atomic {
		if
		:: hung_up -> goto dying
		:: !hung_up && nempty(lane) ->
			lane ? a;
			if
			:: nempty(lane) -> lane ? b; note(was_batch)
			:: empty(lane)
			fi;
			goto writing
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
		goto take
	}
writing:
#ifndef HEALTHY
	if
	:: expire(a)
	:: expire(b)
	:: true
	fi;
#endif
	if
	:: give_back_batch() -> goto take
#ifndef HEALTHY
	:: atomic { lost = true; note(was_broken) }
#endif
	fi;
dying:
#ifndef SWEEP_FIRST
	closed = true;
#endif
#ifdef DIE_SILENT
	/* The mistake: what was in hand when the write failed is forgotten. */
	a = NONE;
	b = NONE;
#endif
	give_back_batch();
	do
	:: atomic { nempty(lane) -> lane ? a; lost = true; note(was_swept) };
		give_back_batch()
	:: atomic { empty(lane) -> break }
	od;
#ifdef SWEEP_FIRST
	/* The mistake: between the last look into the lane and this, a frame may come. */
	closed = true;
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
	atomic { closed = true; wake_writer() };
	shut = true;
	out == 0 && writer_gone;
	/* The account: no frame has a permit, and none is on its way. */
	atomic {
		assert(empty(lane));
		for (i : 0 .. FRAMES - 1) {
			assert(frame[i] == UNSEEN || frame[i] == OVER)
		}
		i = 0;
		drained = true
	}
}
#endif

/* ---- safety ---- */

ltl permits { [] (0 <= out && out <= CAP) }
ltl room    { [] (len(lane) <= ROOM) }

/* ---- liveness, under weak fairness ---- */

#define ends(i) ([] ((frame[i] == HELD || frame[i] == WAITING) -> <> (frame[i] == OVER)))

ltl drains  { [] (asked -> <> drained) }
ltl home    { [] <> (out == 0) }         /* every run comes to rest, so: in the end for good */
ltl settled { ends(0) && ends(1) && ends(2) && ends(3) }

/* ---- a healthy peer gets all that its lane took ---- */

ltl all_written { [] !lost }

/* ---- what must be able to happen: each of these has to be refuted ---- */

ltl never_full      { [] !was_full }
ltl never_saturated { [] !was_saturated }
ltl never_turned    { [] !was_turned }
ltl never_displaced { [] !was_displaced }
ltl never_expired   { [] !was_expired }
ltl never_broken    { [] !was_broken }
ltl never_swept     { [] !was_swept }
ltl never_batch     { [] !was_batch }
ltl never_drained   { [] !drained }
