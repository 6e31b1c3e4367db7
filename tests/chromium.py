"""A headless Chromium for tests, spoken to in its own protocol: no driver to install beside it."""

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import websocket  # comes with Jupyter

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = {
    "Darwin": ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
               "/Applications/Chromium.app/Contents/MacOS/Chromium"),
    "Windows": tuple(rf"{os.environ.get(folder, 'C:')}\{rest}"
                     for folder in ("ProgramFiles", "ProgramFiles(x86)")
                     for rest in (r"Google\Chrome\Application\chrome.exe",
                                  r"Microsoft\Edge\Application\msedge.exe")),
}
FLAGS = ("--headless=new", "--remote-debugging-port=0", "--no-first-run", "--no-default-browser-check",
         "--disable-gpu", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
         "--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server", "about:blank")
KEYS = {"Tab": 9, "Enter": 13, "Space": 32, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}


def find() -> str | None:
    """Where a Chromium is, if there is one; the environment variable CHROMIUM names another."""
    named = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else []
    known = [shutil.which(name) for name in NAMES] + list(PLACES.get(platform.system(), ()))
    return next((path for path in named + known if path and Path(path).exists()), None)


class Chromium:
    """One page. `requests` and `errors` hold what it asked for and complained of since `goto`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen([find(), f"--user-data-dir={self._folder.name}", *FLAGS],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = self._wait(Path(self._folder.name) / "DevToolsActivePort")
        self._socket = websocket.create_connection(f"ws://127.0.0.1:{port[0]}{port[1]}", timeout=300,
                                                   suppress_origin=True)
        self._count, self._session, self.requests, self.errors = 0, None, [], []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters) -> dict:
        """Send one command and return its result. Raises RuntimeError with what Chromium says."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        return self._until(lambda told: told.get("id") == message["id"])

    def goto(self, address: str) -> None:
        """Load a page and wait until it and its deferred scripts are done."""
        self.requests, self.errors = [], []
        self("Page.navigate", url=address)
        self._until(lambda told: told.get("method") == "Page.loadEventFired")

    def run(self, script: str):
        """The value of a JavaScript expression; a promise is awaited. Raises RuntimeError if it throws."""
        found = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", found))
        return found["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 30) -> None:
        """Wait until a JavaScript expression is true, also across a change of page."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.run(condition):
                    return
            except RuntimeError:  # the page it was asked of has gone
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{condition} did not come true within {seconds:g} s.")

    def size(self, width: int, height: int = 800) -> None:
        """Set the window, as a phone's would be for a narrow one."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
             mobile=width < 600)

    def press(self, key: str) -> None:
        """Press and release one key, as a person at a keyboard would."""
        text = {"Enter": "\r", "Space": " "}.get(key, "")
        name = {"Space": " "}.get(key, key)
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=name, code=key, windowsVirtualKeyCode=KEYS[key],
                 **({"text": text} if text and kind == "keyDown" else {}))

    def close(self) -> None:
        """End the browser that was started here."""
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=30)
        self._folder.cleanup()

    def _until(self, wanted) -> dict:
        while True:
            told = json.loads(self._socket.recv())
            match told.get("method"):
                case "Network.requestWillBeSent":
                    self.requests.append(told["params"]["request"]["url"])
                case "Runtime.exceptionThrown":
                    self.errors.append(told["params"]["exceptionDetails"])
                case "Log.entryAdded" if told["params"]["entry"]["level"] == "error":
                    self.errors.append(told["params"]["entry"]["text"])
            if wanted(told):
                if "error" in told:
                    raise RuntimeError(told["error"]["message"])
                return told.get("result", told)

    def _wait(self, path: Path, seconds: float = 60) -> list[str]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if path.exists() and len(lines := path.read_text().split()) == 2:
                return lines
            if self._process.poll() is not None:
                raise RuntimeError(f"Chromium ended with status {self._process.returncode}.")
            time.sleep(0.05)
        raise RuntimeError("Chromium did not start within a minute.")
