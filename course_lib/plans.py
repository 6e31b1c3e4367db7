"""What a draft is to be made of, and whether that can be: the plan, its models, its prompts, its folder.

Only `load_both` loads torch: what is wrong with the rest is said without.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from course_lib.fetch import PROPOSES
from course_lib.losses import tv_weight
from course_lib.prompts import Prompt

TEXTS = ("target", "corpus")
HELD_BACK = 8  # prompts of a route that α is measured on; of few prompts a quarter
DONE = "distill.json"  # written last: a folder that has it is finished
PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """All that a draft depends on, beside the prompts. A run goes on only under its own plan.

    target: folder or id of a Llama. layers: which to keep, ascending; or start: a draft's folder to go on
    from. steps, or minutes that the steps may take (the writing of text comes on top, and is reported).
    text: "target" writes its own at temperature 1; "corpus": the prompts' responses. proposes: how many
    tokens the draft proposes, the most frequent; None for all. loss: "turn" (from KL to total variation),
    "kl" or "tv"; rate: of AdamW; by default "turn" at 1e-3, from a draft "tv" at 3e-4. batch: texts a
    step. new_tokens: the most of a text. Raises ValueError for what cannot be.
    """

    target: str
    layers: tuple[int, ...] | None = None
    start: str | None = None
    steps: int | None = None
    minutes: float | None = None
    text: str = "target"
    proposes: int | None = None
    loss: str | None = None
    rate: float | None = None
    batch: int = 8
    new_tokens: int = 128
    seed: int = 0

    def __post_init__(self):
        if (self.layers is None) == (self.start is None):
            raise ValueError("say which layers of the target to keep (such as 0,1,2,29), or which draft to "
                             "start from: one of the two")
        if self.layers is not None and (not self.layers or sorted(set(self.layers)) != list(self.layers)):
            raise ValueError(f"layers are {','.join(map(str, self.layers))}: give each once, in ascending "
                             "order")
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("say how long to train: in steps or in minutes, one of the two")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"minutes must be above 0, not {self.minutes:g} (steps may be 0: no training)")
        for name, least in (("steps", 0), ("batch", 1), ("new_tokens", 1), ("proposes", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name.replace('_', ' ')} must be {least} or more, not {value}")
        if self.proposes is not None and self.steps == 0:
            raise ValueError("proposes, the most frequent tokens, needs text to count them in: let steps be "
                             "above 0")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ValueError(f"the rate must be above 0, not {self.rate:g}")
        if self.loss is not None:
            tv_weight(self.loss)
        if self.text not in TEXTS:
            raise ValueError(f"the text is that of the {' or of a '.join(TEXTS)}, not {self.text!r}")

    def progress(self, learner) -> float:
        """How much of the training is done, from 0 to 1."""
        if self.minutes is not None:
            return min(1.0, learner.spent / (60 * self.minutes))
        return learner.done / self.steps if self.steps else 1.0


def split(prompts: Sequence[Prompt], others: Sequence[Prompt]) -> tuple[list[Prompt], list[Prompt]]:
    """The prompts to learn from, and those held back: some of every route, spread over it evenly.

    others: of these only as many are used as are held back. Raises ValueError where a route to be learned
    has fewer than two prompts.
    """
    by_route: dict[tuple[bool, str], list[Prompt]] = {}
    for learned, group in ((True, prompts), (False, others)):
        for prompt in group:
            by_route.setdefault((learned, prompt.route), []).append(prompt)
    if not prompts:
        raise ValueError("there is no prompt to learn from")
    trained, held = [], []
    for (learned, route), every in by_route.items():
        if learned and len(every) < 2:
            raise ValueError(f"route {route} has one prompt: give two at least, since one is held back to "
                             "measure on")
        count = min(HELD_BACK, max(1, len(every) // 4))
        some = set(np.linspace(0, len(every) - 1, count).round().astype(int).tolist())
        held += [every[i] for i in sorted(some)]
        trained += [prompt for i, prompt in enumerate(every) if learned and i not in some]
    return trained, held


def sign(plan: Plan, out: Path, prompts: Sequence[Prompt]) -> str:
    """The plan as the text that stands in its folder, with a sum over the prompts.

    Raises ValueError where `out` is taken: by a run of another plan, or by anything else.
    """
    words = json.dumps([[prompt.route, prompt.messages, getattr(prompt, "response", None)]
                        for prompt in prompts])
    wanted = asdict(plan) | {"prompts": hashlib.sha256(words.encode()).hexdigest()}
    signed, path = json.dumps(wanted, indent=1) + "\n", out / "work" / PLAN
    if path.exists():
        try:
            there = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise ValueError(f"{path} is damaged, so nobody knows what {out} holds: name a new folder, or "
                             "delete this one") from None
        differ = [name for name, value in json.loads(signed).items() if there.get(name) != value]
        if differ:
            raise ValueError(f"{out} holds a run with other {', '.join(differ)}: give what that one was "
                             "given to go on with it, or another folder")
    elif out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty, and holds no run of distill: name a new folder")
    return signed


def load_both(plan: Plan, device: str | None) -> tuple:
    """The target ready to write (a `Pair`), the draft ready to learn (a `Learner`), the tokens that a draft
    to start from proposes (an array; None for all), and the type (torch's) its weights are saved in, which is
    that of the weights it is made from.

    Raises ValueError where the target is no Llama, lacks a layer, or does not share the draft's vocabulary.
    """
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from course_lib.lean import make_lean
    from course_lib.learning import Learner, prune
    from course_lib.pairs import (
        Pair,
        check_vocabularies,
        context_of,
        device_of,
        eos_of,
        from_hub,
        load_model,
    )

    place, _ = device_of(device, "")
    source = plan.target if plan.start is None else plan.start
    configs = {name: from_hub(AutoConfig, name) for name in (plan.target, source)}
    for name, config in configs.items():
        if config.model_type != "llama":
            raise ValueError(f"{name} is of the architecture {config.model_type}: drafts are made from, and "
                             "for, Llamas alone")
    layers = configs[plan.target].num_hidden_layers
    if plan.layers is not None and not 0 <= plan.layers[0] <= plan.layers[-1] < layers:
        raise ValueError(f"{plan.target} has the layers 0 ... {layers - 1}: there is no layer "
                         f"{plan.layers[-1] if plan.layers[-1] >= layers else plan.layers[0]}")
    tokenizer = from_hub(AutoTokenizer, plan.target)
    if plan.start is not None:
        check_vocabularies(tokenizer.get_vocab(), from_hub(AutoTokenizer, plan.start).get_vocab())
    dtype = torch.float32 if place.type == "cpu" else torch.bfloat16
    target = load_model(plan.target, dtype, place, False)
    head, fixed = target.lm_head.weight.detach().float(), None
    if plan.start is None:
        draft = prune(target, plan.layers).float().to(place)
        heads = (head, head)
    else:
        draft = load_model(plan.start, torch.float32, place, False)
        ours = draft.lm_head.weight.detach()
        if len(ours) != len(head):
            raise ValueError(f"{plan.start} knows {len(ours)} tokens and {plan.target} {len(head)}: start "
                             "from a draft of the same size of vocabulary")
        heads = (head, head) if torch.equal(ours, head) else (ours, head)
        if (Path(plan.start) / PROPOSES).exists():
            fixed = np.load(Path(plan.start) / PROPOSES)
    context = context_of(target.config)
    if plan.proposes is not None and plan.proposes > len(head):
        raise ValueError(f"{plan.target} knows {len(head)} tokens: a draft cannot propose {plan.proposes}")
    if plan.new_tokens >= context:
        raise ValueError(f"{plan.new_tokens} new tokens leave no room in a context of {context}: ask for "
                         "fewer")
    if place.type == "cpu":
        make_lean(target)
    teacher = Pair(plan.target, target, None, tokenizer, eos_of(target), context, place, dtype)
    loss = plan.loss or ("turn" if plan.start is None else "tv")
    rate = plan.rate or (1e-3 if plan.start is None else 3e-4)
    learner = Learner(draft, heads, np.zeros(0, int), rate, plan.seed, loss)
    saved = configs[source].dtype or torch.float32
    return teacher, learner, fixed, getattr(torch, saved) if isinstance(saved, str) else saved
