------------------------------- MODULE Group -------------------------------
(***************************************************************************)
(* The first half of Cobalance: what Redis, each process and the network   *)
(* keep in mind, and how Redis settles what is due.  Cobalance.tla says    *)
(* what it is about, and goes on with it.                                  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Member,      \* processes; one that died may come back under its name
    Resource,
    Nobody,      \* no member
    Offset,      \* what can be committed: numbers from 0, which is "nothing yet"
    Session,     \* a member silent for this long has crashed
    Lease,       \* how long a member believes an answer, counted from its request; below Session
    Revocation,  \* how long a holder may take to let go; at least Session
    Margin       \* how much sooner than that its own clock stops it

VARIABLES
    (* What Redis stores.  It may lose all of it. *)
    record,      \* of each resource: see Absent below
    standing,    \* of each member: "none", "active" or "leaving"
    session,     \* what is left of each member's session
    recovering,  \* what is left of the time for claims; Off when holdings are certain
    known,       \* the members that joined since data was last lost
    backup,      \* what a lagging replica, or yesterday's backup, would bring back
    (* What no loss of data undoes. *)
    issued,      \* the highest token of each resource: Redis's clock is above it
    names,       \* of each member: what its code names, as it has declared last; joining, it declares again
    (* What each process knows. *)
    process,     \* "out", "joining", "in" or "leaving"
    health,      \* "well", "frozen" (executes nothing) or "cut" (cannot reach Redis)
    lease,       \* what is left of its belief in its session
    tenure,      \* of each resource: see NoTenure below
    (* What is on its way. *)
    answer,      \* to each member: see NoAnswer below
    post         \* commits and releases: one may arrive late, its sender dead, or never

redis   == <<record, standing, session, recovering, known, backup>>
outside == <<issued, names>>
members == <<process, health, lease, tenure>>
network == <<answer, post>>
vars    == <<redis, outside, members, network>>

Off == -1                              \* a clock that does not run
Down(clock, d) == IF clock > d THEN clock - d ELSE IF clock = Off THEN Off ELSE 0

(* A resource, as Redis has it on record.  The token is that of the present tenure, or of the last one. *)
Absent == [status |-> "absent", owner |-> Nobody, token |-> 0, offset |-> 0,
           deadline |-> Off,           \* until it is moved by force; runs once an answer has carried the revocation
           removing |-> FALSE,         \* nobody names it any more
           avoid |-> Nobody]           \* who gave it up unfinished, and is not chosen again for a while

(* A resource, as a member has it: worked, asked back and still worked, finished, or stopped unfinished. *)
NoTenure == [phase |-> "none", token |-> 0, offset |-> 0, abort |-> Off]
Phase    == {"none", "working", "draining", "done", "aborted"}

(* An answer carries what the member holds: "hold", "revoke" or "nothing" of each resource. *)
Untold   == [asks |-> "nothing", token |-> 0, offset |-> 0, deadline |-> Off]
NoAnswer == [lease |-> Off, told |-> [r \in Resource |-> Untold]]

----------------------------------------------------------------------------
(* Who should keep how many, while everybody names everything: floor or ceiling of the exact share.  Whoever already
   keeps its ceiling may keep it. *)

Active    == {m \in Member : standing[m] = "active"}
Able(r)   == {m \in Active : r \in names[m]}                  \* who may have it
Listed(r) == record[r].status # "absent" /\ ~record[r].removing
Free(r)   == record[r].status = "free"
Pending(r) == record[r].status = "pending"
Kept(m)   == Cardinality({r \in Resource :
                 record[r].owner = m /\ record[r].status \in {"granted", "held"} /\ ~record[r].removing})

Total   == Cardinality({r \in Resource : Listed(r)})
Floor   == Total \div Cardinality(Active)
Extras  == Total % Cardinality(Active)                        \* how many members may keep one more
Above   == Cardinality({m \in Active : Kept(m) > Floor})      \* how many do

HasSurplus(m) == \/ Kept(m) > Floor + (IF Extras > 0 THEN 1 ELSE 0)
                 \/ Extras > 0 /\ Kept(m) = Floor + 1 /\ Above > Extras
HasRoom(m)    == \/ Kept(m) < Floor
                 \/ Kept(m) = Floor /\ Above < Extras

(* While members name different things: nothing that is better off with a lesser loaded one who names it. *)
Alike == \A r \in Resource : Listed(r) => Able(r) = Active
Lessens(r) == \E other \in Able(r) : Kept(record[r].owner) > Kept(other) + 1
IsInVain(r) == \A other \in Able(r) : Kept(record[r].owner) <= Kept(other)      \* its revocation

Certain == recovering = Off                                   \* nobody's holdings are in doubt
Current(m, r, token) == record[r].owner = m /\ record[r].token = token /\ token > 0
Freed(it) == [it EXCEPT !.status = "free", !.owner = Nobody, !.deadline = Off]

----------------------------------------------------------------------------
(* Redis settles what is due.  While the group recovers, nothing is taken from anybody and nothing is given. *)

(* The resource goes to whoever names it and is most under its quota now, under a token that never was. *)
MostUnder(m, among) == m \in among /\ \A other \in among : Kept(m) <= Kept(other)

MayBeGranted(r, m) ==
    /\ Certain /\ Free(r) /\ Listed(r) /\ m \in Able(r)
    /\ LET giver == record[r].avoid IN
       IF giver # Nobody /\ standing[giver] # "none" /\ Able(r) # {giver}
       THEN MostUnder(m, Able(r) \ {giver})                   \* over its quota, if need be
       ELSE MostUnder(m, Able(r)) /\ (~Alike \/ HasRoom(m) \/ giver = m)

Avoiding(r, m) == LET giver == record[r].avoid IN
    IF giver # Nobody /\ giver # m /\ standing[giver] # "none" THEN giver ELSE Nobody

Grant(r, m) ==
    /\ MayBeGranted(r, m)
    /\ issued' = [issued EXCEPT ![r] = @ + 1]
    /\ record' = [record EXCEPT ![r].status = "granted", ![r].owner = m, ![r].token = issued[r] + 1,
                                ![r].avoid = Avoiding(r, m)]
    /\ UNCHANGED <<standing, session, recovering, known, backup, names, members, network>>

(* Whether it must go: nobody names it any more, its holder does not or is leaving, or has too many. *)
IsSurplus(r) ==
    LET owner == record[r].owner IN
    /\ Certain /\ record[r].status \in {"granted", "held"}
    /\ \/ record[r].removing
       \/ owner \notin Able(r)
       \/ owner \in Able(r) /\ record[r].avoid = Nobody /\ IF Alike THEN HasSurplus(owner) ELSE Lessens(r)

Revoke(r) ==
    /\ IsSurplus(r) /\ record[r].status = "held"
    /\ record' = [record EXCEPT ![r].status = "pending"]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

(* A grant that no answer has carried yet is taken back at once. *)
Withdraw(r) ==
    /\ IsSurplus(r) /\ record[r].status = "granted"
    /\ record' = [record EXCEPT ![r] = Freed(@)]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

(* A revocation that is no longer surplus is cancelled: same holder, same token. *)
MayBeKept(r) ==
    /\ Certain /\ Pending(r) /\ ~record[r].removing
    /\ record[r].owner \in Able(r) /\ IF Alike THEN HasRoom(record[r].owner) ELSE IsInVain(r)

Cancel(r) ==
    /\ MayBeKept(r)
    /\ record' = [record EXCEPT ![r].status = "held", ![r].deadline = Off]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

(* The deadline has passed, and there is nothing to cancel: the resource is taken.  The member stays. *)
Force(r) ==
    /\ Certain /\ Pending(r) /\ record[r].deadline = 0 /\ ~MayBeKept(r)
    /\ record' = [record EXCEPT ![r] = Freed(@)]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

(* A member whose session is over holds nothing any more. *)
Expire(m) ==
    /\ Certain /\ standing[m] # "none" /\ session[m] = 0
    /\ standing' = [standing EXCEPT ![m] = "none"]
    /\ record' = [r \in Resource |-> IF record[r].owner = m THEN Freed(record[r]) ELSE record[r]]
    /\ UNCHANGED <<session, recovering, known, backup, outside, members, network>>

(* The time for claims is over: what nobody claimed is free. *)
Recover ==
    /\ recovering = 0
    /\ recovering' = Off
    /\ UNCHANGED <<record, standing, session, known, backup, outside, members, network>>

(* Who gave it up may have it again; who took it in excess may lose it again. *)
Forgive(r) ==
    /\ record[r].avoid # Nobody
    /\ record' = [record EXCEPT ![r].avoid = Nobody]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

(* What somebody names is known, and what nobody names is let go of: revoked first, if it is held.  What comes back in the
   meantime keeps its holder, its deadline, its token and its offset. *)
Add(r) ==
    /\ Able(r) # {} /\ ~Listed(r)
    /\ record' = [record EXCEPT ![r].removing = FALSE,
                                ![r].status = IF @ = "absent" THEN "free" ELSE @]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

Remove(r) ==
    /\ Certain /\ Active # {} /\ Able(r) = {} /\ Listed(r)
    /\ record' = [record EXCEPT ![r].removing = TRUE]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

Delete(r) ==
    /\ Certain /\ Free(r) /\ record[r].removing
    /\ record' = [record EXCEPT ![r] = [Absent EXCEPT !.offset = record[r].offset, !.token = record[r].token]]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

Settle ==
    \/ Recover
    \/ \E m \in Member : Expire(m)
    \/ \E r \in Resource : \/ \E m \in Member : Grant(r, m)
                           \/ Revoke(r) \/ Withdraw(r) \/ Cancel(r) \/ Force(r)
                           \/ Forgive(r) \/ Add(r) \/ Remove(r) \/ Delete(r)
=============================================================================
