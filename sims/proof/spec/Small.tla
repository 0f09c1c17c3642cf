------------------------------- MODULE Small -------------------------------
(***************************************************************************)
(* Cobalance, small enough to be checked completely.  Time passes by one.  *)
(* A well member is punctual: it has been heard and answered in every      *)
(* tick; lateness is a fault.  Of what disturbs a group, only so much      *)
(* happens; what follows from it happens in every order there is.          *)
(***************************************************************************)
EXTENDS Promises

CONSTANTS
    Trouble,     \* how many disturbances there are altogether
    Kinds,       \* which of them
    Lists,       \* what a process that joins may name
    Reasons,     \* why unfinished work is given up: "abandon", "fenced" or both
    Prompt       \* whether every script settles all that is due, as it does while there is little to move

VARIABLE left    \* how many are still to come

(* What the base module leaves to chance and what can repeat without end, is a disturbance here. *)
Disturbance ==
    \/ \E m \in Member :
        \/ "start" \in Kinds /\ Start(m)
        \/ "stop" \in Kinds /\ process[m] = "in" /\ Stop(m)
        \/ "crash" \in Kinds /\ Crash(m)
        \/ "freeze" \in Kinds /\ Freeze(m)
        \/ "cut" \in Kinds /\ Cut(m)
        \/ "break" \in Kinds /\ \E r \in Resource : ~Overdue(m, r) /\ Abort(m, r)
        \/ "finish" \in Kinds /\ \E r \in Resource : tenure[m][r].phase # "draining" /\ Finish(m, r)
        \/ "late" \in Kinds /\ ~Reaches(m) /\ Tell(m)
    \/ "lose" \in Kinds /\ LoseData
    \/ "remember" \in Kinds /\ Remember
    \/ "list" \in Kinds /\ \E some \in SUBSET Active, list \in SUBSET Resource :
                            (\E m \in some : names[m] # list) /\ Declare(some, list)

(* A member asks when it is time, or when a hint came that there is something to hear. *)
HasNews(m) == \E r \in Resource :
    LET it == tenure[m][r]  on == record[r] IN
    IF on.owner # m THEN it # NoTenure
    ELSE \/ it.token # on.token \/ it.offset # on.offset
         \/ on.status = "granted"
         \/ on.status = "held" /\ it.phase = "draining" /\ process[m] = "in"
         \/ on.status = "pending" /\ (on.deadline = Off \/ (Touches(m, r) /\ it.abort = Off))
Asks(m) == Reaches(m) /\ answer[m] = NoAnswer /\ (lease[m] < Lease \/ HasNews(m)) /\ Tell(m)

(* What has ended is released; a request is repeated only while it has not been executed. *)
Releases(m) == \E r \in Resource :
    /\ Current(m, r, tenure[m][r].token)
    /\ \/ \E offset \in Offset : offset >= tenure[m][r].offset /\ SendRelease(m, r, offset)
       \/ \E verb \in Reasons : SendAbandon(m, r, verb)
Commits(m) == \E r \in Resource, offset \in Offset :
    offset > tenure[m][r].offset /\ offset > record[r].offset /\ SendCommit(m, r, offset)

Leaves(m) == Reaches(m) /\ (Leave(m) \/ Left(m))
Drains(m) == \E r \in Resource : tenure[m][r].phase = "draining" /\ Finish(m, r)
Stops(m)  == \E r \in Resource : Overdue(m, r) /\ Abort(m, r)

(* A well member has heard all there is to hear before time passes; heartbeats without news are part of the tick. *)
Punctual(m) == health[m] = "well" /\ process[m] \in {"in", "leaving"} =>
                   IsMember(m) /\ lease[m] = Lease /\ answer[m] = NoAnswer /\ ~HasNews(m)
Beating == {m \in Member : Reaches(m) /\ IsMember(m)}
Ticks == (\A m \in Member : Punctual(m)) /\ PassWith(1, Beating)

Arrives == \E q \in post : Arrive(q)

(* What waits for no clock.  A script that has much to move, or gathers changes, leaves some of it for later. *)
IsDue == \E r \in Resource :
    \/ IsSurplus(r) \/ MayBeKept(r)
    \/ \E m \in Member : MayBeGranted(r, m)
    \/ Able(r) # {} /\ ~Listed(r)
    \/ Active # {} /\ Certain /\ Able(r) = {} /\ Listed(r)
    \/ Certain /\ Free(r) /\ record[r].removing

(* Everything else that just goes on. *)
Others ==
    \/ Ticks \/ Arrives
    \/ \E m \in Member, list \in Lists : Join(m, list)
    \/ \E m \in Member : \/ Asks(m) \/ Hear(m) \/ Lose(m) \/ Leaves(m)
                         \/ Releases(m) \/ Commits(m) \/ Drains(m) \/ Stops(m)
                         \/ Thaw(m) \/ Mend(m)

Course ==
    \/ Settle
    \/ ~(Prompt /\ IsDue) /\ Others

all == <<vars, left>>
Step(action) == action /\ UNCHANGED left

SmallInit == InitWith("joining") /\ left = Trouble
SmallNext == Step(Course) \/ (left > 0 /\ left' = left - 1 /\ ~(Prompt /\ IsDue) /\ Disturbance)
Safe == SmallInit /\ [][SmallNext]_all

(* Whoever runs goes on, Redis goes on, time goes on.  No work need ever finish (Drains has no fairness), nothing
   frozen or cut off need ever come back. *)
Fairly ==
    /\ WF_all(Ticks /\ UNCHANGED left)
    /\ WF_all(Arrives /\ UNCHANGED left)
    /\ \A m \in Member :
        /\ WF_all((\E list \in Lists : Join(m, list)) /\ UNCHANGED left)
        /\ WF_all(Asks(m) /\ UNCHANGED left)
        /\ WF_all(Hear(m) /\ UNCHANGED left)
        /\ WF_all(Lose(m) /\ UNCHANGED left)
        /\ WF_all(Leaves(m) /\ UNCHANGED left)
        /\ WF_all(Releases(m) /\ UNCHANGED left)
FairlySettles == WF_all(Settle /\ UNCHANGED left)
FairlyStops == \A m \in Member : WF_all(Stops(m) /\ UNCHANGED left)
Live == Safe /\ Fairly /\ FairlySettles /\ FairlyStops
=============================================================================
