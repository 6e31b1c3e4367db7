"""The dashboards' queries in a real Prometheus that scrapes a real server: the numbers they draw are ours.

The server replays a text of each engine: every second all its counters grow by what the text has. Needs the
program prometheus (Debian: apt-get install prometheus); without it nothing is tested here.
"""

import json
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from course_lib.engines import read_metrics
from course_lib.engines.dashboard import ENGINES, PANELS, dashboard
from course_lib.fetch import ROOT

FIXTURES = ROOT / "tests" / "fixtures" / "engines"
TEXTS = {name: (FIXTURES / f"{'vllm_v1' if name == 'vllm' else name}.txt").read_text() for name in ENGINES}
SCRAPES = 3

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


class Replay(BaseHTTPRequestHandler):
    def do_GET(self):
        times = self.server.scrapes[self.path] = self.server.scrapes.get(self.path, 0) + 1
        body = "\n".join(grown(TEXTS[self.path.strip("/")], times)).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def grown(text, times):
    for family in text_string_to_metric_families(text):
        yield f"# TYPE {family.name} {family.type if family.type in ('counter', 'gauge') else 'untyped'}"
        for name, labels, value, *_ in family.samples:
            label = ",".join(f"{key}={json.dumps(each)}" for key, each in labels.items())
            grows = not name.endswith("_created") and family.type != "gauge"
            yield f"{name}{{{label}}} {value * times if grows else value}"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A function that puts a query to the running Prometheus."""
    folder, server = tmp_path_factory.mktemp("prometheus"), ThreadingHTTPServer(("127.0.0.1", 0), Replay)
    server.scrapes = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    jobs = [{"job_name": name, "metrics_path": f"/{name}", "scrape_interval": "1s",
             "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}]} for name in TEXTS]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))  # JSON is YAML, too
    running = subprocess.Popen(["prometheus", f"--config.file={folder / 'prometheus.yml'}",
                                f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while min([server.scrapes.get(f"/{name}", 0) for name in TEXTS]) < SCRAPES:
            assert time.monotonic() < until and running.poll() is None, "prometheus does not scrape"
            time.sleep(0.2)

        def query(text):
            answer = httpx.get(f"http://{address}/api/v1/query", params={"query": text}).json()
            assert answer["status"] == "success", (text, answer)
            return answer["data"]["result"]

        yield query
    finally:
        running.kill()
        running.wait()
        server.shutdown()


@pytest.mark.parametrize("name", ENGINES)
def test_a_dashboard_draws_what_we_read(name, ask):
    ours, titles = read_metrics(TEXTS[name]), {title: what for what, (title, *_) in PANELS.items()}
    wanted = {"tokens_per_round": ours.tokens_per_round, "prefix_rate": ours.prefix_rate,
              # Not ours.k, the most that a round drafts: here is what they draft on average.
              "k": ours.drafted and ours.rounds and ours.drafted / ours.rounds}
    compared = 0
    for panel in dashboard(name)["panels"]:
        what = titles[panel["title"]]
        found = ask(panel["targets"][0]["expr"].replace("$model", ".*"))
        assert found, panel["title"]
        numbers = [float(one["value"][1]) for one in sorted(found, key=lambda one: [*one["metric"].values()])]
        if what == "per_position":
            assert numbers == pytest.approx(list(ours.per_position))
        elif wanted.get(what):
            assert numbers == pytest.approx([wanted[what]]), what
        else:
            continue
        compared += 1
    assert compared  # of SGLang, which has gauges, the length alone
