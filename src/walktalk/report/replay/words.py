"""What happened, in words: one template for each kind of event, filled in by the page's script and by the film alike.

A template goes on after "Node 3 ". `{peer}`, `{walk}`, `{number}`, `{iteration}`, `{slot}`, `{kind}`, `{size}` and
`{detail}` are filled in; of `[with {walk}|without]` the second part stands where the first has nothing to fill in.
A template that begins with a capital letter is a sentence of its own: it is about no node in particular.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

WORDS: dict[str, str] = {
    "train": "starts to train [walk {walk}|its model]",
    "differentiate": "starts to compute a gradient[ for walk {walk}|]",
    "trained": "has trained [walk {walk}|its model]: iteration {iteration}",
    "send": "sends [walk {walk}|a model] to node {peer} ({kind}, {size})",
    "send.control": "sends node {peer} a message ({kind}[, walk {walk}|])",
    "receive": "receives [walk {walk}|a model] from node {peer}",
    "receive.control": "receives a message from node {peer} ({kind})",
    "lost": "never receives [walk {walk}|a message] from node {peer}: lost on the way",
    "lost.peer": "has lost its connection to node {peer}",
    "combine.update": "adds what was learned to {slot}",
    "combine.copy": "sets {slot}",
    "combine.mix": "mixes models ({slot})",
    "record.member": "shows the observer [walk {walk}|its model]",
    "record.aggregate": "has a new aggregated model",
    "encode": "encodes a model ({slot})",
    "decode": "decodes a model ({slot})",
    "counted": "counts walk {walk} in for the first time",
    "refused": "refuses what node {peer} sends",
    "mix_everyone": "makes everybody mix",
    "kill": "dies",
    "revive": "comes back",
    "pause": "hangs",
    "hang": "trains no more: its trainings hang",
    "hangs": "notices that its training hangs",
    "trains_again": "trains again",
    "resume": "goes on",
    "partition": "The network splits: nodes {detail} are cut off from the others",
    "heal": "The network is whole again",
    "swallow": "swallows a share of {detail} of the walks that come from now on",
    "swallowed": "takes walk {walk} and does not let it go",
    "lose": "From now on a share of {detail} of all messages is lost",
    "slow": "becomes slower[ towards node {peer}|], by a factor of {detail}",
    "corrupt": "[sends spoiled models: {detail}|sends honest models again]",
    "all_lost": "All walks are lost, and nobody starts them again",
    "suspected": "hears nothing from the aggregator[, node {peer}|]",
    "elected": "is elected: it aggregates from now on (term {number})",
    "inherited": "takes over what node {peer} had mixed",
    "stepped_down": "aggregates no more: another does, in a higher term",
    "restarted": "starts walk {walk} again, which was lost",
    "forked": "starts walk {walk} again from a copy",
    "retired": "ends an outdated copy of walk {walk}",
    "rerouted": "sends walk {walk} another way: no answer from node {peer}",
    "handed_on": "hands walk {walk} on without training it",
    "interrupted": "breaks off the exchange with node {peer}",
    "left_out": "goes on without node {peer}, which is late[ in round {number}|]",
    "catches_up": "catches up, to round {number}",
    "disbelieved": "lets go of what node {peer} sent: it says a round far from its own[, {number}|]",
    "begins_again": "goes on with its own model: nothing has come for long",
    "silent": "has heard nothing from node {peer} for too long",
    "found": "is connected to node {peer}",
    "found_alive": "hears from node {peer} again",
    "rejoined": "comes back from its checkpoint",
    "started": "begins",
    "resumed": "takes up an interrupted run",
    "saved": "saves a checkpoint",
    "measured": "measures a model on its own data",
    "over": "sees the end of the run",
    "left": "leaves, as it was asked to",
    "budget_spent": "has spent its privacy budget",
    "readmitted": "takes walk {walk} in again, which another had aggregated",
    "taken_back": "lets walk {walk} go on, which another had ended on a false word",
    "stood_in": "lets what is left of walk {walk} stand in for it",
    "chaos_over": "What is done to the nodes on purpose is over",
    "joined": "knows that node {peer} has joined",
    "leaves_for_good": "knows that node {peer} is about to leave for good",
    "left_for_good": "knows that node {peer} has left for good",
    "neighbours": "has other neighbours from now on",
}

BAD, GOOD, CHANGE = "bad", "good", "change"
INCIDENTS: dict[str, str] = {  # what is marked on the time line; all kinds that are not in WORDS are, too
    **dict.fromkeys(
        (
            "kill",
            "pause",
            "hang",
            "hangs",
            "partition",
            "lose",
            "slow",
            "corrupt",
            "all_lost",
            "lost",
            "swallow",
            "swallowed",
        ),
        BAD,
    ),
    **dict.fromkeys(("revive", "resume", "heal", "rejoined"), GOOD),
    **dict.fromkeys(
        (
            "suspected",
            "elected",
            "inherited",
            "stepped_down",
            "restarted",
            "begins_again",
            "forked",
            "retired",
            "taken_back",
            "stood_in",
            "rerouted",
            "interrupted",
            "left_out",
            "catches_up",
            "silent",
            "refused",
            "neighbours",
        ),
        CHANGE,
    ),
}

_CHOICE = re.compile(r"\[([^|\]]*)\|([^\]]*)\]")
_FIELD = re.compile(r"\{(\w+)\}")


def incident(kind: str) -> str | None:
    """How an event of this kind is marked: bad, good, a change; None for what always goes on."""
    return INCIDENTS.get(kind, None if kind in WORDS or f"{kind}.update" in WORDS else CHANGE)


def template(kind: str) -> str:
    """The words for a kind; of one that only a protocol knows, its name and what it is about."""
    unknown = f"{kind.replace('_', ' ')}[, walk {{walk}}|][, node {{peer}}|][ ({{number}})|][ {{detail}}|]"
    return WORDS.get(kind, unknown)


def sentence(kind: str, node: int, facts: Mapping[str, object], names: Sequence[str] | None = None) -> str:
    """An event as a sentence; `facts` has what is known of it, `names` those of the nodes, where they have any."""
    words = template(kind)
    if names is not None:
        words, peer = words.replace("node {peer}", "{peer}"), facts.get("peer")
        facts = facts if not isinstance(peer, int) else {**facts, "peer": names[peer]}

    def choose(match: re.Match[str]) -> str:
        known = all(name in facts for name in _FIELD.findall(match[1]))
        return match[1] if known else match[2]

    text = _CHOICE.sub(choose, words)
    text = _FIELD.sub(lambda match: str(facts.get(match[1], "?")), text)
    who = f"Node {node}" if names is None else names[max(node, 0)]
    return text if node < 0 or text[:1].isupper() else f"{who} {text}"
