"""Where the text comes from: a file, standard input, or a server's address."""

import re
import sys
import time
from pathlib import Path

_MOST_BYTES = 32 << 20
_MOST_SECONDS = 30


def fetch_text(source: str, timeout: float = 5.0) -> str:
    """The text of a file, of `-` (standard input) or of an address that begins with http:// or https://.

    An address without a path gets /metrics. timeout: seconds for connecting and for each part of the answer.
    Raises ValueError with one line that says what to check; OSError for a file that cannot be read.
    """
    if source == "-":
        return sys.stdin.buffer.read(_MOST_BYTES).decode(errors="replace")
    if re.match(r"https?:", source) or ("://" in source and not Path(source).exists()):
        check_address(source)
        return _get(source, timeout)
    if re.fullmatch(r"[\w.-]+:\d+(/\S*)?", source) and not Path(source).exists():
        raise ValueError(f"there is no file {source}; if it is a server, write http://{source}")
    with open(source, "rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")


def check_address(address: str) -> None:
    """Raise ValueError unless this is http:// or https://, a host, and a port that can be, if any."""
    import httpx  # here, since a file is read without it

    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL()
    there = url.scheme in ("http", "https") and url.host and not re.search(r"\s", address)
    if not there or not 1 <= (1 if url.port is None else url.port) <= 65535:
        raise ValueError(f"{address!r} is no address: write http://HOST:PORT.")


def _get(address: str, timeout: float) -> str:
    import httpx

    try:
        url = httpx.URL(address)
        if url.path in ("", "/"):
            url = url.copy_with(path="/metrics")
        parts, started = [], time.monotonic()
        with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
            if response.status_code != 200:
                raise ValueError(f"{url} answers {response.status_code}, not metrics. {_WHERE}")
            for part in response.iter_bytes():
                parts.append(part)
                if sum(map(len, parts)) > _MOST_BYTES or time.monotonic() - started > _MOST_SECONDS:
                    raise ValueError(f"{url} does not end: that is no page of metrics. {_WHERE}")
        return b"".join(parts).decode(errors="replace")
    except httpx.TimeoutException:
        raise ValueError(f"{address} does not answer within {timeout:g} s: is the server up, and is this its "
                         "port?") from None
    except httpx.HTTPError as error:
        raise ValueError(f"{address} cannot be reached ({str(error) or type(error).__name__}): is the server "
                         "up, and is this its port?") from None


_WHERE = ("vLLM serves /metrics; SGLang /metrics with --enable-metrics; llama.cpp /metrics with --metrics; "
          "TensorRT-LLM /prometheus/metrics.")
