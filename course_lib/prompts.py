"""Routes and prompts: the course's own (data/prompts/*.jsonl), or a file of yours.

A route is a kind of traffic: chat, code, json. Acceptance differs between them, so nothing here
ever mixes two. The course's prompts are split in two: `train` taught the draft, and `heldout`,
which the draft has never met, is what every measurement uses. A fourth route is measured only where it
is asked for: `copy`, whose answers mostly stand in the prompt, and which no draft was taught.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROUTES = ("chat", "code", "json")
EXTRA_ROUTES = ("copy",)  # never among "all"
FOLDER = Path(__file__).resolve().parent.parent / "data" / "prompts"
# Who speaks, as logs of different origin say it.
ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
         "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "tool": "user"}
_TURNS = "{name}: {turns} of {prompts} prompts have several turns, of which only the first is asked"


@dataclass(frozen=True)
class Prompt:
    """One request: chat messages ({"role", "content"} each), ending with the user's."""

    id: str
    route: str
    split: str
    messages: list[dict[str, str]] = field(hash=False)
    kind: str = ""


@dataclass(frozen=True)
class Logged(Prompt):
    """A request of a log, and the text that answered it."""

    response: str = ""


def load_prompts(routes=ROUTES, split: str = "heldout", limit: int | None = None) -> list[Prompt]:
    """The course's prompts of these routes and this split ("heldout" or "train"), in file order.

    limit: the most prompts of each route. Raises ValueError for an unknown route or split.
    """
    prompts, known = [], ROUTES + EXTRA_ROUTES
    for route in routes:
        if route not in known:
            raise ValueError(f"there is no route {route!r}: choose from {', '.join(known)}")
        with open(FOLDER / f"{route}.jsonl", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        chosen = [row for row in rows if row["split"] == split]
        if not chosen:
            known = dict.fromkeys(row["split"] for row in rows)
            raise ValueError(f"route {route} has no split {split!r}: choose {' or '.join(sorted(known))}")
        prompts += [Prompt(row["id"], route, split, row["messages"], row["kind"]) for row in chosen[:limit]]
    return prompts


def read_prompts(path: str | Path, skip_bad: bool = False,
                 say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)) -> list[Prompt]:
    """Your own prompts, in the order of the file, each with the id FILE:LINE and split "own".

    path: UTF-8 text. In a .jsonl file (or one of no known kind that starts with a brace) every line is
    an object with a prompt under "prompt" (a string), "messages" (OpenAI), "conversations" (ShareGPT) or
    "turns" (MT-Bench, of which the first is used), and optionally "route" (else "mine"). In any other
    every line is a prompt. Blank lines do not count. Answers at the end of a conversation are taken off:
    the target writes its own. Tools as OpenAI logs them: an assistant's "tool_calls" become the text of its
    message, as JSON, and a "tool" message becomes the user's, since few chat templates know more.
    skip_bad: leave out lines that cannot be read, instead of refusing the file with the number of the
    first. say: is told of those, of turns that are not asked, and of repeated prompts, which are left out: a
    prompt twice is not two observations. Raises ValueError when a line is bad, or nothing is left.
    """
    path = Path(path)
    lines, kind = _lines(path), path.suffix.lower()
    as_json = kind in (".jsonl", ".json", ".ndjson") or (kind != ".txt" and lines and lines[0][1][0] == "{")
    read = _request if as_json else lambda line: ("mine", [{"role": "user", "content": line}], False)
    prompts, seen, repeated, turns = [], set(), [], 0
    found, bad = _each(path, lines, read, skip_bad)
    for number, (route, messages, more) in found:
        same = (route, json.dumps(messages))
        if same in seen:
            repeated.append(number)
            continue
        seen.add(same)
        turns += more
        prompts.append(Prompt(f"{path.name}:{number}", route, "own", messages))
    if bad:
        say(f"{path.name}: left out {_listed(bad)}: not readable as a prompt")
    if repeated:
        say(f"{path.name}: left out {_listed(repeated)}: the same as an earlier prompt")
    if turns:
        say(_TURNS.format(name=path.name, turns=turns, prompts=len(prompts)))
    if not prompts:
        raise ValueError(f"{path.name} holds no prompt: write one a line")
    return prompts


def read_log(path: str | Path, skip_bad: bool = False,
             say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
             temperature: float | None = 0.0) -> list[Logged]:
    """A log of answered requests, in the order of the file: JSONL, prompts as in `read_prompts`, "response"
    a string, and optionally "temperature". A line that another law wrote, by its temperature, top_p or top_k,
    is a bad line; temperature None takes any law. Repeated lines stay: traffic repeats itself. Else as
    `read_prompts`.
    """
    path = Path(path)
    found, bad = _each(path, _lines(path),
                       lambda line: (*_request(line), *_response(json.loads(line), temperature)), skip_bad)
    logged = [Logged(f"{path.name}:{number}", route, "own", messages, response=response)
              for number, (route, messages, _, response, _) in found]
    turns = sum(more for _, (_, _, more, *_) in found)
    silent = sum(not stated for _, (*_, stated) in found)
    if bad:
        say(f"{path.name}: left out {_listed(bad)}: no text of this temperature")
    if turns:
        say(_TURNS.format(name=path.name, turns=turns, prompts=len(logged)))
    if silent:
        say(f"{path.name}: {silent} of {len(logged)} texts have no temperature, and are taken as written at "
            f"{temperature:g}")
    if not logged:
        raise ValueError(f'{path.name} holds no text: write {{"prompt": …, "response": …}} on each line')
    return logged


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    return [(number, line.strip()) for number, line in enumerate(_text(path).split("\n"), 1) if line.strip()]


def _each(path: Path, lines: list[tuple[int, str]], read: Callable[[str], tuple],
          skip_bad: bool) -> tuple[list[tuple[int, tuple]], list[int]]:
    """What was read of each line, with its number; and the numbers of bad lines, if they may be left out."""
    found, bad = [], []
    for number, line in lines:
        try:
            found.append((number, read(line)))
        except ValueError as error:
            if not skip_bad:
                raise ValueError(f"{path.name} line {number} {error}, or pass --skip-bad to leave such lines "
                                 "out.") from None
            bad.append(number)
    return found, bad


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")  # with or without a byte-order mark; any line ends
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    if text.lstrip().startswith("[") and _is_array(text):
        raise ValueError(f"{path.name} is one JSON array: write one object a line (jq -c '.[]' {path.name})")
    return text


def _is_array(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _request(line: str) -> tuple[str, list[dict[str, str]], bool]:
    """Route and messages of one JSON line, and whether it has turns that are not asked. A ValueError's text
    goes on from "FILE line N"."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise ValueError(f"is not JSON ({what} at column {error.colno}). Mend it") from None
    except RecursionError:
        raise ValueError("is JSON nested too deeply. Mend it") from None
    except ValueError:  # Python reads no integer of more than some thousand digits
        raise ValueError("holds a number with too many digits. Mend it") from None
    if not isinstance(row, dict):
        raise ValueError('is JSON but not an object. Write {"prompt": …}')
    route = row.get("route", "mine")
    if not isinstance(route, str) or not route.strip():
        raise ValueError('has a "route" that is not a name. Write a word')
    more = False
    if "prompt" in row:
        messages = [{"role": "user", "content": row["prompt"]}]
    elif "messages" in row:
        messages = _messages(row["messages"], "role", "content")
    elif "conversations" in row:
        messages = _messages(row["conversations"], "from", "value")
    elif "turns" in row:
        first, *others = _list(row["turns"], "turns")
        messages, more = [{"role": "user", "content": first}], bool(others)
    else:
        has = ", ".join(f'"{name}"' for name in row) or "nothing"
        raise ValueError(f'has neither "prompt", "messages", "conversations" nor "turns" (it has {has}). '
                         "Rename the field")
    for message in messages:
        message["content"] = _content(message["content"])
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages or messages[-1]["role"] == "system":
        raise ValueError("asks nothing. Add a user's message")
    return route.strip(), messages, more


def _response(row: dict, temperature: float | None) -> tuple[str, bool]:
    """The response of a log's line, and whether the line says its temperature; errors as in `_request`."""
    response, said = row.get("response"), row.get("temperature")
    if not isinstance(response, str) or not response:
        raise ValueError('has no "response", or an empty one. Write the text that was answered')
    if any("\ud800" <= letter <= "\udfff" for letter in response):
        raise ValueError("has half of a surrogate pair in its response, which is no character. Mend it")
    if temperature is None:
        return response, True
    if said is not None and (isinstance(said, bool) or said != temperature):
        raise ValueError(f"was written at temperature {said!r}, not {temperature:g}. Measure each "
                         "temperature alone")
    if temperature and (row.get("top_p") not in (None, 1) or row.get("top_k") not in (None, 0, -1)):
        raise ValueError("was written with top-p or top-k. Leave it away")
    return response, said is not None


def _messages(turns, role: str, content: str) -> list[dict]:
    messages = []
    for turn in _list(turns, "messages"):
        calls = turn.get("tool_calls") if isinstance(turn, dict) else None
        if not isinstance(turn, dict) or role not in turn or (content not in turn and not calls):
            raise ValueError(f'has a message without "{role}" and "{content}". Add them')
        if not isinstance(turn[role], str) or turn[role] not in ROLES:
            raise ValueError(f'has a message from {turn[role]!r}. Use {", ".join(ROLES)}')
        said = turn.get(content)
        if calls and ROLES[turn[role]] == "assistant":
            written = json.dumps(calls, ensure_ascii=False)
            said = f"{_content(said)}\n{written}" if said else written
        messages.append({"role": ROLES[turn[role]], "content": said})
    return messages


def _list(value, name: str) -> list:
    if not isinstance(value, list) or not value:
        raise ValueError(f'has "{name}" that are not a list, or an empty one. Write a list')
    return value


def _content(content) -> str:
    """The text of a message: a string, or OpenAI's list of parts."""
    if isinstance(content, list):
        parts = []
        for part in content:
            text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
            if not isinstance(text, str):
                raise ValueError(f"has a message part that is not text ({json.dumps(part)[:40]}). "
                                 "Leave it away: only text can be measured")
            parts.append(text)
        content = "\n".join(parts)
    if not isinstance(content, str):
        raise ValueError(f"has a message whose text is {json.dumps(content)[:40]}. Write a string")
    if not content.strip():
        raise ValueError("has an empty message. Write something")
    if not content.isascii() and any("\ud800" <= letter <= "\udfff" for letter in content):
        raise ValueError("has half of a surrogate pair (\\ud800 and up), which is no character. Mend it")
    return content


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
    return f"line{'s' * (len(numbers) > 1)} {shown}"
