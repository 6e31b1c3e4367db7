"""The dashboards ask for names that the engines expose and this package reads, with labels they have."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from course_lib.engines.dashboard import ENGINES, dashboard, write
from course_lib.fetch import ROOT

FIXTURES = ROOT / "tests" / "fixtures" / "engines"
WORDS = {"sum", "by", "rate", "scalar", "label_values"}


def exposed(name):
    """Sample name -> its labels, in a real text of this engine."""
    text = (FIXTURES / ("vllm_v1.txt" if name == "vllm" else f"{name}.txt")).read_text()
    return {sample.name: set(sample.labels) for family in text_string_to_metric_families(text)
            for sample in family.samples}


@pytest.mark.parametrize("name", ENGINES)
def test_queries_are_of_names_and_labels_that_the_engine_has(name):
    there, found = exposed(name), dashboard(name)
    queries = [target["expr"] for panel in found["panels"] for target in panel["targets"]]
    assert len(queries) >= 2
    for query in queries:
        assert query.count("(") == query.count(")") and query.count("{") == query.count("}")
        parts = re.findall(r"rate\(([a-z_:]+)\{([^}]*)\}\[5m\]\)", query)
        assert parts and len(parts) == query.count("rate(")
        for metric, matchers in parts:
            assert metric in there, metric
            assert set(re.findall(r"(\w+)=~?\"", matchers)) <= there[metric]
        rest = re.sub(r"rate\([^)]*\)", "", query)
        assert set(re.findall(r"[a-z_]{2,}", rest)) <= WORDS | {"position", "token_position"}
    for variable in found["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\S+), (\w+)\)", variable["query"]).groups()
        assert label in there[metric]


@pytest.mark.parametrize("name", ENGINES)
def test_the_files_are_those_of_the_code(name, tmp_path):
    write(tmp_path)
    assert (ROOT / "data" / "grafana" / f"{name}.json").read_text() == (tmp_path / f"{name}.json").read_text()
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["description"] for panel in found["panels"])
