"""A client of engines that speak OpenAI's protocol: a request in; what came back, and when, out.

A failure is an answer too: refused, overloaded, timed out and broken off are counted, never raised, so that
one dead engine does not end a sweep.

Two traps. A speculating engine sends the tokens of a round in one event, so events are not tokens: `usage`
counts tokens. And the first event of a chat carries a role and no text: the time to the first token is that
of the first text.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import httpx

from course_lib.engines.scrape import check_address

Item, Key = TypeVar("Item"), TypeVar("Key")
_OVERLOADED = (429, 503)
_GIVE_UP = 5  # failures in a row after which a dead engine is asked no further


class Piece(NamedTuple):
    """One token of an answer: its text, its log-probability and those of the likeliest tokens there."""

    token: str
    logprob: float
    top: dict[str, float]


@dataclass(frozen=True)
class Answer:
    """One request's outcome; times in seconds, from sending it.

    tokens: of the answer, as the engine counts them; None if it does not say. ttft: to the first text.
    decode: from the first text to the last. seconds: to the end. pieces: tokens with log-probabilities, where
    they were asked for and given. error: None, or refused, overloaded, timeout, broken, engine, not sent, or
    "http" and a status; detail says more.
    """

    text: str = ""
    tokens: int | None = None
    finish: str | None = None
    ttft: float | None = None
    decode: float | None = None
    seconds: float = 0.0
    pieces: tuple[Piece, ...] = ()
    error: str | None = None
    detail: str = ""

    @property
    def tpot(self) -> float | None:
        """Time per output token: what each token after the first took. None with fewer than two."""
        if self.error or self.decode is None or not self.tokens or self.tokens < 2:
            return None
        return self.decode / (self.tokens - 1)


def connect(timeout: float = 60.0) -> httpx.Client:
    """A client for `ask`, for any number of threads. timeout: seconds without a sign of life."""
    return httpx.Client(timeout=timeout, limits=httpx.Limits(max_connections=None))


def ask(client: httpx.Client, base: str, model: str, prompt: str | list[dict], max_tokens: int,
        temperature: float = 0.0, top: int | None = None, limit: float = 600.0) -> Answer:
    """Send one request and read its stream.

    base: the engine's address, with or without /v1. prompt: chat messages, or a text to be continued.
    top: also ask for log-probabilities, and those of so many of the likeliest tokens. limit: the most
    seconds the whole answer may take. Only a base that is no address raises (ValueError).
    """
    chat = not isinstance(prompt, str)
    body = {"model": model, "messages" if chat else "prompt": prompt, "max_tokens": max_tokens,
            "temperature": temperature, "stream": True, "stream_options": {"include_usage": True}}
    if top is not None:
        body |= {"logprobs": True, "top_logprobs": top} if chat else {"logprobs": top}
    address = f"{root(base)}/v1/{'chat/' if chat else ''}completions"
    texts, times, pieces, finish, tokens = [], [], [], None, None
    started, error, detail = time.perf_counter(), None, ""
    try:
        with client.stream("POST", address, json=body) as response:
            if response.status_code != 200:
                status = response.status_code
                error = "overloaded" if status in _OVERLOADED else f"http {status}"
                detail = _short(response.read().decode(errors="replace"))
            for line in response.iter_lines() if error is None else ():
                now = time.perf_counter()
                if now - started > limit:
                    raise httpx.ReadTimeout(f"not finished after {limit:g} s")
                event = line.removeprefix("data:").strip()
                if not line.startswith("data:") or event == "[DONE]":
                    continue
                event = json.loads(event)
                if "error" in event or event.get("object") == "error":
                    error, detail = "engine", _short(json.dumps(event))
                    break
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                for choice in event.get("choices", ())[:1]:
                    text = (choice.get("delta") or {}).get("content") if chat else choice.get("text")
                    if text:
                        texts.append(text)
                        times.append(now)
                    pieces += _pieces(choice.get("logprobs"), chat)
                    finish = choice.get("finish_reason") or finish
        if error is None and finish is None:
            error, detail = "broken", "the stream ended before the answer did"
    except httpx.TimeoutException as problem:
        error, detail = "timeout", _short(str(problem))
    except httpx.ConnectError as problem:
        error, detail = "refused", _short(str(problem))
    except httpx.HTTPError as problem:
        error, detail = "broken", _short(str(problem))
    except (ValueError, TypeError, AttributeError, KeyError) as problem:  # of an event that is not as agreed
        error, detail = "broken", f"an event cannot be read ({_short(str(problem))})"
    ended = time.perf_counter()
    return Answer("".join(texts), tokens if tokens is not None else len(pieces) or None, finish,
                  times[0] - started if times else None, times[-1] - times[0] if times else None,
                  ended - started, tuple(pieces), error, detail)


def ask_all(ask_one: Callable[[Item], Answer], items: Sequence[Item], concurrency: int,
            give_up: int = _GIVE_UP) -> list[Answer]:
    """The answers to all items in order, `concurrency` requests under way at any time till the last.

    After `give_up` failures in a row the rest is "not sent".
    """
    answers: list[Answer | None] = [None] * len(items)
    left, lock, problems = iter(range(len(items))), threading.Lock(), []
    state = {"in a row": 0, "stop": False}

    def work() -> None:
        while True:
            with lock:
                at = next(left, None)
                stop = state["stop"] or state["in a row"] >= give_up
            if at is None or problems:
                return
            try:
                answer = _not_sent(give_up) if stop else ask_one(items[at])
            except Exception as problem:  # a mistake in this program: for the caller, not for the count
                problems.append(problem)
                return
            with lock:
                answers[at] = answer
                state["in a row"] = state["in a row"] + 1 if answer.error else 0

    # Daemons: Ctrl-C need not wait for an engine that does not answer.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(concurrency, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        state["stop"] = True
    if problems:
        raise problems[0]
    return answers


def in_turn(asks: Mapping[Key, Callable[[Item], Answer]], items: Sequence[Item],
            give_up: int = _GIVE_UP) -> dict[Key, list[Answer]]:
    """The answers of several engines to all items, one request under way at a time: each item goes to every
    engine, from another one each time. One that failed `give_up` times in a row is asked no further."""
    answers: dict[Key, list[Answer]] = {key: [] for key in asks}
    keys = list(asks)
    for number, item in enumerate(items):
        first = number % len(keys)
        for key in [*keys[first:], *keys[:first]]:
            last = answers[key][-give_up:]
            dead = len(last) == give_up and all(answer.error for answer in last)
            answers[key].append(_not_sent(give_up) if dead else asks[key](item))
    return answers


def request(client: httpx.Client, address: str, body: dict | None = None) -> dict:
    """The JSON object that an address answers, to a POST of body or to a GET.

    Raises ValueError, one sentence with the address: refused, timed out, broken off, a status other than 200
    and what the engine said, or no JSON object.
    """
    try:
        response = client.get(address) if body is None else client.post(address, json=body)
        found = response.json() if response.status_code == 200 else None
    except httpx.TimeoutException:
        raise ValueError(f"{address} did not answer in time: is the engine overloaded?") from None
    except httpx.HTTPError as problem:
        said = _short(str(problem)) or type(problem).__name__
        raise ValueError(f"{address} cannot be reached ({said}): is the engine up, and is this its "
                         "port?") from None
    except ValueError:
        raise ValueError(f"{address} answers something that is not JSON: is this an OpenAI-compatible "
                         "engine?") from None
    if response.status_code != 200:
        raise ValueError(f"{address} answers {response.status_code}: {_short(response.text) or 'no reason'}")
    if not isinstance(found, dict) or "error" in found:
        raise ValueError(f"{address} answers {_short(json.dumps(found))}")
    return found


def served_models(client: httpx.Client, base: str) -> list[dict]:
    """What an engine says of the models it serves, each with its name as "id". Errors as in `request`."""
    address = f"{root(base)}/v1/models"
    found = request(client, address).get("data")
    if not isinstance(found, list) or not all(isinstance(each, dict) and "id" in each for each in found):
        raise ValueError(f"{address} does not list models: is this an OpenAI-compatible engine?")
    return found


def served_model(base: str, timeout: float = 10.0) -> str:
    """The name of the model an engine serves. ValueError where it does not answer, or serves several."""
    with connect(timeout) as client:
        names = [str(each["id"]) for each in served_models(client, base)]
    if len(names) != 1:
        raise ValueError(f"{base} serves {len(names)} models ({', '.join(names[:5])}): choose with --model.")
    return names[0]


def _not_sent(give_up: int) -> Answer:
    return Answer(error="not sent", detail=f"{give_up} failures in a row before")


def _pieces(logprobs: dict | None, chat: bool) -> list[Piece]:
    if not logprobs:
        return []
    if chat:
        return [Piece(each["token"], _logprob(each["logprob"]),
                      {one["token"]: _logprob(one["logprob"]) for one in each.get("top_logprobs") or ()})
                for each in logprobs.get("content") or ()]
    tokens = logprobs.get("tokens") or []
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    return [Piece(token, _logprob(value), {name: _logprob(each) for name, each in (most or {}).items()})
            for token, value, most in zip(tokens, logprobs["token_logprobs"], tops, strict=True)]


def _logprob(value: float | None) -> float:
    return -math.inf if value is None else float(value)


def root(base: str) -> str:
    """An engine's address as it is before /v1. Raises ValueError for what is no address."""
    check_address(base)
    return base.rstrip("/").removesuffix("/v1").rstrip("/")


def _short(text: str) -> str:
    return " ".join(text.split())[:160]
