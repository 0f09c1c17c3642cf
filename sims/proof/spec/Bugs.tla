-------------------------------- MODULE Bugs --------------------------------
(***************************************************************************)
(* Cobalance with one mistake each.  A promise that no mistake can break   *)
(* says nothing: TLC has to refute every one of these, and does so with a  *)
(* shortest counterexample.                                                *)
(***************************************************************************)
EXTENDS Small

CONSTANT Mistake             \* which one
Unchanged == <<standing, session, recovering, known, backup, outside, members, network>>

(* Granted to the next before the holder has released it. *)
EarlyGrant == \E r \in Resource, m \in Active :
    /\ Certain /\ Pending(r) /\ m # record[r].owner
    /\ issued' = [issued EXCEPT ![r] = @ + 1]
    /\ record' = [record EXCEPT ![r].status = "granted", ![r].owner = m, ![r].token = issued[r] + 1]
    /\ UNCHANGED <<standing, session, recovering, known, backup, names, members, network>>

(* A list without it makes Redis forget a resource that is held.  [Rebalanser: RRAdminRemoveResourceWithViolation,
   ResourceChangeForRAInvViolation: removing a resource must not clear its barrier.] *)
RRAdminRemoveResourceWithViolation == \E r \in Resource :
    /\ Certain /\ Able(r) = {} /\ Active # {} /\ Listed(r)
    /\ record' = [record EXCEPT ![r] = Absent]
    /\ UNCHANGED Unchanged

(* Moved by force although no answer has carried the revocation: nobody's clock runs. *)
ForceUntold == \E r \in Resource :
    /\ Certain /\ Pending(r) /\ record[r].deadline = Off
    /\ record' = [record EXCEPT ![r] = Freed(@)]
    /\ UNCHANGED Unchanged

(* More is revoked than is surplus. *)
RevokeTooMuch == \E r \in Resource :
    /\ Certain /\ record[r].status = "held" /\ Kept(record[r].owner) > Floor - 1 /\ Cardinality(Active) > 1
    /\ record' = [record EXCEPT ![r].status = "pending"]
    /\ UNCHANGED Unchanged

(* A session that ends leaves its resources where they were. *)
ExpireWithoutFreeing == \E m \in Member :
    /\ Certain /\ standing[m] # "none" /\ session[m] = 0
    /\ standing' = [standing EXCEPT ![m] = "none"]
    /\ UNCHANGED <<record, session, recovering, known, backup, outside, members, network>>

(* The lease counts from the answer, not from the request. *)
LeaseFromAnswer == \E m \in Member : answer[m] # NoAnswer /\ HearWithLease(m, Lease)

(* A member that hears nothing goes on working. *)
NoFence ==
    /\ \A m \in Member : Punctual(m)
    /\ session' = [m \in Member |-> IF m \in Beating THEN Session ELSE Down(session[m], 1)]
    /\ lease' = [m \in Member |-> IF m \in Beating THEN Lease ELSE Down(lease[m], 1)]
    /\ UNCHANGED <<record, standing, recovering, known, backup, outside, process, health, tenure, network>>

(* A process that was frozen goes on without a look at its clock. *)
ThawBlindly == \E m \in Member :
    /\ health[m] = "frozen"
    /\ health' = [health EXCEPT ![m] = "well"]
    /\ UNCHANGED <<redis, outside, process, lease, tenure, network>>

(* Tokens are counted in Redis alone, so they begin again when it has lost its data. *)
TokensFromRecord == \E r \in Resource, m \in Member :
    LET token == record[r].token + 1 IN
    /\ MayBeGranted(r, m)
    /\ issued' = [issued EXCEPT ![r] = IF token > @ THEN token ELSE @]
    /\ record' = [record EXCEPT ![r].status = "granted", ![r].owner = m, ![r].token = token]
    /\ UNCHANGED <<standing, session, recovering, known, backup, names, members, network>>

(* Data lost, and everything is dealt at once: nobody is given the time to claim. *)
NoRecovery ==
    recovering > 0 /\ recovering' = Off
    /\ UNCHANGED <<record, standing, session, known, backup, outside, members, network>>

(* A commit is stored whoever sends it. *)
CommitUnchecked == \E q \in post :
    /\ q.verb = "commit" /\ record[q.resource].status # "absent"
    /\ post' = post \ {q}
    /\ record' = [record EXCEPT ![q.resource].offset = q.offset]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, answer>>

(* A release is obeyed whatever its token. *)
ReleaseUnchecked == \E q \in post :
    /\ q.verb # "commit" /\ record[q.resource].owner # Nobody
    /\ post' = post \ {q}
    /\ record' = [record EXCEPT ![q.resource] = Freed(@)]
    /\ UNCHANGED <<standing, session, recovering, known, backup, outside, members, answer>>

(* What is free goes to the least loaded, whether its code names it or not. *)
GrantUnasked == \E r \in Resource, m \in Active :
    /\ Certain /\ Free(r) /\ Listed(r) /\ MostUnder(m, Active)
    /\ issued' = [issued EXCEPT ![r] = @ + 1]
    /\ record' = [record EXCEPT ![r].status = "granted", ![r].owner = m, ![r].token = issued[r] + 1]
    /\ UNCHANGED <<standing, session, recovering, known, backup, names, members, network>>

(* A revocation is called off because its holder has room, though it does not name the resource any more. *)
KeepUnasked == \E r \in Resource :
    /\ Certain /\ Pending(r) /\ ~record[r].removing /\ record[r].owner \in Active /\ HasRoom(record[r].owner)
    /\ record' = [record EXCEPT ![r].status = "held", ![r].deadline = Off]
    /\ UNCHANGED Unchanged

(* One list counts as everybody's: what it does not name is let go of, although others do. *)
LetGoForOne == \E r \in Resource, m \in Active :
    /\ Certain /\ r \notin names[m] /\ Listed(r)
    /\ record' = [record EXCEPT ![r].removing = TRUE]
    /\ UNCHANGED Unchanged

Wrong ==
    \/ Mistake = "EarlyGrant" /\ EarlyGrant
    \/ Mistake = "RRAdminRemoveResourceWithViolation" /\ RRAdminRemoveResourceWithViolation
    \/ Mistake = "ForceUntold" /\ ForceUntold
    \/ Mistake = "RevokeTooMuch" /\ RevokeTooMuch
    \/ Mistake = "ExpireWithoutFreeing" /\ ExpireWithoutFreeing
    \/ Mistake = "LeaseFromAnswer" /\ LeaseFromAnswer
    \/ Mistake = "NoFence" /\ NoFence
    \/ Mistake = "ThawBlindly" /\ ThawBlindly
    \/ Mistake = "TokensFromRecord" /\ TokensFromRecord
    \/ Mistake = "NoRecovery" /\ NoRecovery
    \/ Mistake = "CommitUnchecked" /\ CommitUnchecked
    \/ Mistake = "ReleaseUnchecked" /\ ReleaseUnchecked
    \/ Mistake = "GrantUnasked" /\ GrantUnasked
    \/ Mistake = "KeepUnasked" /\ KeepUnasked
    \/ Mistake = "LetGoForOne" /\ LetGoForOne
Mistaken == SmallInit /\ [][SmallNext \/ Step(Wrong)]_all

----------------------------------------------------------------------------
(* Four more, of which the promises about the end are meant to tell. *)

(* A session that is over is not ended: Redis settles everything but that. *)
NoExpiry == Safe /\ Fairly /\ FairlyStops /\ WF_all(Settle /\ standing' = standing /\ UNCHANGED left)

(* A holder's clock never stops it. *)
NoAbort == Safe /\ Fairly /\ FairlySettles

(* What nobody names any more is known for ever. *)
NeverLetGo == Safe /\ Fairly /\ FairlyStops /\ WF_all(Settle /\ (\A r \in Resource : ~Remove(r)) /\ UNCHANGED left)

(* What its holder does not name any more is never asked back, as long as another names it. *)
NeverAskedBack == Safe /\ Fairly /\ FairlyStops /\ WF_all(Settle /\ (\A r \in Resource : ~Revoke(r)) /\ UNCHANGED left)
=============================================================================
