-------------------------- MODULE HandoverHistories --------------------------
(***************************************************************************)
(* Whether what was recorded of consumers that ship is a handover.  Each   *)
(* event must be possible as the action of Handover.tla that it names, as  *)
(* in Histories.tla.  What RabbitMQ does, nobody has recorded: it reads    *)
(* and sends, locks and unlocks whenever that is possible, and a channel   *)
(* is lost only where the recording says that its connection was cut.      *)
(***************************************************************************)
EXTENDS Handover, TLC

CONSTANT Recorded            \* the histories

VARIABLES which, at,         \* the history that is followed, and its next event
          cut, dead          \* tenures whose channel is lost once, or whose member is gone

here == <<which, at>>

IsEnded(t) == tenure[t].phase = "ended" /\ UNCHANGED vars
IsGone(t) == tenure[t].phase \in {"unlocking", "ended"} /\ UNCHANGED vars
Told(t, what) == \E n \in {1, 2} : n <= Len(tenure[t].in) /\ tenure[t].in[n].is = what /\ HearAt(t, n)
ToldOf(t, x) == \E n \in {1, 2} : n <= Len(tenure[t].in) /\ tenure[t].in[n] = [is |-> "message", x |-> x] /\ HearAt(t, n)
Becomes(t, phase) == tenure'[t].phase = phase

OnRecord(e) ==
    \/ e.is = "grant" /\ Grant /\ owner' = e.t
    \/ e.is = "ask" /\ owner = e.t /\ Ask
    \/ e.is = "force" /\ owner = e.t /\ Force
    \/ e.is = "release" /\ Release(e.t) /\ (IsStream => committed' = e.offset)
    \/ e.is = "abandon" /\ Abandon(e.t)
    \/ e.is = "commit" /\ Commit(e.t, e.offset)
    \/ e.is = "stored" /\ committed >= e.offset /\ UNCHANGED vars

OnChannel(e) ==
    \/ e.is = "open" /\ Open(e.t)
    \/ e.is = "subscribed" /\ Told(e.t, "ok") /\ Becomes(e.t, "consuming")
    \/ e.is = "refused" /\ Told(e.t, "refused")
    \/ e.is = "arrive" /\ Accepts(tenure[e.t]) /\ ToldOf(e.t, e.x)
    \/ e.is = "ack" /\ Ack(e.t, e.some)
    \/ e.is = "drain" /\ Drain(e.t)
    \/ e.is = "abort" /\ Abort(e.t)
    \/ e.is = "close" /\ Close(e.t)
    \/ e.is = "gone" /\ (Told(e.t, "closed") \/ Lost(e.t) \/ IsGone(e.t))
    \/ e.is = "ended" /\ (((Told(e.t, "closed") \/ Lost(e.t) \/ Unlocked(e.t)) /\ Becomes(e.t, "ended")) \/ IsEnded(e.t))

OnHandler(e) ==
    \/ e.is = "begin" /\ Begin(e.t, e.x)
    \/ e.is = "finish" /\ Finish(e.t, e.x)
    \/ e.is = "stop" /\ Stop(e.t, e.x)

(* Its process begins nothing more; its channel is lost, and its handlers are gone. *)
Dies(t) == Let(t, [tenure[t] EXCEPT !.aborted = TRUE, !.buffer = {}]) /\ Doubted /\ UNCHANGED finished

Follow(e) ==
    \/ (OnRecord(e) \/ OnChannel(e) \/ OnHandler(e)) /\ UNCHANGED <<cut, dead>>
    \/ e.is = "partition" /\ UNCHANGED <<vars, cut, dead>>
    \/ e.is = "cut" /\ cut' = cut \cup {e.t} /\ UNCHANGED <<vars, dead>>
    \/ e.is = "crash" /\ dead' = dead \cup {e.t} /\ Dies(e.t) /\ UNCHANGED cut

(* What nobody has recorded. *)
Between(t) ==
    \/ (Read(t) \/ Send(t) \/ Lock(t) \/ Unlock(t)) /\ UNCHANGED <<cut, dead>>
    \/ t \in cut \cup dead /\ Drop(t) /\ cut' = cut \ {t} /\ UNCHANGED dead
    \/ ~Accepts(tenure[t]) /\ (Told(t, "ok") \/ Told(t, "message")) /\ UNCHANGED <<cut, dead>>     \* too late
    \/ (Reopen(t) \/ GiveUp(t)) /\ UNCHANGED <<cut, dead>>
    \/ tenure[t].phase = "granted" /\ Drain(t) /\ UNCHANGED <<cut, dead>>        \* it never had a consumer

HistoryInit ==
    /\ which \in DOMAIN Recorded /\ at = 1 /\ cut = {} /\ dead = {}
    /\ LET first == Recorded[which][1] IN
       kind = [guard |-> first.guard, keys |-> first.keys, prefetch |-> first.prefetch]
    /\ left = 0 /\ Begins
HistoryNext ==
    /\ UNCHANGED left
    /\ \/ /\ UNCHANGED which /\ at' = at + 1
          /\ \/ at <= Len(Recorded[which]) /\ Follow(Recorded[which][at]) /\ PrintT(<<"followed", which, at>>)
             \/ at = Len(Recorded[which]) + 1 /\ PrintT(<<"accepted", which>>) /\ UNCHANGED <<vars, cut, dead>>
       \/ UNCHANGED here /\ \E t \in Token : Between(t)
       \/ UNCHANGED <<here, cut, dead>> /\ \E q \in post : Store(q)
HistorySpec == HistoryInit /\ [][HistoryNext]_<<vars, here, cut, dead>>
=============================================================================
