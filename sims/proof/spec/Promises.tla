------------------------------ MODULE Promises ------------------------------
(***************************************************************************)
(* What Cobalance promises, by the names of the coordinator's README (S1   *)
(* to S6, S8, L1 to L3) and, in brackets, by those of others for the same. *)
(***************************************************************************)
EXTENDS Cobalance

Works(m, r) == Runs(m) /\ Touches(m, r)          \* a frozen process touches nothing

(* S1: a token of a resource has one holder at most, over data loss too, and none was ever higher than `issued`. *)
S1 == /\ \A r \in Resource : \A one, other \in Member :
            one # other /\ tenure[one][r].token > 0 => tenure[one][r].token # tenure[other][r].token
      /\ \A r \in Resource : record[r].token <= issued[r] /\ \A m \in Member : tenure[m][r].token <= issued[r]

(* S2: while clocks are sound, no two members work one resource.  [Rebalanser: RAInvariant] *)
RAInvariant == \A r \in Resource : Cardinality({m \in Member : Works(m, r)}) < 2
S2 == RAInvariant

(* S5: whatever is owned is owned by a member [KIP-848: ValidPartitionEpoch]; whatever is free can be given to
   somebody, as long as anybody names it. *)
S5 == \A r \in Resource :
        /\ record[r].owner # Nobody <=> record[r].status \in {"granted", "held", "pending"}
        /\ record[r].owner # Nobody => standing[record[r].owner] # "none"
        /\ Certain /\ Free(r) /\ Listed(r) /\ Able(r) # {} => \E m \in Active : MayBeGranted(r, m)

(* A rebalance is complete when there is nothing left to do for Redis, nothing to be told, nothing to be let go. *)
HasHeard(m, r) == LET it == tenure[m][r] IN
    IF record[r].owner = m THEN record[r].status = "held" /\ it.token = record[r].token /\ it.phase = "working"
    ELSE it = NoTenure
RebalancingComplete ==
    /\ Certain
    /\ \A m \in Member : standing[m] # "none" => IsMember(m) /\ Reaches(m) /\ \A r \in Resource : HasHeard(m, r)
    /\ \A r \in Resource :
        /\ ~Pending(r) /\ record[r].avoid = Nobody /\ ~record[r].removing
        /\ Active # {} => (Able(r) # {} <=> record[r].status # "absent")
        /\ record[r].owner \in Active => record[r].owner \in Able(r)
        /\ ~IsSurplus(r) /\ \A m \in Member : ~MayBeGranted(r, m)

(* Rebalanser's other invariants.  In scope is what somebody names; uneven is what would be less so, had another that names
   it one of them. *)
InScope == {r \in Resource : Able(r) # {}}
AllInScopeResourcesAllocated == \A r \in InScope : record[r].owner \in Active
AllInScopeResourcesAccessed  == \A r \in InScope : \E m \in Member : Works(m, r)
NoUnallocatedResourcesOnRbComplete ==
    RebalancingComplete /\ Active # {} => AllInScopeResourcesAllocated /\ AllInScopeResourcesAccessed
NoImbalancedAllocations ==
    RebalancingComplete => \A r \in Resource : record[r].owner \in Active =>
        \A other \in Able(r) : Kept(record[r].owner) - Kept(other) <= 1

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

(* S8: nobody is granted, nor left, what its code does not name, and what somebody names is not let go of.  A backup may
   bring back what was being let go of then. *)
S8 == [][\A r \in Resource :
    LET before == record[r].status  after == record'[r].status IN
    /\ before # "granted" /\ after = "granted" => r \in names[record'[r].owner]
    /\ before = "pending" /\ after = "held" => r \in names'[record'[r].owner] \/ known' # known
    /\ ~record[r].removing /\ record'[r].removing => Able(r) = {} \/ known' = {}]_vars

(* Promises about the end, under the fairness that a model gives (Small.tla). *)

(* L1: when churn stops the group converges, and stays so.  [KIP-848: EventuallyConverges] *)
L1 == <>[](Active = {} \/ RebalancingComplete)

(* L2: a revocation ends, even if its holder's work never does. *)
L2 == \A r \in Resource : Pending(r) ~> ~Pending(r)

(* L3: nothing stays on record for a process that is gone. *)
L3 == \A m \in Member : (process[m] = "out" /\ standing[m] # "none") ~> standing[m] = "none" \/ process[m] # "out"
=============================================================================
