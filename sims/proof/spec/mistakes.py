"""The planted mistakes of ``Bugs.tla`` and ``HandoverBugs.tla``: in which model each is looked for, and which promise it breaks."""

from __future__ import annotations

import attrs

from proof.spec.models import MODELS, Changes, changed, specified

ABOUT_STEPS = ("S3", "S4", "S6", "S8", "TokensRise", "Once", "CommittedRises", "Fenced")
ABOUT_THE_END = ("L1", "L2", "L3", "WorkedAgain", "AllFinished")


@attrs.frozen(kw_only=True)
class Mistake:
    name: str
    summary: str
    breaks: str
    """The promise that is checked, and must be found broken."""
    model: str = "Lists"
    """The model whose settings it is looked for with."""
    changes: Changes = ()
    """Constants that differ there."""

    def is_found(self, broken: str) -> bool:
        """TLC does not name broken promises about the end."""
        return broken == ("Temporal" if self.breaks in ABOUT_THE_END else self.breaks)


CALM: Changes = (("Losses", "0"),)

MISTAKES = (
    Mistake(
        name="EarlyGrant",
        summary="granted to the next before the holder has released it",
        breaks="RAInvariant",
        changes=(("Kinds", '{"stop"}'),),
    ),
    Mistake(
        name="RRAdminRemoveResourceWithViolation",
        summary="a shorter list makes Redis forget a resource that is held (Rebalanser's known violation)",
        breaks="RAInvariant",
        changes=(("Kinds", '{"list"}'),),
    ),
    Mistake(
        name="ForceUntold",
        summary="moved by force before any answer has carried the revocation",
        breaks="RAInvariant",
        changes=(("Kinds", '{"list"}'),),
    ),
    Mistake(
        name="RevokeTooMuch",
        summary="more is revoked than is surplus",
        breaks="S6",
        changes=(("Kinds", "{}"),),
    ),
    Mistake(
        name="ExpireWithoutFreeing",
        summary="a session ends and leaves its resources where they were",
        breaks="S5",
        changes=(("Kinds", '{"crash"}'),),
    ),
    Mistake(
        name="LeaseFromAnswer",
        summary="the lease counts from the answer, not from the request",
        breaks="RAInvariant",
        model="Delays",
        changes=(("Kinds", '{"cut"}'),),
    ),
    Mistake(
        name="NoFence",
        summary="a member that hears nothing goes on working",
        breaks="RAInvariant",
        changes=(("Kinds", '{"cut"}'),),
    ),
    Mistake(
        name="ThawBlindly",
        summary="a process that was frozen goes on without a look at its clock",
        breaks="RAInvariant",
        changes=(("Kinds", '{"freeze"}'),),
    ),
    Mistake(
        name="TokensFromRecord",
        summary="tokens begin again when Redis has lost its data",
        breaks="S1",
        changes=(("Kinds", '{"lose", "cut"}'),),
    ),
    Mistake(
        name="NoRecovery",
        summary="data lost, and everything is dealt at once",
        breaks="RAInvariant",
        changes=(("Kinds", '{"lose", "cut"}'),),
    ),
    Mistake(
        name="CommitUnchecked",
        summary="a commit is stored from any sender",
        breaks="S4",
        model="Commits",
        changes=(("Kinds", '{"crash"}'),),
    ),
    Mistake(
        name="ReleaseUnchecked",
        summary="a release is obeyed whatever its token",
        breaks="S3",
        changes=(("Kinds", '{"stop", "cut"}'), ("Trouble", "2")),
    ),
    Mistake(
        name="GrantUnasked",
        summary="what is free goes to the least loaded, whether its code names it or not",
        breaks="S8",
        model="Endings",
        changes=(("Kinds", "{}"),),
    ),
    Mistake(
        name="KeepUnasked",
        summary="a revocation is called off, although its holder does not name the resource any more",
        breaks="S8",
        changes=(("Kinds", '{"list"}'),),
    ),
    Mistake(
        name="LetGoForOne",
        summary="what one list does not name is let go of, although others name it",
        breaks="S8",
        changes=(("Kinds", '{"list"}'),),
    ),
    Mistake(
        name="NoAbort",
        summary="a holder's clock never stops it",
        breaks="L2",
        model="Liveness",
        changes=(("Kinds", '{"stop"}'),),
    ),
    Mistake(
        name="NoExpiry",
        summary="a session that is over is never ended",
        breaks="L3",
        model="Liveness",
        changes=(("Kinds", '{"crash"}'),),
    ),
    Mistake(
        name="NeverLetGo",
        summary="what nobody names any more is known for ever",
        breaks="L1",
        model="Endings",
    ),
    Mistake(
        name="NeverAskedBack",
        summary="what its holder does not name any more is left to it, although another names it",
        breaks="L1",
        model="Endings",
    ),
    Mistake(
        name="HeirTooEarly",
        summary="a partition is granted to the next before its holder has released it",
        breaks="Once",
        model="Handover",
        changes=(("Guards", '{"none"}'), *CALM),
    ),
    Mistake(
        name="CloseOverHandler",
        summary="a drain closes the channel while a handler runs",
        breaks="OneAtWork",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="CloseWithoutAcks",
        summary="the acks that are due are not sent before the channel is closed",
        breaks="Once",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="AckUnbegun",
        summary="with the last acks goes what has arrived, and was not begun",
        breaks="AckedIsFinished",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="AckTooEarly",
        summary="a message is acknowledged while its handler runs",
        breaks="AckedIsFinished",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="AckOverGap",
        summary="one ack for everything up to the last that is finished",
        breaks="AckedIsFinished",
        model="HandoverByKey",
    ),
    Mistake(
        name="KeepBuffer",
        summary="what has arrived is worked although its channel was lost",
        breaks="Once",
        model="Handover",
    ),
    Mistake(
        name="YoungestFirst",
        summary="the youngest message of a key first",
        breaks="InOrder",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="Unguarded",
        summary="a queue is consumed without its guard",
        breaks="Guarded",
        model="Handover",
        changes=(("Guards", '{"exclusive"}'), *CALM),
    ),
    Mistake(
        name="UnlockTooEarly",
        summary="the lock of a stream is released before its channel is closed",
        breaks="OneAtWork",
        model="Handover",
        changes=(("Guards", '{"lock"}'), *CALM),
    ),
    Mistake(
        name="StartAtNext",
        summary="the next holder begins with what is published from now on",
        breaks="InOrder",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="CommitArrived",
        summary="what is committed has arrived, and need not be finished",
        breaks="AckedIsFinished",
        model="Handover",
        changes=CALM,
    ),
    Mistake(
        name="StoreFenced",
        summary="the commit of a former holder is stored",
        breaks="Fenced",
        model="Handover",
        changes=(("Guards", '{"lock"}'), *CALM),
    ),
    Mistake(
        name="StoreLower",
        summary="a commit that arrives late is stored whatever is stored already",
        breaks="CommittedRises",
        model="Handover",
        changes=(("Guards", '{"lock"}'), *CALM),
    ),
    Mistake(
        name="NeverForced",
        summary="a handler that hangs is waited for",
        breaks="WorkedAgain",
        model="HandoverLive",
    ),
    Mistake(
        name="NeverHeard",
        summary="a holder that was moved by force never hears of it, and keeps the queue",
        breaks="WorkedAgain",
        model="HandoverLive",
    ),
    Mistake(
        name="NeverUnlocked",
        summary="the lock of a stream is never released",
        breaks="WorkedAgain",
        model="HandoverLive",
    ),
    Mistake(
        name="NeverReopened",
        summary="a holder that has lost its channel works on no more",
        breaks="AllFinished",
        model="HandoverFinished",
        changes=(("Forces", "0"),),
    ),
)


def settings(mistake: Mistake) -> str:
    """TLC's configuration for a mistake, derived from that of its model.

    Raises:
        ValueError: the model has no such constant.
    """
    about_the_end = mistake.breaks in ABOUT_THE_END
    kind = "PROPERTIES" if about_the_end or mistake.breaks in ABOUT_STEPS else "INVARIANTS"
    text = MODELS[mistake.model].text.replace("CONSTANTS\n", f'CONSTANTS\n    Mistake = "{mistake.name}"\n')
    text = specified(text, mistake.name if about_the_end else "Mistaken", f"{kind} {mistake.breaks}")
    return changed(text, mistake.model, mistake.changes)
