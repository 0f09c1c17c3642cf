------------------------------ MODULE Handover ------------------------------
(***************************************************************************)
(* What a handover of a partition is: how its messages go from one member  *)
(* to the next, with none lost, none out of order, and none worked twice   *)
(* but for a reason.  Cobalance.tla says who may hold it; here are its     *)
(* queue or stream, and the channels on which its holders read it.         *)
(*                                                                         *)
(* A planned handover is nine steps.  The coordinator asks for the         *)
(* partition.  Its holder begins no more, or only what has arrived; lets   *)
(* its handlers return; sends the acks that are due; closes its channel;   *)
(* waits for CloseOk, which proves that RabbitMQ has read the acks and put *)
(* all else back in its place; unlocks a stream; and releases, with the    *)
(* offset.  Only then is the next holder granted it, and opens a channel.  *)
(*                                                                         *)
(* What spoils the plan: a channel is lost, and with it acks on their way; *)
(* a holder stops by its own clock; the coordinator's timeout moves the    *)
(* partition by force, and its holder goes on until it hears of that.  A   *)
(* guard keeps the next one waiting meanwhile: RabbitMQ serves a queue to  *)
(* one channel, the exclusive or the single active consumer, and a stream  *)
(* is read under a lock.  A stream without one overlaps for that long.     *)
(*                                                                         *)
(* A tenure is one member's time with the partition, and its number is its *)
(* token.  A member is nothing else here: it may have several, one after   *)
(* the other.  Each step is one of the coordinator, of one member, or of   *)
(* RabbitMQ.  What travels between the last two takes its time, in order,  *)
(* and a commit takes any time.                                            *)
(*                                                                         *)
(* Left out: messages that fail, retries, dead letters, halts; pauses;     *)
(* revocations called off; messages published meanwhile (one that has not  *)
(* been sent yet is the same); which streams have which offsets.           *)
(*                                                                         *)
(* HandoverBugs.tla plants mistakes in it, and HandoverHistories.tla       *)
(* compares it with recorded runs of the consumers that ship.              *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Guards,      \* "exclusive" and "single active" for queues, "lock" and "none" for streams
    Messages,    \* how many
    Keys,        \* and of how many keys; order is kept by key
    Prefetch,
    Asks,        \* how often the partition is asked for,
    Forces,      \* moved by force without need,
    Stops,       \* or given up unfinished by its holder,
    Losses       \* and how many channels are lost

VARIABLES
    kind,        \* of partition: its guard, the key of each message, the prefetch; it never changes
    owner,       \* the tenure on record, or 0                                         (coordinator)
    asked,       \* whether it was asked back
    committed,   \* of a stream: the offset; messages count from 1
    post,        \* commits on their way
    tenure,      \* token -> what its member and RabbitMQ have of it
    acked,       \* of a queue: the messages that are gone                             (RabbitMQ)
    lock,        \* of a stream: the tenure that has its lock, or 0
    finished,    \* the messages that a handler has finished, ever                     (nobody: for the promises)
    doubt,       \* those that may come again
    left         \* what remains of the budget

vars == <<kind, owner, asked, committed, post, tenure, acked, lock, finished, doubt>>
all == <<vars, left>>
record == <<kind, owner, asked, committed, post>>
broker == <<acked, lock>>
memory == <<finished, doubt>>

Message == DOMAIN kind.keys
IsStream == kind.guard \in {"lock", "none"}
Token == DOMAIN tenure
Min(some) == CHOOSE x \in some : \A y \in some : x <= y
Older(x) == {y \in Message : y < x /\ kind.keys[y] = kind.keys[x]}

(* phase: granted -> opening -> consuming -> draining -> closing -> (unlocking ->) ended -> over; from a lost channel to ended,
   and back to granted.  Arrived, but not begun: buffer.  Finished on this channel: done; and acknowledged: settled.  Its
   channel at RabbitMQ is served, or waits, or was dropped, which its member does not know yet; what was sent on it and
   not acknowledged: sent; and of a stream the message to be sent next. *)
Fresh(phase, base) == [
    phase |-> phase, aborted |-> FALSE, base |-> base, buffer |-> {}, running |-> {}, done |-> {}, settled |-> {},
    out |-> <<>>, in |-> <<>>, channel |-> "none", sent |-> {}, next |-> 0]

(* Of a stream: the last message processed without a gap. *)
Position(it) == CHOOSE p \in {it.base} \cup it.done :
    (it.base + 1)..p \subseteq it.done /\ p + 1 \notin it.done /\ p >= it.base
Gone == IF IsStream THEN 1..committed ELSE acked
Begun == finished \cup UNION {tenure[t].running : t \in Token}
Doubted == doubt' = doubt \cup (Begun \ Gone)          \* nobody knows which acks arrive, or what is committed yet

----------------------------------------------------------------------------
(* The coordinator. *)

Grant ==
    /\ owner = 0
    /\ owner' = Len(tenure) + 1 /\ asked' = FALSE
    /\ tenure' = Append(tenure, Fresh("granted", committed))
    /\ UNCHANGED <<kind, committed, post, broker, memory>>

Ask == owner # 0 /\ ~asked /\ asked' = TRUE /\ UNCHANGED <<kind, owner, committed, post, tenure, broker, memory>>

(* At the deadline, or since its member is taken for dead. *)
Force ==
    /\ owner # 0 /\ owner' = 0 /\ asked' = FALSE /\ Doubted
    /\ UNCHANGED <<kind, committed, post, tenure, broker, finished>>

(* Executed once or late: only the holder's commit has an effect, and the offset never falls. *)
Store(q) ==
    /\ q \in post /\ post' = post \ {q}
    /\ committed' = IF q.token = owner /\ q.offset > committed THEN q.offset ELSE committed
    /\ UNCHANGED <<kind, owner, asked, tenure, broker, memory>>

End(t) == owner' = 0 /\ asked' = FALSE /\ tenure' = [tenure EXCEPT ![t] = [@ EXCEPT !.phase = "over"]]

Release(t) ==
    LET it == tenure[t] IN
    /\ owner = t /\ asked /\ it.phase = "ended" /\ ~it.aborted /\ it.running = {}
    /\ End(t)
    /\ committed' = IF IsStream /\ Position(it) > committed THEN Position(it) ELSE committed
    /\ UNCHANGED <<kind, post, broker, memory>>

(* It was stopped unfinished, or its channel was lost meanwhile. *)
Abandon(t) ==
    LET it == tenure[t] IN
    /\ owner = t /\ it.phase = "ended" /\ (it.aborted \/ (asked /\ it.running = {}))
    /\ End(t) /\ Doubted
    /\ UNCHANGED <<kind, committed, post, broker, finished>>

----------------------------------------------------------------------------
(* RabbitMQ.  It reads what came on a channel in order. *)

Served == {t \in Token : tenure[t].channel = "served"}
Waiting == {t \in Token : tenure[t].channel = "waits"}
Answer(it, is, x) == [it EXCEPT !.in = Append(@, [is |-> is, x |-> x])]

Subscribed(t, it) ==
    LET others == (Served \cup Waiting) \ {t} IN
    IF kind.guard = "exclusive" /\ others # {} THEN Answer(it, "refused", 0)
    ELSE Answer([it EXCEPT !.channel = IF kind.guard = "single active" /\ others # {} THEN "waits" ELSE "served",
                          !.next = it.base + 1], "ok", 0)

(* The channel is gone.  What is unacknowledged is back in its place, and the next one in line is served. *)
Closed(t, it) ==
    LET without == [tenure EXCEPT ![t] = [it EXCEPT !.sent = {}, !.out = <<>>]] IN
    IF tenure[t].channel = "served" /\ Waiting # {}
    THEN [without EXCEPT ![Min(Waiting)].channel = "served"] ELSE without

Read(t) ==
    LET it == [tenure[t] EXCEPT !.out = Tail(@)]  frame == Head(tenure[t].out) IN
    /\ tenure[t].out # <<>>
    /\ tenure' = CASE frame.is = "subscribe" -> [tenure EXCEPT ![t] = Subscribed(t, it)]
                   [] frame.is = "ack" -> [tenure EXCEPT ![t] = [it EXCEPT !.sent = @ \ frame.some]]
                   [] frame.is = "close" -> Closed(t, Answer([it EXCEPT !.channel = "none"], "closed", 0))
    /\ acked' = IF frame.is = "ack" /\ ~IsStream THEN acked \cup frame.some ELSE acked
    /\ UNCHANGED <<record, lock, memory>>

Ready == Message \ (acked \cup UNION {tenure[t].sent : t \in Token})

Send(t) ==
    LET it == tenure[t]  x == IF IsStream THEN it.next ELSE Min(Ready) IN
    /\ it.channel = "served" /\ Cardinality(it.sent) < kind.prefetch
    /\ IF IsStream THEN x \in Message ELSE Ready # {}
    /\ tenure' = [tenure EXCEPT ![t] = Answer([it EXCEPT !.sent = @ \cup {x}, !.next = x + 1], "message", x)]
    /\ UNCHANGED <<record, broker, memory>>

(* A channel is lost, or the connection, and with it the lock: what is on its way never arrives.  Its member hears of that
   later. *)
HasChannel(it) == it.phase \in {"opening", "consuming", "draining", "closing"} /\ it.channel # "dropped"

Drop(t) ==
    /\ HasChannel(tenure[t])
    /\ tenure' = Closed(t, [tenure[t] EXCEPT !.channel = "dropped"])
    /\ lock' \in IF lock = t THEN {0, t} ELSE {lock}
    /\ Doubted
    /\ UNCHANGED <<record, acked, finished>>

Lock(t) ==
    /\ kind.guard = "lock" /\ lock = 0 /\ lock' = t /\ tenure[t].phase = "granted"
    /\ UNCHANGED <<record, tenure, acked, memory>>
Unlock(t) ==
    /\ lock = t /\ lock' = 0 /\ tenure[t].phase = "unlocking"
    /\ UNCHANGED <<record, tenure, acked, memory>>

----------------------------------------------------------------------------
(* A member. *)

Let(t, it) == tenure' = [tenure EXCEPT ![t] = it] /\ UNCHANGED <<record, broker>>
Accepts(it) == it.phase \in {"opening", "consuming"}
NoMore(t, it) == [it EXCEPT                            \* the channel is gone: what was handed out goes on
    !.phase = IF lock = t THEN "unlocking" ELSE "ended", !.base = IF IsStream THEN Position(it) ELSE @,
    !.buffer = {}, !.done = {}, !.settled = {}, !.out = <<>>, !.in = <<>>, !.channel = "none", !.sent = {}, !.next = 0]

Open(t) ==
    LET it == tenure[t] IN
    /\ it.phase = "granted" /\ (kind.guard = "lock" => lock = t)
    /\ Let(t, [it EXCEPT !.phase = "opening", !.out = <<[is |-> "subscribe"]>>])
    /\ UNCHANGED memory

(* The first messages of a queue may overtake the answer to the subscription. *)
HearAt(t, at) ==
    LET it == tenure[t]  frame == it.in[at]
        rest == [it EXCEPT !.in = IF at = 1 THEN Tail(@) ELSE <<@[1]>> \o SubSeq(@, 3, Len(@))] IN
    /\ at <= Len(it.in) /\ it.channel # "dropped"
    /\ at = 1 \/ (it.in[1].is = "ok" /\ frame.is = "message")
    /\ Let(t, CASE frame.is = "ok" -> [rest EXCEPT !.phase = IF @ = "opening" THEN "consuming" ELSE @]
                [] frame.is = "refused" -> IF it.phase = "opening" THEN [rest EXCEPT !.phase = "granted"] ELSE NoMore(t, rest)
                [] frame.is = "closed" -> NoMore(t, rest)
                [] frame.is = "message" -> IF Accepts(it) THEN [rest EXCEPT !.buffer = @ \cup {frame.x}] ELSE rest)
    /\ UNCHANGED memory
Hear(t) == HearAt(t, 1) \/ HearAt(t, 2)

Lost(t) ==
    /\ tenure[t].channel = "dropped"
    /\ Let(t, NoMore(t, tenure[t]))
    /\ UNCHANGED memory

(* One message of a key at a time, the oldest first. *)
MayBegin(t, x) ==
    LET it == tenure[t] IN
    /\ x \in it.buffer /\ (Accepts(it) \/ it.phase = "draining") /\ ~it.aborted
    /\ \A y \in it.running \cup (it.buffer \ {x}) : kind.keys[y] = kind.keys[x] => y > x /\ y \notin it.running
BeginAnyway(t, x) ==
    /\ Let(t, [tenure[t] EXCEPT !.buffer = @ \ {x}, !.running = @ \cup {x}])
    /\ doubt' = IF owner # t \/ tenure[t].channel = "dropped" THEN doubt \cup {x} ELSE doubt
    /\ UNCHANGED finished
Begin(t, x) == MayBegin(t, x) /\ BeginAnyway(t, x)

(* Behind a lost channel, what is finished counts for a stream only. *)
Counts(it) == it.phase \notin (IF IsStream THEN {"over"} ELSE {"ended", "over"})

Finish(t, x) ==
    /\ x \in tenure[t].running
    /\ Let(t, [tenure[t] EXCEPT !.running = @ \ {x}, !.done = IF Counts(tenure[t]) THEN @ \cup {x} ELSE @])
    /\ finished' = finished \cup {x} /\ UNCHANGED doubt

(* Its handler was cancelled. *)
Stop(t, x) ==
    /\ x \in tenure[t].running /\ tenure[t].aborted
    /\ Let(t, [tenure[t] EXCEPT !.running = @ \ {x}])
    /\ UNCHANGED memory

Ack(t, some) ==
    LET it == tenure[t] IN
    /\ it.phase \in {"opening", "consuming", "draining"} /\ some # {} /\ some \subseteq it.done \ it.settled
    /\ Let(t, [it EXCEPT !.settled = @ \cup some,
                         !.out = IF it.channel = "dropped" THEN @ ELSE Append(@, [is |-> "ack", some |-> some])])
    /\ UNCHANGED memory

Commit(t, offset) ==
    /\ IsStream /\ ~tenure[t].aborted /\ tenure[t].phase # "over" /\ offset <= Position(tenure[t]) /\ offset > 0
    /\ post' = post \cup {[token |-> t, offset |-> offset]}
    /\ UNCHANGED <<kind, owner, asked, committed, tenure, broker, memory>>

(* Asked for it, or as its process is about to leave, of which the coordinator hears later; or stopped by force, by its own
   clock or for a handler that hangs.  Before it is opened there is nothing to wait for. *)
LetGo(t, it) == IF it.phase = "granted" THEN NoMore(t, it) ELSE [it EXCEPT !.phase = "draining"]

Drain(t) ==
    /\ tenure[t].phase \in {"granted", "opening", "consuming"}
    /\ Let(t, LetGo(t, tenure[t])) /\ UNCHANGED memory

Abort(t) ==
    LET it == tenure[t] IN
    /\ it.phase \in {"granted", "opening", "consuming"} \/ (it.phase = "draining" /\ ~it.aborted)
    /\ Let(t, LetGo(t, [it EXCEPT !.aborted = TRUE, !.buffer = {}]))
    /\ Doubted /\ UNCHANGED finished

(* What was not begun goes back.  An abort waits for nothing, a drain for its handlers, whose acks go first. *)
MayClose(it) == it.phase = "draining" /\ (it.aborted \/ (it.running = {} /\ (IsStream \/ it.done = it.settled)))
CloseAnyway(t) ==
    /\ Let(t, [tenure[t] EXCEPT !.phase = "closing", !.buffer = {}, !.out = IF tenure[t].channel = "dropped" THEN @
                                                                            ELSE Append(@, [is |-> "close"])])
    /\ UNCHANGED memory
Close(t) == MayClose(tenure[t]) /\ CloseAnyway(t)

Unlocked(t) ==
    /\ tenure[t].phase = "unlocking" /\ lock # t
    /\ Let(t, [tenure[t] EXCEPT !.phase = "ended"]) /\ UNCHANGED memory

(* The channel was lost, and the tenure goes on with another, once the handlers of the first have returned. *)
Reopen(t) ==
    LET it == tenure[t] IN
    /\ it.phase = "ended" /\ ~it.aborted /\ it.running = {}
    /\ Let(t, Fresh("granted", IF IsStream THEN Position(it) ELSE 0)) /\ UNCHANGED memory

(* It had no channel when it was moved by force. *)
GiveUp(t) ==
    /\ owner # t /\ tenure[t].phase = "ended"
    /\ Let(t, [tenure[t] EXCEPT !.phase = "over", !.aborted = TRUE]) /\ UNCHANGED memory

----------------------------------------------------------------------------
(* What is promised.  Whoever lost its channel, or was stopped, may have a handler that goes on; so may a holder that
   was moved by force and has not heard of it, where nothing guards the partition. *)

Excused(t) ==
    LET it == tenure[t] IN
    it.aborted \/ it.channel = "dropped" \/ it.phase \in {"unlocking", "ended"} \/ (kind.guard = "none" /\ owner # t)

(* S2: no two members work the partition. *)
OneAtWork == \A s, t \in Token :
    s # t /\ tenure[s].running # {} /\ tenure[t].running # {} => Excused(s) \/ Excused(t)
(* RabbitMQ serves one of them. *)
Guarded == kind.guard # "none" => Cardinality(Served) < 2
(* M1: a message is worked only when all before it, of its key, are finished; what is acknowledged, or committed, is. *)
InOrder == \A t \in Token : \A x \in tenure[t].running : Older(x) \subseteq finished
AckedIsFinished == Gone \subseteq finished
(* M1: and is worked again for a reason only. *)
Once == [][\A t \in Token, x \in finished :
    x \in tenure'[t].running /\ x \notin tenure[t].running => x \in doubt']_vars
(* S4, S3. *)
CommittedRises == [][committed' >= committed]_vars
Fenced == [][\A q \in post : q \notin post' /\ q.token # owner => committed' = committed]_vars

(* L2: once asked back, the partition is served again, to a new holder, whatever its handlers do. *)
WorkedAgain == asked ~> ~asked /\ owner # 0 /\ tenure[owner].channel = "served"
(* M1: none is lost, as long as handlers return. *)
AllFinished == <>(finished = Message)

----------------------------------------------------------------------------
(* Small enough to be checked completely.  Whatever goes wrong has a budget; the rest happens in every order there is. *)

Known(t) == t \in Token
Steps(t) ==
    \/ Open(t) \/ Hear(t) \/ Lost(t) \/ Close(t) \/ Unlocked(t) \/ Release(t) \/ Abandon(t)
    \/ owner = t /\ asked /\ Drain(t)
    \/ \E x \in Message : Begin(t, x)
    \/ (IsStream => Cardinality(tenure[t].sent) = kind.prefetch)         \* there it gives credit for more, and no more
       /\ Ack(t, tenure[t].done \ tenure[t].settled)
    \/ IsStream /\ HasChannel(tenure[t]) /\ tenure[t].phase # "closing"
       /\ Position(tenure[t]) > committed /\ Commit(t, Position(tenure[t]))
Reopens(t) == ~(owner = t /\ asked) /\ Reopen(t)
Hears(t) == owner # t /\ (Abort(t) \/ GiveUp(t))                          \* that it has lost it
Serves(t) == Read(t) \/ Send(t) \/ Lock(t)
Ends(t) == \E x \in Message : Finish(t, x) \/ Stop(t, x)
Timeout == asked /\ Force
Stores == \E q \in post : Store(q)

Costs(what, action) == left[what] > 0 /\ action /\ left' = [left EXCEPT ![what] = @ - 1]
Course ==
    \/ Grant \/ Timeout \/ Stores
    \/ \E t \in Token : Steps(t) \/ Hears(t) \/ Serves(t) \/ Unlock(t) \/ Reopens(t) \/ Ends(t)
Next ==
    \/ Course /\ UNCHANGED left
    \/ Costs("ask", Ask)
    \/ Costs("force", Force)
    \/ \E t \in Token : Costs("lose", Drop(t)) \/ Costs("stop", owner = t /\ Abort(t))

Begins ==
    /\ owner = 0 /\ asked = FALSE /\ committed = 0 /\ post = {} /\ tenure = <<>>
    /\ acked = {} /\ lock = 0 /\ finished = {} /\ doubt = {}
Init ==
    /\ kind \in [guard : Guards, keys : {[x \in 1..Messages |-> x % Keys]}, prefetch : {Prefetch}]
    /\ left = [ask |-> Asks, force |-> Forces, stop |-> Stops, lose |-> Losses] /\ Begins
Safe == Init /\ [][Next]_all

(* Everybody goes on; handlers need not. *)
Most == 1..(1 + Asks + Forces + Stops)
FairlyBut(never) ==
    /\ WF_all(Grant /\ UNCHANGED left) /\ WF_all(Stores /\ UNCHANGED left)
    /\ WF_all(never # "forced" /\ Timeout /\ UNCHANGED left)
    /\ \A t \in Most :
        /\ WF_all(Known(t) /\ Steps(t) /\ UNCHANGED left)
        /\ WF_all(Known(t) /\ Serves(t) /\ UNCHANGED left)
        /\ WF_all(never # "heard" /\ Known(t) /\ Hears(t) /\ UNCHANGED left)
        /\ WF_all(never # "unlocked" /\ Known(t) /\ Unlock(t) /\ UNCHANGED left)
        /\ WF_all(never # "reopened" /\ Known(t) /\ Reopens(t) /\ UNCHANGED left)
FairlyEnds == \A t \in Most : WF_all(Known(t) /\ Ends(t) /\ UNCHANGED left)
Live == Safe /\ FairlyBut("")
LiveWithHandlers == Live /\ FairlyEnds
=============================================================================
