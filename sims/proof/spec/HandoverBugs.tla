---------------------------- MODULE HandoverBugs ----------------------------
(***************************************************************************)
(* Handover.tla with one mistake each, which TLC has to find: see Bugs.tla.*)
(***************************************************************************)
EXTENDS Handover

CONSTANT Mistake             \* which one

(* Granted to the next one before its holder has released it. *)
HeirTooEarly ==
    /\ owner # 0 /\ asked /\ owner' = Len(tenure) + 1 /\ asked' = FALSE /\ Len(tenure) < 2
    /\ tenure' = Append(tenure, Fresh("granted", committed))
    /\ UNCHANGED <<kind, committed, post, broker, memory>>

(* A drain closes the channel while a handler runs. *)
CloseOverHandler == \E t \in Token :
    tenure[t].phase = "draining" /\ tenure[t].running # {} /\ CloseAnyway(t)
ReleaseOverHandler == \E t \in Token :
    /\ owner = t /\ asked /\ tenure[t].phase = "ended" /\ End(t)
    /\ UNCHANGED <<kind, committed, post, broker, memory>>

(* The acks that are due are not sent before the channel is closed. *)
CloseWithoutAcks == \E t \in Token :
    tenure[t].phase = "draining" /\ tenure[t].running = {} /\ CloseAnyway(t)

(* With them goes what has arrived, and was not begun. *)
AckUnbegun == \E t \in Token :
    LET it == tenure[t] IN
    /\ it.phase = "draining" /\ it.buffer # {}
    /\ Let(t, [it EXCEPT !.buffer = {}, !.out = Append(@, [is |-> "ack", some |-> it.buffer])]) /\ UNCHANGED memory

(* A message is acknowledged while its handler runs. *)
AckTooEarly == \E t \in Token :
    LET it == tenure[t] IN
    /\ it.phase = "consuming" /\ it.running # {}
    /\ Let(t, [it EXCEPT !.out = Append(@, [is |-> "ack", some |-> it.running])]) /\ UNCHANGED memory

(* One ack for all up to the last that is finished, over a gap. *)
AckOverGap == \E t \in Token :
    LET it == tenure[t] IN
    /\ it.phase = "consuming"
    /\ \E x \in it.done : Let(t, [it EXCEPT !.out = Append(@, [is |-> "ack", some |-> 1..x])])
    /\ UNCHANGED memory

(* What has arrived is worked although the channel was lost. *)
KeepBuffer == \E t \in Token :
    /\ tenure[t].channel = "dropped"
    /\ Let(t, [NoMore(t, tenure[t]) EXCEPT !.buffer = tenure[t].buffer, !.phase = "granted"]) /\ UNCHANGED memory

(* The youngest message of a key first. *)
YoungestFirst == \E t \in Token : \E x \in tenure[t].buffer :
    Accepts(tenure[t]) /\ tenure[t].running = {} /\ BeginAnyway(t, x)

(* A queue is consumed without its guard. *)
Unguarded == \E t \in Token :
    LET it == tenure[t] IN
    /\ it.phase = "opening" /\ it.out # <<>> /\ it.channel = "none"
    /\ Let(t, Answer([it EXCEPT !.out = <<>>, !.channel = "served"], "ok", 0)) /\ UNCHANGED memory

(* The lock of a stream is released before its channel is closed. *)
UnlockTooEarly == \E t \in Token :
    /\ lock = t /\ lock' = 0 /\ tenure[t].phase = "draining"
    /\ UNCHANGED <<record, tenure, acked, memory>>

(* Whoever comes next begins with what comes next. *)
StartAtNext == \E t \in Token :
    LET it == tenure[t] IN
    /\ IsStream /\ it.phase = "granted" /\ (kind.guard = "lock" => lock = t)
    /\ Let(t, [it EXCEPT !.base = 1, !.phase = "opening", !.out = <<[is |-> "subscribe"]>>]) /\ UNCHANGED memory

(* What is committed has arrived, and need not be finished. *)
CommitArrived == \E t \in Token : \E x \in tenure[t].buffer :
    /\ IsStream /\ post' = post \cup {[token |-> t, offset |-> x]}
    /\ UNCHANGED <<kind, owner, asked, committed, tenure, broker, memory>>

(* A commit is stored whoever sends it; or whatever is stored already. *)
StoreFenced == \E q \in post :
    /\ post' = post \ {q} /\ committed' = IF q.offset > committed THEN q.offset ELSE committed
    /\ UNCHANGED <<kind, owner, asked, tenure, broker, memory>>
StoreLower == \E q \in post :
    /\ post' = post \ {q} /\ committed' = q.offset
    /\ UNCHANGED <<kind, owner, asked, tenure, broker, memory>>

Wrong ==
    \/ Mistake = "HeirTooEarly" /\ HeirTooEarly
    \/ Mistake = "CloseOverHandler" /\ (CloseOverHandler \/ ReleaseOverHandler)
    \/ Mistake = "CloseWithoutAcks" /\ CloseWithoutAcks
    \/ Mistake = "AckUnbegun" /\ AckUnbegun
    \/ Mistake = "AckTooEarly" /\ AckTooEarly
    \/ Mistake = "AckOverGap" /\ AckOverGap
    \/ Mistake = "KeepBuffer" /\ KeepBuffer
    \/ Mistake = "YoungestFirst" /\ YoungestFirst
    \/ Mistake = "Unguarded" /\ Unguarded
    \/ Mistake = "UnlockTooEarly" /\ UnlockTooEarly
    \/ Mistake = "StartAtNext" /\ StartAtNext
    \/ Mistake = "CommitArrived" /\ CommitArrived
    \/ Mistake = "StoreFenced" /\ StoreFenced
    \/ Mistake = "StoreLower" /\ StoreLower
Mistaken == Init /\ [][Next \/ (Wrong /\ UNCHANGED left)]_all

----------------------------------------------------------------------------
(* Four of which the promises about the end are meant to tell. *)

(* A handler that hangs is waited for. *)
NeverForced == Safe /\ FairlyBut("forced")
(* A holder that was moved by force never hears of it, and keeps the queue. *)
NeverHeard == Safe /\ FairlyBut("heard")
(* The lock of a stream is never released. *)
NeverUnlocked == Safe /\ FairlyBut("unlocked")
(* A holder that has lost its channel works on no more. *)
NeverReopened == Safe /\ FairlyBut("reopened") /\ FairlyEnds
=============================================================================
