"""Protects reading people's own prompts: every kind of file, and a bad line named by its number."""

import json

import pytest

from course_lib.measure import choose_prompts
from course_lib.prompts import EXTRA_ROUTES, ROUTES, load_prompts, read_log, read_prompts

ASK = [{"role": "user", "content": "Why is the sky blue?"}]


def read(tmp_path, content, name="mine.jsonl", **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = []
    return read_prompts(path, say=said.append, **options), said


def messages_of(tmp_path, row):
    (prompt,), said = read(tmp_path, json.dumps(row))
    assert not said
    return prompt.messages


@pytest.mark.parametrize("row", [
    {"prompt": "Why is the sky blue?"},
    {"messages": ASK},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Why is the sky blue?"}]}]},
    {"messages": [*ASK, {"role": "assistant", "content": "Rayleigh."}]},
    {"conversations": [{"from": "human", "value": "Why is the sky blue?"}]},
    {"id": "x", "conversations": [{"from": "human", "value": "Why is the sky blue?"},
                                  {"from": "gpt", "value": "Rayleigh."}]},
    {"question_id": 81, "category": "stem", "turns": ["Why is the sky blue?"]},
])
def test_every_kind_of_line_asks_the_same(tmp_path, row):
    assert messages_of(tmp_path, row) == ASK


def test_a_conversation_keeps_its_turns_up_to_the_last_question(tmp_path):
    found = messages_of(tmp_path, {"conversations": [
        {"from": "system", "value": "Be brief."}, {"from": "human", "value": "One?"},
        {"from": "gpt", "value": "1"}, {"from": "human", "value": "Two?"}, {"from": "gpt", "value": "2"}]})
    assert found == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?"},
                     {"role": "assistant", "content": "1"}, {"role": "user", "content": "Two?"}]
    parts = [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]
    assert messages_of(tmp_path, {"messages": [{"role": "developer", "content": "Be brief."},
                                               {"role": "user", "content": parts}]}) == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "One\ntwo"}]


def test_turns_that_are_not_asked_are_said_once_and_counted(tmp_path):
    rows = [{"turns": [f"{i}?", *["And then?"] * more]} for i, more in enumerate((1, 0, 3))]
    lines = "\n".join(json.dumps(row | {"response": "Yes."}) for row in rows)
    prompts, said = read(tmp_path, lines)
    assert [prompt.messages[0]["content"] for prompt in prompts] == ["0?", "1?", "2?"]
    one = "mine.jsonl: 2 of 3 prompts have several turns, of which only the first is asked"
    assert said == [one]
    said = []
    read_log(tmp_path / "mine.jsonl", say=said.append)
    assert said[0] == one and len(said) == 2  # and that they have no temperature


def test_routes_ids_and_order(tmp_path):
    prompts, _ = read(tmp_path, '{"prompt": "a", "route": "sql"}\n\n{"prompt": "b"}\n{"prompt": "a"}\n')
    assert [(prompt.id, prompt.route, prompt.split) for prompt in prompts] == [
        ("mine.jsonl:1", "sql", "own"), ("mine.jsonl:3", "mine", "own"), ("mine.jsonl:4", "mine", "own")]


def test_plain_text_is_a_prompt_a_line(tmp_path):
    for name, text in [("mine.txt", '{"not": "JSON", but text}\nSecond.\n'), ("mine", "First.\nSecond.\n")]:
        prompts, _ = read(tmp_path, text, name)
        assert [prompt.messages[0]["content"] for prompt in prompts] == text.split("\n")[:2]
    (prompt,), _ = read(tmp_path, '{"prompt": "JSON all the same"}', "mine")
    assert prompt.messages[0]["content"] == "JSON all the same"


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.txt"])
def test_marks_line_ends_and_blanks_change_nothing(tmp_path, name):
    lines = ["Grüße, 世界 🎈", "a line separator\u2028inside"]
    if name == "mine.jsonl":
        lines = [json.dumps({"prompt": line}, ensure_ascii=False) for line in lines]
    plain, _ = read(tmp_path, "\n".join(lines), name)
    for dressed in ("\n".join(lines) + "\n", "\r\n".join(lines) + "\r\n", "  " + "\n\t".join(lines)):
        found, said = read(tmp_path, b"\xef\xbb\xbf" + dressed.encode(), name)
        assert [prompt.messages for prompt in found] == [prompt.messages for prompt in plain] and not said
    found, _ = read(tmp_path, "\n\n" + "\n \n".join(lines), name)
    assert [prompt.messages for prompt in found] == [prompt.messages for prompt in plain]
    assert [prompt.id for prompt in found] == [f"{name}:3", f"{name}:5"]
    assert len(found) == 2


def test_repeats_are_left_out_and_said(tmp_path):
    again = {"messages": [{"role": "user", "content": "a"}]}
    prompts, said = read(tmp_path, f'{{"prompt": "a"}}\n{{"prompt": "b"}}\n{json.dumps(again)}\n'
                                   '{"prompt": "a", "route": "sql"}\n')
    assert [prompt.id for prompt in prompts] == ["mine.jsonl:1", "mine.jsonl:2", "mine.jsonl:4"]
    assert said == ["mine.jsonl: left out line 3: the same as an earlier prompt"]
    _, said = read(tmp_path, "same\n" * 13, "mine.txt")
    assert said == ["mine.txt: left out lines 2, 3, 4, 5, 6, 7, 8, 9 and 4 more: "
                    "the same as an earlier prompt"]


@pytest.mark.parametrize("line, error", [
    ('{"text": "x", "id": 3}',
     'has neither "prompt", "messages", "conversations" nor "turns" (it has "text", "id"). Rename the field'),
    ("{}", "(it has nothing)"),
    ('{"prompt": "x"', "is not JSON"),
    ('"prompt"', "not an object"),
    ("[" * 100_000, "nested too deeply"),
    ('{"prompt": "x", "n": ' + "9" * 5000 + "}", "holds a number with too many digits"),
    ('{"prompt": ""}', "empty message"),
    ('{"prompt": " \\n"}', "empty message"),
    ('{"prompt": null}', "text is null"),
    ('{"prompt": [1, 2, 3]}', "not text (1)"),
    ('{"prompt": "\\ud83d"}', "surrogate"),
    ('{"prompt": "x", "route": 3}', '"route"'),
    ('{"prompt": "x", "route": " "}', '"route"'),
    ('{"messages": []}', "empty one"),
    ('{"messages": "hello"}', "not a list"),
    ('{"messages": ["hello"]}', 'without "role"'),
    ('{"messages": [{"role": "user"}]}', 'without "role" and "content"'),
    ('{"messages": [{"role": ["user"], "content": "x"}]}', "from ['user']"),
    ('{"messages": [{"role": "wizard", "content": "x"}]}', "from 'wizard'"),
    ('{"messages": [{"role": "assistant", "content": "x"}]}', "asks nothing"),
    ('{"messages": [{"role": "system", "content": "x"}]}', "asks nothing"),
    ('{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}', "not text"),
    ('{"messages": [{"role": "user", "content": null}, {"role": "user", "content": "x"}]}', "text is null"),
    ('{"conversations": [{"from": "human", "text": "x"}]}', 'without "from" and "value"'),
    ('{"turns": []}', "empty one"),
    ('{"turns": [5]}', "text is 5"),
])
def test_a_bad_line_is_named_and_kept_out_only_when_asked(tmp_path, line, error):
    content = f'{{"prompt": "good"}}\n\n{line}\n{{"prompt": "also good"}}\n'
    with pytest.raises(ValueError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert message.startswith("mine.jsonl line 3 ") and error in message and "\n" not in message
    assert message.endswith(", or pass --skip-bad to leave such lines out.") and len(message) < 300
    prompts, said = read(tmp_path, content, skip_bad=True)
    assert [prompt.id for prompt in prompts] == ["mine.jsonl:1", "mine.jsonl:4"]
    assert said == ["mine.jsonl: left out line 3: not readable as a prompt"]


@pytest.mark.parametrize("content, name, error", [
    ("", "x.jsonl", "holds no prompt"),
    (" \r\n\n", "x.txt", "holds no prompt"),
    ("\xff\xfeh\0i\0".encode("latin-1"), "x.txt", "not UTF-8 text .byte 0.: save it as UTF-8"),
    ('[\n {"prompt": "a"},\n {"prompt": "b"}\n]\n', "x.json", "one JSON array: write one object a line"),
])
def test_a_file_that_is_no_prompt_file_is_refused(tmp_path, content, name, error):
    with pytest.raises(ValueError, match=error):
        read(tmp_path, content, name)
    with pytest.raises(FileNotFoundError):
        read_prompts(tmp_path / "none.jsonl")


def test_a_file_of_brackets_alone_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="line 1 is JSON nested too deeply"):
        read(tmp_path, "[" * 100_000)


def test_traffic_with_tools_is_measured(tmp_path):
    weather = {"name": "weather", "arguments": '{"city": "Köln"}'}
    calls = [{"id": "1", "type": "function", "function": weather}]
    for silent in ({"content": None}, {}, {"content": ""}):
        found = messages_of(tmp_path, {"messages": [
            *ASK, {"role": "assistant", **silent, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": "17 °C"}]})
        assert found == [*ASK, {"role": "assistant", "content": json.dumps(calls, ensure_ascii=False)},
                         {"role": "user", "content": "17 °C"}]
    found = messages_of(tmp_path, {"messages": [
        *ASK, {"role": "assistant", "content": "Let me see.", "tool_calls": calls}, *ASK]})
    assert found[1]["content"] == f"Let me see.\n{json.dumps(calls, ensure_ascii=False)}"


def test_all_lines_bad_is_no_prompt(tmp_path):
    with pytest.raises(ValueError, match="holds no prompt"):
        read(tmp_path, "{}\n{}\n", skip_bad=True)


def test_the_courses_own_prompts_are_readable_as_a_file_of_ones_own(tmp_path):
    held_out = load_prompts(limit=5)
    assert [prompt.route for prompt in held_out] == [route for route in ROUTES for _ in range(5)]
    rows = [json.dumps({"messages": prompt.messages, "route": prompt.route}) for prompt in held_out]
    prompts, _ = read(tmp_path, "\n".join(rows))
    assert [(prompt.route, prompt.messages) for prompt in prompts] == [
        (prompt.route, prompt.messages) for prompt in held_out]
    with pytest.raises(ValueError, match="no route 'poem': choose from chat, code, json, copy"):
        load_prompts(["poem"])
    with pytest.raises(ValueError, match="no split 'test': choose heldout or train"):
        load_prompts(["chat"], "test")
    with pytest.raises(ValueError, match="route copy has no split 'train': choose heldout$"):
        load_prompts(["copy"], "train")


@pytest.mark.parametrize("route", ROUTES + EXTRA_ROUTES)
def test_every_route_holds_64_different_prompts_out(route):
    prompts = load_prompts([route])
    assert len(prompts) == len({prompt.id for prompt in prompts}) == 64
    assert len({json.dumps(prompt.messages) for prompt in prompts}) == 64
    for prompt in prompts:
        assert prompt.kind and prompt.messages[-1]["role"] == "user", prompt.id
        assert all(message["content"].strip() for message in prompt.messages), prompt.id


def test_no_prompt_held_out_is_one_that_taught_the_draft():
    taught = {json.dumps(prompt.messages) for prompt in load_prompts(split="train")}
    held_out = load_prompts(ROUTES + EXTRA_ROUTES)
    assert not [prompt.id for prompt in held_out if json.dumps(prompt.messages) in taught]


def test_the_copy_route_is_measured_only_where_it_is_asked_for():
    """Recordings and notebooks hold three routes; a fourth in "all" would change every one of them."""
    assert {prompt.route for prompt in load_prompts()} == set(ROUTES) == {"chat", "code", "json"}
    assert {prompt.route for prompt in choose_prompts(None, None, 1)} == set(ROUTES)
    assert [prompt.id for prompt in choose_prompts(None, ["copy"], 2)] == ["copy-h001", "copy-h002"]


def test_copying_prompts_are_varied_and_long_enough_to_copy_from():
    prompts = load_prompts(["copy"])
    kinds = [prompt.kind for prompt in prompts]
    assert len(set(kinds)) >= 8 and max(map(kinds.count, kinds)) <= 10
    openings = [prompt.messages[-1]["content"][:24] for prompt in prompts]
    assert len(set(openings)) == 64
    words = [sum(len(message["content"].split()) for message in prompt.messages) for prompt in prompts]
    assert 15 <= min(words) and max(words) <= 150
