----------------------------- MODULE Cobalance -----------------------------
(***************************************************************************)
(* Cobalance's protocol: how the members of a group share resources so     *)
(* that each resource is worked by one member, spread evenly, and only the *)
(* surplus moves.  Read it from top to bottom: state, what Redis does,     *)
(* what a member does, what goes wrong, what is promised.                  *)
(*                                                                         *)
(* One resource goes  free -> granted -> held -> pending -> free -> ...    *)
(* Each tenure has a token of its own, higher than every one before.       *)
(* A holder is asked, finishes, releases; or it is not heard of in time    *)
(* and the resource is taken.  Its own clock stops it ahead of that.       *)
(*                                                                         *)
(* Every step below is one script in Redis, which runs alone, or one step  *)
(* of one process.  A script of the product does several at once (each     *)
(* verb settles whatever is due); here they are single steps, which may    *)
(* follow each other late and in any order: more can happen than in fact.  *)
(*                                                                         *)
(* Left out: capacities, instance ids and their grace, eager mode, the     *)
(* gathering of changes, which of several surplus resources is picked,     *)
(* request numbers, pages of answers, brokers' guards, messages.  The      *)
(* simulator has all of them.                                              *)
(*                                                                         *)
(* Small.tla makes it finite, Bugs.tla plants mistakes in it, and          *)
(* Histories.tla compares it with what the simulator recorded.             *)
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
    wanted,      \* the resource list that the processes declare
    (* What each process knows. *)
    process,     \* "out", "joining", "in" or "leaving"
    health,      \* "well", "frozen" (executes nothing) or "cut" (cannot reach Redis)
    lease,       \* what is left of its belief in its session
    tenure,      \* of each resource: see NoTenure below
    (* What is on its way. *)
    answer,      \* to each member: see NoAnswer below
    post         \* commits and releases: one may arrive late, its sender dead, or never

redis   == <<record, standing, session, recovering, known, backup>>
outside == <<issued, wanted>>
members == <<process, health, lease, tenure>>
network == <<answer, post>>
vars    == <<redis, outside, members, network>>

Off == -1                              \* a clock that does not run
Down(clock, d) == IF clock > d THEN clock - d ELSE IF clock = Off THEN Off ELSE 0

(* A resource, as Redis has it on record.  The token is that of the present tenure, or of the last one. *)
Absent == [status |-> "absent", owner |-> Nobody, token |-> 0, offset |-> 0,
           deadline |-> Off,           \* until it is moved by force; runs once an answer has carried the revocation
           removing |-> FALSE,         \* the list no longer names it
           avoid |-> Nobody]           \* who gave it up unfinished, and is not chosen again for a while

(* A resource, as a member has it: worked, asked back and still worked, finished, or stopped unfinished. *)
NoTenure == [phase |-> "none", token |-> 0, offset |-> 0, abort |-> Off]
Phase    == {"none", "working", "draining", "done", "aborted"}

(* An answer carries what the member holds: "hold", "revoke" or "nothing" of each resource. *)
Untold   == [asks |-> "nothing", token |-> 0, offset |-> 0, deadline |-> Off]
NoAnswer == [lease |-> Off, told |-> [r \in Resource |-> Untold]]

----------------------------------------------------------------------------
(* Who should keep how many: floor or ceiling of the exact share.  Whoever already keeps its ceiling may keep it. *)

Active    == {m \in Member : standing[m] = "active"}
Listed(r) == record[r].status # "absent" /\ ~record[r].removing
Free(r)   == record[r].status = "free"
Pending(r) == record[r].status = "pending"
Kept(m)   == Cardinality({r \in Resource : record[r].owner = m /\ record[r].status \in {"granted", "held"}})

Total   == Cardinality({r \in Resource : Listed(r)})
Floor   == Total \div Cardinality(Active)
Extras  == Total % Cardinality(Active)                        \* how many members may keep one more
Above   == Cardinality({m \in Active : Kept(m) > Floor})      \* how many do

HasSurplus(m) == \/ Kept(m) > Floor + (IF Extras > 0 THEN 1 ELSE 0)
                 \/ Extras > 0 /\ Kept(m) = Floor + 1 /\ Above > Extras
HasRoom(m)    == \/ Kept(m) < Floor
                 \/ Kept(m) = Floor /\ Above < Extras

Certain == recovering = Off                                   \* nobody's holdings are in doubt
Current(m, r, token) == record[r].owner = m /\ record[r].token = token /\ token > 0
Freed(it) == [it EXCEPT !.status = "free", !.owner = Nobody, !.deadline = Off]

----------------------------------------------------------------------------
(* Redis settles what is due.  While the group recovers, nothing is taken from anybody and nothing is given. *)

(* The resource goes to whoever is most under its quota now, under a token that never was. *)
MostUnder(m, among) == m \in among /\ \A other \in among : Kept(m) <= Kept(other)

MayBeGranted(r, m) ==
    /\ Certain /\ Free(r) /\ Listed(r) /\ m \in Active
    /\ LET giver == record[r].avoid IN
       IF giver # Nobody /\ standing[giver] # "none" /\ Active # {giver}
       THEN MostUnder(m, Active \ {giver})                    \* over its quota, if need be
       ELSE MostUnder(m, Active) /\ (HasRoom(m) \/ giver = m)

Avoiding(r, m) == LET giver == record[r].avoid IN
    IF giver # Nobody /\ giver # m /\ standing[giver] # "none" THEN giver ELSE Nobody

Grant(r, m) ==
    /\ MayBeGranted(r, m)
    /\ issued' = [issued EXCEPT ![r] = @ + 1]
    /\ record' = [record EXCEPT ![r].status = "granted", ![r].owner = m, ![r].token = issued[r] + 1,
                                ![r].avoid = Avoiding(r, m)]
    /\ UNCHANGED <<standing, session, recovering, known, backup, wanted, members, network>>

(* Whether it must go: its holder has too many, is leaving, or the list has dropped it. *)
IsSurplus(r) ==
    LET owner == record[r].owner IN
    /\ Certain /\ record[r].status \in {"granted", "held"}
    /\ \/ standing[owner] = "leaving"
       \/ record[r].removing
       \/ standing[owner] = "active" /\ HasSurplus(owner) /\ record[r].avoid = Nobody

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
    /\ record[r].owner \in Active /\ HasRoom(record[r].owner)

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

(* The list changes, by whichever member declares it.  One that is held is revoked first, and one that comes back
   in the meantime keeps its holder, its deadline, its token and its offset. *)
Add(r) ==
    /\ r \in wanted /\ Active # {} /\ ~Listed(r)
    /\ record' = [record EXCEPT ![r].removing = FALSE,
                                ![r].status = IF @ = "absent" THEN "free" ELSE @]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, network>>

Remove(r) ==
    /\ Certain /\ r \notin wanted /\ Active # {} /\ Listed(r)
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

----------------------------------------------------------------------------
(* Verbs.  One runs when its request arrives, be its sender well, frozen or dead by then, and renews the session.
   What they answer is the business of Tell: every answer is the same picture. *)

Runs(m)      == process[m] # "out" /\ health[m] # "frozen"
Reaches(m)   == process[m] # "out" /\ health[m] = "well"
IsMember(m)  == m \in known /\ standing[m] # "none"
Renewed(m)   == [session EXCEPT ![m] = Session]

(* What a process claims: every tenure it has not aborted.  A claim stands if the record agrees; while the group
   recovers the highest token wins, and an equal one if its owner on record has not come back. *)
Claims(m, r) == tenure[m][r].phase \in {"working", "draining", "done"}
Stands(m, r) ==
    LET token == tenure[m][r].token IN
    \/ Current(m, r, token)
    \/ /\ ~Certain
       /\ \/ token > record[r].token
          \/ token = record[r].token /\ record[r].owner \notin known
Claimed(m, r) ==
    LET it == record[r]  mine == tenure[m][r] IN
    [it EXCEPT !.status = "held", !.owner = m, !.token = mine.token, !.deadline = Off,
               !.removing = Certain /\ @,
               !.offset = IF mine.token > it.token \/ mine.offset > @ THEN mine.offset ELSE @]

(* A process becomes a member, with claims if it was one.  What its former self has on record beyond them is freed. *)
JoinWithClaims(m) ==
    /\ standing' = [standing EXCEPT ![m] = "active"]
    /\ session' = Renewed(m)
    /\ known' = known \cup {m}
    /\ record' = [r \in Resource |->
                    IF Claims(m, r) /\ Stands(m, r) THEN Claimed(m, r)
                    ELSE IF record[r].owner = m THEN Freed(record[r]) ELSE record[r]]
    /\ process' = [process EXCEPT ![m] = IF @ = "joining" THEN "in" ELSE @]
    /\ tenure' = [tenure EXCEPT ![m] = [r \in Resource |-> IF Claims(m, r) THEN @[r] ELSE NoTenure]]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ UNCHANGED <<recovering, backup, outside, health, lease, post>>

Join(m) ==
    /\ Reaches(m)
    /\ \/ process[m] = "joining"
       \/ process[m] \in {"in", "leaving"} /\ m \notin known     \* it was told to join again
    /\ JoinWithClaims(m)

(* Any verb's answer, a heartbeat's for instance: revocations and grants that it carries count as told from now on. *)
Told(it, m) ==
    IF it.owner # m THEN it
    ELSE IF it.status = "granted" THEN [it EXCEPT !.status = "held"]
    ELSE IF it.status = "pending" /\ it.deadline = Off THEN [it EXCEPT !.deadline = Revocation]
    ELSE it
Picture(m, r) ==
    LET it == Told(record[r], m) IN
    IF it.owner # m THEN Untold
    ELSE [asks |-> IF it.status = "pending" THEN "revoke" ELSE "hold",
          token |-> it.token, offset |-> it.offset, deadline |-> it.deadline]

Tell(m) ==
    /\ IsMember(m)
    /\ session' = Renewed(m)
    /\ record' = [r \in Resource |-> Told(record[r], m)]
    /\ answer' = [answer EXCEPT ![m] = [lease |-> Lease, told |-> [r \in Resource |-> Picture(m, r)]]]
    /\ UNCHANGED <<standing, recovering, known, backup, outside, members, post>>

(* A commit or a release is executed, once or more often, now or much later.  Only the current token of the current
   member has an effect, and an offset never falls. *)
Accepted(q) ==
    /\ q.member \in known /\ standing[q.member] # "none"
    /\ Current(q.member, q.resource, q.token)
    /\ q.verb \in {"commit", "release"} => q.offset >= record[q.resource].offset

Effect(q) ==
    LET it == record[q.resource] IN
    CASE q.verb = "commit"  -> [it EXCEPT !.offset = q.offset]
      [] q.verb = "release" -> [Freed(it) EXCEPT !.offset = q.offset]
      [] q.verb = "abandon" -> [Freed(it) EXCEPT !.avoid = q.member]
      [] q.verb = "fenced"  -> Freed(it)      \* given up for being cut off: nothing is wrong with the giver

Execute(q) ==
    /\ record' = IF Accepted(q) THEN [record EXCEPT ![q.resource] = Effect(q)] ELSE record
    /\ session' = IF q.member \in known /\ standing[q.member] # "none" THEN Renewed(q.member) ELSE session
    /\ UNCHANGED <<standing, recovering, known, backup, outside, members, answer>>

Arrive(q) == q \in post /\ post' = post \ {q} /\ Execute(q)

(* Leaving: everything becomes pending; once nothing is held, the member is gone. *)
Leave(m) ==
    /\ IsMember(m) /\ process[m] = "leaving" /\ standing[m] = "active"
    /\ standing' = [standing EXCEPT ![m] = "leaving"]
    /\ session' = Renewed(m)
    /\ UNCHANGED <<record, recovering, known, backup, outside, members, network>>

Left(m) ==
    /\ IsMember(m) /\ standing[m] = "leaving"
    /\ \A r \in Resource : record[r].owner # m
    /\ standing' = [standing EXCEPT ![m] = "none"]
    /\ session' = [session EXCEPT ![m] = 0]
    /\ UNCHANGED <<record, recovering, known, backup, outside, members, network>>

----------------------------------------------------------------------------
(* A member acts on what it was told.  Nothing but an answer makes it begin anything. *)

Touches(m, r) == tenure[m][r].phase \in {"working", "draining"}        \* user code may
OverdueWithin(m, r, d) == Touches(m, r) /\ (lease[m] < d \/ tenure[m][r].abort \in 0..(d - 1))
Overdue(m, r) == OverdueWithin(m, r, 1)

Start(m) ==
    /\ process[m] = "out" /\ standing[m] = "none"
    /\ process' = [process EXCEPT ![m] = "joining"]
    /\ UNCHANGED <<redis, outside, health, lease, tenure, network>>

(* What the news of one resource make of its tenure. *)
Learned(it, news, leaving) ==
    IF news.asks = "nothing" THEN NoTenure
    ELSE LET abort == IF news.deadline > Margin THEN news.deadline - Margin ELSE 0 IN
         IF news.token # it.token                       \* a tenure it had not heard of
         THEN [phase |-> IF news.asks = "hold" /\ ~leaving THEN "working" ELSE "done",
               token |-> news.token, offset |-> news.offset, abort |-> Off]
         ELSE CASE news.asks = "hold" /\ it.phase = "draining" /\ ~leaving
                     -> [it EXCEPT !.phase = "working", !.offset = news.offset, !.abort = Off]
                [] news.asks = "revoke" /\ it.phase \in {"working", "draining"}
                     -> [it EXCEPT !.phase = "draining", !.offset = news.offset, !.abort = abort]
                [] OTHER -> [it EXCEPT !.offset = news.offset]

(* The lease counts from the request, not from the answer. *)
HearWithLease(m, believed) ==
    /\ Runs(m) /\ process[m] \in {"in", "leaving"} /\ answer[m].lease > 0
    /\ lease' = [lease EXCEPT ![m] = believed]
    /\ tenure' = [tenure EXCEPT ![m] =
                    [r \in Resource |-> Learned(@[r], answer[m].told[r], process[m] = "leaving")]]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ UNCHANGED <<redis, outside, process, health, post>>

Hear(m) == HearWithLease(m, answer[m].lease)

(* The group has given up on this member, or has let it go: it holds nothing, and joins anew unless it was leaving. *)
Lose(m) ==
    /\ Reaches(m) /\ m \in known /\ standing[m] = "none" /\ process[m] \in {"in", "leaving"}
    /\ process' = [process EXCEPT ![m] = IF @ = "leaving" THEN "out" ELSE "joining"]
    /\ lease' = [lease EXCEPT ![m] = 0]
    /\ tenure' = [tenure EXCEPT ![m] = [r \in Resource |-> NoTenure]]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ UNCHANGED <<redis, outside, health, post>>

(* The work is finished and committed: asked for or not, or while it was being stopped. *)
Finish(m, r) ==
    /\ Runs(m) /\ tenure[m][r].phase \in {"working", "draining", "aborted"}
    /\ tenure' = [tenure EXCEPT ![m][r].phase = "done", ![m][r].abort = Off]
    /\ UNCHANGED <<redis, outside, process, health, lease, network>>

(* The work is stopped unfinished: it may hang or break at any time, and must stop when it is overdue. *)
Abort(m, r) ==
    /\ Runs(m) /\ Touches(m, r)
    /\ tenure' = [tenure EXCEPT ![m][r].phase = "aborted", ![m][r].abort = Off]
    /\ UNCHANGED <<redis, outside, process, health, lease, network>>

Send(m, q) ==
    /\ Runs(m) /\ m \in known /\ q \notin post
    /\ post' = post \cup {q}
    /\ UNCHANGED <<redis, outside, members, answer>>

SendCommit(m, r, offset) ==
    /\ Touches(m, r)
    /\ Send(m, [verb |-> "commit", member |-> m, resource |-> r, token |-> tenure[m][r].token, offset |-> offset])

(* Finished work is released with its offset, in one request; unfinished work is abandoned.  Who is leaving says so
   first, or would be given back at once what it releases. *)
HasSaidSo(m) == process[m] = "leaving" => standing[m] = "leaving"

SendRelease(m, r, offset) ==
    /\ tenure[m][r].phase = "done" /\ HasSaidSo(m)
    /\ Send(m, [verb |-> "release", member |-> m, resource |-> r, token |-> tenure[m][r].token, offset |-> offset])

SendAbandon(m, r, verb) ==
    /\ tenure[m][r].phase = "aborted" /\ HasSaidSo(m) /\ verb \in {"abandon", "fenced"}
    /\ Send(m, [verb |-> verb, member |-> m, resource |-> r, token |-> tenure[m][r].token, offset |-> 0])

(* The process is asked to stop: it drains by itself, and tells the group. *)
Stop(m) ==
    /\ Runs(m) /\ process[m] \in {"joining", "in"}
    /\ process' = [process EXCEPT ![m] = "leaving"]
    /\ tenure' = [tenure EXCEPT ![m] = [r \in Resource |->
                    IF @[r].phase = "working" THEN [@[r] EXCEPT !.phase = "draining"] ELSE @[r]]]
    /\ UNCHANGED <<redis, outside, health, lease, network>>

----------------------------------------------------------------------------
(* What goes wrong. *)

Crash(m) ==
    /\ process[m] # "out"
    /\ process' = [process EXCEPT ![m] = "out"]
    /\ health' = [health EXCEPT ![m] = "well"]
    /\ lease' = [lease EXCEPT ![m] = 0]
    /\ tenure' = [tenure EXCEPT ![m] = [r \in Resource |-> NoTenure]]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ UNCHANGED <<redis, outside, post>>

Freeze(m) ==
    /\ process[m] # "out" /\ health[m] # "frozen"
    /\ health' = [health EXCEPT ![m] = "frozen"]
    /\ UNCHANGED <<redis, outside, process, lease, tenure, network>>

(* A process that goes on looks at its clock before it does anything else. *)
Thaw(m) ==
    /\ health[m] = "frozen"
    /\ health' = [health EXCEPT ![m] = "well"]
    /\ tenure' = [tenure EXCEPT ![m] = [r \in Resource |->
                    IF Overdue(m, r) THEN [@[r] EXCEPT !.phase = "aborted", !.abort = Off] ELSE @[r]]]
    /\ UNCHANGED <<redis, outside, process, lease, network>>

Cut(m) ==
    /\ process[m] # "out" /\ health[m] = "well"
    /\ health' = [health EXCEPT ![m] = "cut"]
    /\ UNCHANGED <<redis, outside, process, lease, tenure, network>>

Mend(m) ==
    /\ health[m] = "cut"
    /\ health' = [health EXCEPT ![m] = "well"]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]           \* it asks again
    /\ UNCHANGED <<redis, outside, process, lease, tenure, post>>

(* A replica, or a backup, is up to date at this moment. *)
Remember ==
    /\ backup' = [record |-> record, standing |-> standing]
    /\ UNCHANGED <<record, standing, session, recovering, known, outside, members, network>>

(* Redis forgets everything since the backup, or everything if there is none.  Whoever calls finds another server, or
   an older version than it has seen: the group recovers.  Requests on their way know the former incarnation only,
   and are refused. *)
LoseData ==
    /\ record' = [r \in Resource |-> [backup.record[r] EXCEPT !.deadline = Down(@, Revocation)]]
    /\ standing' = backup.standing
    /\ session' = [m \in Member |-> 0]
    /\ recovering' = Session
    /\ known' = {}
    /\ post' = {}
    /\ UNCHANGED <<backup, outside, members, answer>>

(* Somebody deploys another list. *)
Change(list) ==
    /\ wanted' = list /\ wanted' # wanted
    /\ UNCHANGED <<redis, issued, members, network>>

(* Time passes, the same for everybody.  No running process sleeps through the end of its lease or of a deadline:
   clocks are sound.  An answer that is as old as the lease is not believed any more.  The heartbeats of some members
   have been answered in the meantime with nothing new. *)
PassWith(d, beating) ==
    /\ \A m \in Member, r \in Resource : Runs(m) => ~OverdueWithin(m, r, d)
    /\ session'    = [m \in Member |-> IF m \in beating THEN Session ELSE Down(session[m], d)]
    /\ recovering' = Down(recovering, d)
    /\ record'     = [r \in Resource |-> [record[r] EXCEPT !.deadline = Down(@, d)]]
    /\ lease'      = [m \in Member |-> IF m \in beating THEN Lease ELSE Down(lease[m], d)]
    /\ tenure'     = [m \in Member |-> [r \in Resource |-> [tenure[m][r] EXCEPT !.abort = Down(@, d)]]]
    /\ answer'     = [m \in Member |->
                        IF answer[m].lease <= d THEN NoAnswer
                        ELSE [lease |-> answer[m].lease - d,
                              told |-> [r \in Resource |-> [answer[m].told[r] EXCEPT !.deadline = Down(@, d)]]]]
    /\ UNCHANGED <<standing, known, backup, outside, process, health, post>>

Pass(d) == PassWith(d, {})

----------------------------------------------------------------------------
(* The beginning: nobody is there, and Redis is empty but for a group that is known to be new. *)

InitWith(all) ==
    /\ record = [r \in Resource |-> Absent]
    /\ standing = [m \in Member |-> "none"]
    /\ session = [m \in Member |-> 0]
    /\ recovering = Off
    /\ known = {}
    /\ backup = [record |-> record, standing |-> standing]
    /\ issued = [r \in Resource |-> 0]
    /\ wanted = Resource
    /\ process = [m \in Member |-> all]
    /\ health = [m \in Member |-> "well"]
    /\ lease = [m \in Member |-> 0]
    /\ tenure = [m \in Member |-> [r \in Resource |-> NoTenure]]
    /\ answer = [m \in Member |-> NoAnswer]
    /\ post = {}
Init == InitWith("out")

----------------------------------------------------------------------------
(* What is promised, in every state.  The names in brackets are those of others for the same thing. *)

Works(m, r) == Runs(m) /\ Touches(m, r)          \* a frozen process touches nothing

(* S1: a token of a resource has one holder at most, over data loss too, and none was ever higher than `issued`. *)
S1 == /\ \A r \in Resource : \A one, other \in Member :
            one # other /\ tenure[one][r].token > 0 => tenure[one][r].token # tenure[other][r].token
      /\ \A r \in Resource : record[r].token <= issued[r] /\ \A m \in Member : tenure[m][r].token <= issued[r]

(* S2: while clocks are sound, no two members work one resource.  [Rebalanser: RAInvariant] *)
RAInvariant == \A r \in Resource : Cardinality({m \in Member : Works(m, r)}) < 2
S2 == RAInvariant

(* S5: whatever is owned is owned by a member [KIP-848: ValidPartitionEpoch]; whatever is free can be given to
   somebody, as long as anybody could have it. *)
S5 == \A r \in Resource :
        /\ record[r].owner # Nobody <=> record[r].status \in {"granted", "held", "pending"}
        /\ record[r].owner # Nobody => standing[record[r].owner] # "none"
        /\ Certain /\ Free(r) /\ Listed(r) /\ Active # {} => \E m \in Active : MayBeGranted(r, m)

(* A rebalance is complete when there is nothing left to do for Redis, nothing to be told, nothing to be let go. *)
HasHeard(m, r) == LET it == tenure[m][r] IN
    IF record[r].owner = m THEN record[r].status = "held" /\ it.token = record[r].token /\ it.phase = "working"
    ELSE it = NoTenure
RebalancingComplete ==
    /\ Certain
    /\ \A m \in Member : standing[m] # "none" => IsMember(m) /\ Reaches(m) /\ \A r \in Resource : HasHeard(m, r)
    /\ \A r \in Resource :
        /\ ~Pending(r) /\ record[r].avoid = Nobody /\ ~record[r].removing
        /\ r \in wanted <=> record[r].status # "absent"
        /\ ~IsSurplus(r) /\ \A m \in Member : ~MayBeGranted(r, m)

(* Rebalanser's other invariants.  In scope is what the list names. *)
AllInScopeResourcesAllocated == \A r \in wanted : record[r].owner \in Active
AllInScopeResourcesAccessed  == \A r \in wanted : \E m \in Member : Works(m, r)
NoUnallocatedResourcesOnRbComplete ==
    RebalancingComplete /\ Active # {} => AllInScopeResourcesAllocated /\ AllInScopeResourcesAccessed
NoImbalancedAllocations ==
    RebalancingComplete => \A one, other \in Active : Kept(one) - Kept(other) <= 1

NodeTypes ==
    /\ process \in [Member -> {"out", "joining", "in", "leaving"}]
    /\ health \in [Member -> {"well", "frozen", "cut"}]
    /\ \A m \in Member : lease[m] \in 0..Lease /\ answer[m].lease \in {Off} \cup 1..Lease
    /\ \A m \in Member, r \in Resource : tenure[m][r].phase \in Phase /\ tenure[m][r].abort \in Off..Revocation
RegistryTypes ==
    /\ standing \in [Member -> {"none", "active", "leaving"}]
    /\ session \in [Member -> 0..Session] /\ recovering \in Off..Session /\ known \subseteq Member
    /\ \A r \in Resource :
        /\ record[r].owner \in Member \cup {Nobody}
        /\ record[r].status \in {"absent", "free", "granted", "held", "pending"}
        /\ record[r].deadline \in Off..Revocation
        /\ record[r].deadline # Off => Pending(r)
RBInvariant == NodeTypes /\ NoUnallocatedResourcesOnRbComplete
RRInvariant == RegistryTypes /\ NoImbalancedAllocations

(* Promises about steps. *)

(* S1, the other half: the token rises with every grant and with nothing else falls. *)
TokensRise == [][\A r \in Resource :
    /\ issued'[r] >= issued[r]
    /\ record'[r].status = "granted" /\ record[r].status = "free" => record'[r].token > issued[r]]_vars

(* S3: a commit or release of anybody but the current holder, under anything but its current token, does nothing. *)
S3 == [][\A q \in post :
    q \notin post' /\ ~Current(q.member, q.resource, q.token) => record' = record \/ known' = {}]_vars

(* S4: a committed offset never falls, but to what Redis remembers when it loses data, or to the holder that a claim
   reveals behind a stale record. *)
S4 == [][\A r \in Resource :
    record'[r].offset < record[r].offset =>
        known' = {} \/ (~Certain /\ record'[r].token > record[r].token)]_vars

(* S6, half of it: nothing is revoked that its holder may keep, and nothing is taken away that is being worked: by
   the time a deadline, the end of a session or a release ends a tenure, its holder has let go of it.  Only claims,
   and a loss of data, may show that the record was wrong. *)
HasLetGo(m, r) == Works(m, r) => tenure[m][r].token # record[r].token
S6 == [][\A r \in Resource :
    LET owner == record[r].owner IN
    /\ record[r].status = "held" /\ record'[r].status = "pending" => IsSurplus(r)
    /\ owner # Nobody /\ record'[r].owner # owner => HasLetGo(owner, r) \/ known' # known]_vars

(* Promises about the end, under the fairness that a model gives (Small.tla). *)

(* L1: when churn stops the group converges, and stays so.  [KIP-848: EventuallyConverges] *)
L1 == <>[](Active = {} \/ RebalancingComplete)

(* L2: a revocation ends, even if its holder's work never does. *)
L2 == \A r \in Resource : Pending(r) ~> ~Pending(r)

(* L3: nothing stays on record for a process that is gone. *)
L3 == \A m \in Member : (process[m] = "out" /\ standing[m] # "none") ~> standing[m] = "none" \/ process[m] # "out"
=============================================================================
