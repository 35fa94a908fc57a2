/*
 * How two registries on one storage put their commits into one log.
 *
 * Each registry has one committer. It knows the log up to some HEAD{version,
 * hash}, takes one or two of the proposals that wait, and sends the storage one
 * transaction: if HEAD is still the one that I know, append these records and
 * move HEAD. The storage does all of it in one step, or nothing. The answer is
 * yes, or that HEAD is another, or it gets lost; and then nobody knows whether
 * the records were kept, all of them or only the first, or whether the
 * transaction is still under way and will arrive at the worst moment. A committer
 * may crash anywhere, and forgets everything but the log.
 *
 * The rule that is proved right here: whoever does not know reads the log and
 * never guesses. What is in the log is committed, whoever put it there. What is
 * not may be tried again behind the HEAD that was read, because then at most one
 * of the two tries can find that HEAD.
 *
 * A proposal has preconditions: the item that it changes is what it was when the
 * proposal was made. Here they hold until a rival, a proposal for the same item,
 * is in the log. Those who wait for an answer come again after a crash.
 *
 * Each switch in capitals (#ifdef) puts one mistake in; README.md says what it
 * shows, and check.sh runs them all. Three switches are no mistakes. WITHIN has
 * rivals at one registry in place of rivals at two. FEWER keeps crashes and lost
 * answers to the first registry, for the searches that cost most. WITNESS notes what
 * has happened, to show that the model can do it.
 */

#define VERSIONS 5              /* room in the log: more than is needed, so that mistakes fit in */
#define NONE     255

/* How many answers to a committer may get lost, and how often it may crash. */
#ifndef FEWER
#define LOST     1
#define CRASHES  1
#else
#define LOST     (1 - me)
#define CRASHES  (1 - me)
#endif

/*
 * Three proposals, two for each registry: 0 and 1 for the first, 1 and 2 for the
 * second, so that 1 was handed to both. Two of the three are rivals. So the log
 * gets two records: one of the rivals, and the third.
 */
#define ALL       7
#define bit(p)    (1 << (p))
#define own(me)   (3 << me)
#ifndef WITHIN
#define RIVALS    (bit(0) | bit(2))
#else
#define RIVALS    (bit(0) | bit(1))
#endif
#define rivals(p) ((bit(p) & RIVALS) -> (RIVALS & ~bit(p)) : 0)

/* What the storage answered. */
#define NOTHING  0
#define KEPT     1
#define MISMATCH 2
#define UNKNOWN  3

#ifdef WITNESS
#define note(x) x = true
#else
#define note(x) skip
#endif

/* ---- the storage ---- */

/* What a record is, hash included: whose it is, and the proposal. That of genesis
 * is zero. */
#define artifact(who, p) (1 + 8 * who + p)

byte log[VERSIONS];
byte size = 1;                  /* genesis is there */
byte head_version;
byte head_hash;
byte committed;                 /* the proposals in the log */

/* A transaction: what it expects, and the proposals of its one or two records. */
typedef Transaction {
	bool out;
	byte version;
	byte hash;
	byte a;
	byte b
}

Transaction sent[2];            /* the committer waits for the answer */
Transaction late[2];            /* nobody waits any more, and still it is under way */
byte reply[2];

/* ---- what those who asked were told, by registry ---- */

byte acked[2];
byte refused[2];                /* with Conflict: a precondition does not hold */

#define open(me) (own(me) & ~(acked[me] | refused[me]))

/* ---- what is watched, and steers nothing ---- */

bool was_mismatch, was_unknown_kept, was_partial, was_late, was_late_in_vain, was_batch, was_crash_kept;
bool wrote[2];

/* One record goes to the end of the log. */
inline write(n, who, p) {
	assert(n >= size || log[n] == artifact(who, p));        /* never two at one version */
	assert(n == size);                                      /* versions go up by one */
	assert(!(committed & bit(p)));                          /* a proposal is committed once */
	assert(!(committed & rivals(p)));                       /* and only if its preconditions hold */
	log[n] = artifact(who, p);
	size++;
	committed = committed | bit(p);
	note(wrote[who])
}

#ifndef NO_CAS
#define expected(t) (t.version == head_version && t.hash == head_hash)
#else
#define expected(t) true        /* the mistake: nobody compares */
#endif

/* The transaction, in one step: compare, append, move HEAD. If not the whole of it
 * is to be kept, then the first record. */
inline commit(t, who, whole) {
	d_step {
		if
		:: expected(t) ->
			write(t.version + 1, who, t.a);
			if
			:: whole && t.b != NONE -> write(t.version + 2, who, t.b); note(was_batch)
			:: else
			fi;
			head_version = size - 1;
			head_hash = log[size - 1];
			kept = true
		:: else
		fi
	}
}

inline clear(t) {
	t.out = false;
	t.version = 0;
	t.hash = 0;
	t.a = 0;
	t.b = 0
}

/* The transaction that was waited for goes on without anybody waiting. */
inline leave_behind(me) {
	late[me].out = true;
	late[me].version = sent[me].version;
	late[me].hash = sent[me].hash;
	late[me].a = sent[me].a;
	late[me].b = sent[me].b
}

/* The way to the storage and back, one for each committer. */
active [2] proctype Way() {
	byte me = _pid;
	byte lost = 0;
	bool kept = false;      /* what came of the transaction in hand */

end_idle:
	do
	:: atomic { sent[me].out ->
		commit(sent[me], me, true);
		reply[me] = (kept -> KEPT : MISMATCH);
		kept = false;
		clear(sent[me])
	}
	:: atomic { sent[me].out && lost < LOST ->
		lost++;
		if
		:: true                                 /* it never arrived */
		:: commit(sent[me], me, true);          /* its answer never arrived */
			if
			:: kept -> note(was_unknown_kept)
			:: else
			fi
		:: sent[me].b != NONE ->                /* the storage failed after the first record */
			commit(sent[me], me, false);
			if
			:: kept -> note(was_partial)
			:: else
			fi
		:: !late[me].out -> leave_behind(me)    /* it takes longer than anybody waits */
#ifdef SPLIT_COMMIT
		/* The mistake: HEAD is moved by a second transaction, and that one is lost. */
		:: expected(sent[me]) -> write(sent[me].version + 1, me, sent[me].a)
#endif
		fi;
		reply[me] = UNKNOWN;
		kept = false;
		clear(sent[me])
	}
	:: atomic { late[me].out ->
		if
		:: true                                 /* it never arrived */
		:: commit(late[me], me, true);
			if
			:: kept -> note(was_late)
			:: else -> note(was_late_in_vain)
			fi
		fi;
		kept = false;
		clear(late[me])
	}
	od
}

/* What waits is due an answer if it is in the log, or cannot get there any more,
 * as far as the log is known. Otherwise it may be tried. */
#define waits(p) (open(me) & bit(p))
#define due(p)   (waits(p) && (known & (bit(p) | rivals(p))))
#define ready(p) (waits(p) && !due(me) && !due(me + 1))

#ifndef BATCH_BLIND
#define joins(p) (p != a && waits(p) && !(bit(a) & rivals(p)))
#else
#define joins(p) (p != a && waits(p))   /* the mistake: held against the state before a */
#endif

inline tell(p) {
	if
	:: known & bit(p) -> acked[me] = acked[me] | bit(p)
	:: else           -> refused[me] = refused[me] | bit(p)
	fi
}

/* Nothing is left of a committer that crashed but what it has sent. */
inline crash() {
	atomic {
		crashes < CRASHES -> crashes++;
		if
		:: reply[me] == KEPT -> note(was_crash_kept)
		:: else
		fi;
		if
		:: sent[me].out && !late[me].out -> leave_behind(me)
		:: else
		fi;
		clear(sent[me]);
		reply[me] = NOTHING;
		a = NONE;
		b = NONE;
		goto reload
	}
}

/* The one committer of a registry. */
active [2] proctype Committer() {
	byte me = _pid - 2;
	byte version;           /* HEAD as far as it is known */
	byte hash;
	byte known;             /* the proposals in the log up to there */
	byte a = NONE;          /* the batch in hand */
	byte b = NONE;
	byte crashes = 0;

	/* HEAD is read first, then the records up to it. Those never change, so this is
	 * one step for all that can be seen of it. */
reload:
	atomic {
		version = head_version;
		hash = head_hash;
#ifndef FORGET
		known = committed;
#else
		known = 0;              /* the mistake: HEAD is read, and nothing else */
#endif
		a = NONE;
		b = NONE
	}
take:
	if
	:: atomic { due(me)       -> tell(me); goto take }
	:: atomic { due(me + 1)   -> tell(me + 1); goto take }
	:: atomic { ready(me)     -> a = me; goto send }
	:: atomic { ready(me + 1) -> a = me + 1; goto send }
	:: atomic { open(me) == 0 -> goto over }
	:: crash()
	fi;
	/* From here to the transaction on its way nobody can see what the committer does. */
send:
	atomic {
		if
		:: b == NONE && joins(me)     -> b = me
		:: b == NONE && joins(me + 1) -> b = me + 1
		:: true                 /* the other one came too late for this batch */
		fi;
		sent[me].version = version;
		sent[me].hash = hash;
		sent[me].a = a;
		sent[me].b = b;
		sent[me].out = true;
#ifdef ACK_EARLY
		known = known | bit(a); /* the mistake: it will be all right */
		tell(a);
#endif
	}
	if
	:: atomic { reply[me] == KEPT     -> reply[me] = NOTHING; goto kept }
	:: atomic { reply[me] == MISMATCH -> reply[me] = NOTHING; note(was_mismatch);
#ifndef RETRY_BLIND
		goto reload
#else
		goto send               /* the mistake: nothing was learnt from it */
#endif
	}
	:: atomic { reply[me] == UNKNOWN  -> reply[me] = NOTHING;
#if defined(ASSUME_DONE)
		goto kept               /* the mistake: it is there */
#elif defined(ASSUME_FAILED)
		version = head_version; /* the mistake: it is not there, so once more behind HEAD */
		hash = head_hash;
		goto send
#else
		goto reload
#endif
	}
	:: crash()
	fi;
	/* The whole batch is in the log, and HEAD is the last of it. */
kept:
	atomic {
		known = known | bit(a);
		version++;
		hash = artifact(me, a);
		if
		:: b != NONE ->
			known = known | bit(b);
			version++;
			hash = artifact(me, b)
		:: else
		fi;
		a = NONE;
		b = NONE;
		goto take
	}
over:
	atomic { version = 0; hash = 0; known = 0 }
}

/* ---- safety ---- */

ltl head_is_last { [] (head_version == size - 1 && head_hash == log[size - 1]) }
ltl acked_kept   { [] (((acked[0] | acked[1]) & ~committed) == 0) }
ltl refused_not  { [] (((refused[0] | refused[1]) & committed) == 0) }

/* ---- liveness, under weak fairness ---- */

ltl answered { <> (open(0) == 0 && open(1) == 0) }
ltl placed   { <> ((committed & RIVALS) && (committed | RIVALS) == ALL) }

/* ---- what must be able to happen: each of these has to be refuted ---- */

ltl never_both         { [] !(wrote[0] && wrote[1]) }
ltl never_mismatch     { [] !was_mismatch }
ltl never_unknown_kept { [] !was_unknown_kept }
ltl never_partial      { [] !was_partial }
ltl never_late         { [] !was_late }
ltl never_late_in_vain { [] !was_late_in_vain }
ltl never_crash_kept   { [] !was_crash_kept }
ltl never_batch        { [] !was_batch }
ltl never_refused      { [] !refused[0] }
/* the first registry says that 1 is committed, and it was the second who did it */
ltl never_met          { [] !((acked[0] & bit(1)) && (log[1] == artifact(1, 1) || log[2] == artifact(1, 1))) }
