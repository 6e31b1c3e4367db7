"""A Grafana dashboard of each engine's acceptance, from the PromQL that the engine's file knows.

    python -m course_lib.engines.dashboard FOLDER      writes one JSON an engine, to be imported in Grafana

Each panel says what its number is and is not: dashboards name three of them "acceptance rate".
"""

import json
import sys
from pathlib import Path

from course_lib.engines import llama_cpp, sglang, tensorrt_llm, vllm
from course_lib.files import write_text

ENGINES = {"vllm": vllm, "sglang": sglang, "tensorrt_llm": tensorrt_llm, "llama_cpp": llama_cpp}
# Definition -> title, unit and what to know of it.
PANELS = {
    "tokens_per_round": ("Tokens per round", "none", "1 + accepted / rounds: the target's own token too. "
                         "It must exceed a round's cost in target steps, or speculation loses."),
    "prefix_rate": ("Prefix rate (accepted / drafted)", "percentunit", "Falls with k for the same draft: not "
                    "alpha, and not to be compared between engines with another k."),
    "per_position": ("Accepted at each position, of all rounds", "percentunit", "Unconditional: position i "
                     "counts only if all before it were accepted. No draft falls to zero at once: if this "
                     "does, check the text."),
    "tokens_per_step": ("Tokens per target step", "none", "Steps without a draft included: what users feel."),
    "k": ("Drafted tokens per round", "none", "Below the k that was set: rounds that could draft less."),
    "rounds": ("Rounds per second", "none", "Nothing else here means much while this is low."),
    "accepted": ("Accepted tokens per second", "none", "Of these, rounds add one each."),
}


def dashboard(name: str) -> dict:
    """The dashboard of one engine ("vllm", "sglang", "tensorrt_llm" or "llama_cpp") as Grafana's JSON."""
    engine = ENGINES[name]
    labelled = engine is not llama_cpp  # which serves one model, and does not label it
    queries = engine.promql('model_name=~"$model"' if labelled else "", None)
    panels = [_panel(number, *PANELS[what], queries[what]) for number, what in
              enumerate(what for what in PANELS if what in queries)]
    variables = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
    if labelled:
        variables.append({
            "name": "model", "type": "query", "label": "Model", "multi": True, "includeAll": True,
            "refresh": 2, "datasource": _SOURCE,
            "query": f"label_values({_metric(queries['rounds'])}, model_name)"})
    return {"uid": f"spec-decode-{name.replace('_', '-')}", "title": f"Speculative decoding: {engine.ENGINE}",
            "tags": ["speculative decoding"], "schemaVersion": 39, "version": 1, "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"}, "templating": {"list": variables}, "panels": panels}


def write(folder: Path) -> None:
    """Write all dashboards, each as a whole or not at all."""
    for name in ENGINES:
        text = json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"
        write_text(folder / f"{name}.json", text)


def _panel(number: int, title: str, unit: str, says: str, query: str) -> dict:
    by = next((label for label in ("token_position", "position") if f"by ({label})" in query), None)
    return {"id": number + 1, "type": "timeseries", "title": title, "description": says,
            "datasource": _SOURCE,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": "A", "datasource": _SOURCE, "expr": query,
                         "legendFormat": f"position {{{{{by}}}}}" if by else title}]}


def _metric(query: str) -> str:
    return query.split("rate(", 1)[1].split("{", 1)[0]


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

if __name__ == "__main__":
    write(Path(sys.argv[1]))
