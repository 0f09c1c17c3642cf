----------------------------- MODULE Histories -----------------------------
(***************************************************************************)
(* Whether what the simulator recorded is a behaviour of the protocol.     *)
(*                                                                         *)
(* A history is a sequence of events: what the production scripts wrote    *)
(* into the journal, what the production sessions did, and how much time   *)
(* passed in between, in milliseconds.  Each event must be possible as the *)
(* action of Cobalance.tla that it names, at the very moment at which it   *)
(* happened, and the state that it leads to must be the recorded one.  A   *)
(* history that is followed to its end is accepted and says so; one that   *)
(* is not contains an event which the protocol does not allow.             *)
(***************************************************************************)
EXTENDS Promises, Sequences, TLC

CONSTANT Recorded            \* the histories

VARIABLES which, at          \* the history that is followed, and its next event

here == <<which, at>>

(* What a process must have: of each resource its token, and whether it is worked, drained or stopped. *)
Stopped == {"done", "aborted"}
Looks(it, seen) == it.token = seen.t /\ \/ it.phase = seen.phase
                                        \/ it.phase \in Stopped /\ seen.phase = "stopped"
Has(m, all) == \A r \in Resource : IF r \in DOMAIN all THEN Looks(tenure[m][r], all[r])
                                   ELSE tenure[m][r].phase = "none"

(* What must be on record: of each resource its owner, its token, and whether its revocation is pending. *)
IsOnRecord(all) == \A r \in Resource :
    IF r \in DOMAIN all
    THEN /\ record[r].status # "absent" /\ record[r].owner = all[r].m
         /\ all[r].m # Nobody => record[r].token = all[r].t /\ Pending(r) = all[r].pending
    ELSE record[r].status = "absent"

(* Somebody sent this: it had the tenure and had stopped working it, or it is gone, or the tenure is. *)
MaySend(e) == tenure[e.m][e.r].token = e.t /\ Runs(e.m) => tenure[e.m][e.r].phase \in Stopped
Request(e, verb, offset) == [verb |-> verb, member |-> e.m, resource |-> e.r, token |-> e.t, offset |-> offset]

OnRedis(e) ==
    \/ e.is = "join" /\ JoinWithClaims(e.m, e.all)
    \/ e.is = "tell" /\ Tell(e.m)
    \/ e.is = "leave" /\ Leave(e.m)
    \/ e.is = "left" /\ Left(e.m)
    \/ e.is = "grant" /\ Grant(e.r, e.m) /\ record'[e.r].token = e.t
    \/ e.is = "revoke" /\ record[e.r].owner = e.m /\ record[e.r].token = e.t /\ Revoke(e.r)
    \/ e.is = "withdraw" /\ record[e.r].owner = e.m /\ record[e.r].token = e.t /\ Withdraw(e.r)
    \/ e.is = "cancel" /\ record[e.r].owner = e.m /\ record[e.r].token = e.t /\ Cancel(e.r)
    \/ e.is = "force" /\ record[e.r].owner = e.m /\ record[e.r].token = e.t /\ Force(e.r)
    \/ e.is = "expire" /\ Expire(e.m)
    \/ e.is = "recover" /\ Recover
    \/ e.is = "add" /\ Add(e.r)
    \/ e.is = "remove" /\ Remove(e.r)
    \/ e.is = "delete" /\ Delete(e.r)
    \/ e.is = "commit" /\ Accepted(Request(e, "commit", e.offset)) /\ Execute(Request(e, "commit", e.offset))
                       /\ UNCHANGED post
    \/ e.is \in {"release", "abandon", "fenced"}
        /\ MaySend(e) /\ Accepted(Request(e, e.is, e.offset)) /\ Execute(Request(e, e.is, e.offset))
        /\ UNCHANGED post
    \/ e.is = "refuse" /\ ~Current(e.m, e.r, e.t) /\ UNCHANGED vars      \* fenced
    \/ e.is = "lose data" /\ LoseData
    \/ e.is = "record" /\ IsOnRecord(e.all) /\ UNCHANGED vars

OnProcess(e) ==
    \/ e.is = "start" /\ Start(e.m)
    \/ e.is = "hear" /\ Hear(e.m)
    \/ e.is = "lose" /\ Lose(e.m)
    \/ e.is = "finish" /\ Finish(e.m, e.r)
    \/ e.is = "abort" /\ \/ Abort(e.m, e.r)
                         \/ tenure[e.m][e.r].phase = "aborted" /\ UNCHANGED vars   \* Thaw has done so
    \/ e.is = "stop" /\ Stop(e.m)
    \/ e.is = "crash" /\ Crash(e.m)
    \/ e.is = "freeze" /\ Freeze(e.m)
    \/ e.is = "thaw" /\ Thaw(e.m)
    \/ e.is = "has" /\ Has(e.m, e.all) /\ UNCHANGED vars

Follow(e) ==
    \/ e.is = "pass" /\ Pass(e.ms)
    \/ e.is = "list" /\ Declare(e.some, e.all)
    \/ OnRedis(e) \/ OnProcess(e)

HistoryInit == Init /\ which \in DOMAIN Recorded /\ at = 1
HistoryNext ==
    \/ /\ UNCHANGED which /\ at' = at + 1
       /\ \/ at <= Len(Recorded[which]) /\ Follow(Recorded[which][at]) /\ PrintT(<<"followed", which, at>>)
          \/ at = Len(Recorded[which]) + 1 /\ PrintT(<<"accepted", which>>) /\ UNCHANGED vars
    \/ UNCHANGED here /\ \E r \in Resource : Forgive(r)      \* of which the journal says nothing
HistorySpec == HistoryInit /\ [][HistoryNext]_<<vars, here>>
=============================================================================
