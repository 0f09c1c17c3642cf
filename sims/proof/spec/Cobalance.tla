----------------------------- MODULE Cobalance -----------------------------
(***************************************************************************)
(* Cobalance's protocol: how the members of a group share resources so     *)
(* that each resource is worked by one member, spread evenly, and only the *)
(* surplus moves.  Read Group.tla first (the state, and how Redis settles  *)
(* what is due), then this (verbs, what a member does, what goes wrong),   *)
(* then Promises.tla.                                                      *)
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
(* request numbers, pages of lists and answers, brokers' guards, messages. *)
(* The simulator has all of them, and Handover.tla the last two.           *)
(*                                                                         *)
(* Small.tla makes it finite, Bugs.tla plants mistakes in it, and          *)
(* Histories.tla compares it with what the simulator recorded.             *)
(***************************************************************************)
EXTENDS Group

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

(* A process becomes a member that names a list, with claims if it was one.  What its former self has on record beyond them is
   freed. *)
JoinWithClaims(m, list) ==
    /\ standing' = [standing EXCEPT ![m] = "active"]
    /\ session' = Renewed(m)
    /\ known' = known \cup {m}
    /\ record' = [r \in Resource |->
                    IF Claims(m, r) /\ Stands(m, r) THEN Claimed(m, r)
                    ELSE IF record[r].owner = m THEN Freed(record[r]) ELSE record[r]]
    /\ process' = [process EXCEPT ![m] = IF @ = "joining" THEN "in" ELSE @]
    /\ tenure' = [tenure EXCEPT ![m] = [r \in Resource |-> IF Claims(m, r) THEN @[r] ELSE NoTenure]]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ names' = [names EXCEPT ![m] = list]
    /\ UNCHANGED <<recovering, backup, issued, health, lease, post>>

Join(m, list) ==
    /\ Reaches(m)
    /\ \/ process[m] = "joining"
       \/ process[m] \in {"in", "leaving"} /\ m \notin known     \* it was told to join again
    /\ JoinWithClaims(m, list)

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

(* The group has given up on this member, or has let it go: it holds nothing, and joins again unless it was leaving. *)
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

(* The list that some members have in common is replaced by another. *)
Declare(some, list) ==
    /\ names' = [m \in Member |-> IF m \in some THEN list ELSE names[m]]
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
    /\ names = [m \in Member |-> {}]
    /\ process = [m \in Member |-> all]
    /\ health = [m \in Member |-> "well"]
    /\ lease = [m \in Member |-> 0]
    /\ tenure = [m \in Member |-> [r \in Resource |-> NoTenure]]
    /\ answer = [m \in Member |-> NoAnswer]
    /\ post = {}
Init == InitWith("out")
=============================================================================
