"""A real browser without a screen, spoken to through a pair of pipes: pages as people will see
them.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
_OPTIONS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-extensions",
    ),
    *("--remote-debugging-pipe", "--window-size=1100,900", "about:blank"),
)


class Browser:
    """Chromium, driven by its debugging protocol: messages of JSON, each ended by a zero byte."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_it, self._send = os.pipe()
        self._receive, from_it = os.pipe()

        # it reads from descriptor 3 and writes to 4; first out of the way, should they be taken
        def connect():
            first, second = os.dup(to_it), os.dup(from_it)
            kept = [os.dup(first), os.dup(second)]
            while min(kept) <= 4:
                kept = [os.dup(each) for each in kept]
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self._process = subprocess.Popen(
            [CHROMIUM, f"--user-data-dir={self._folder.name}", *_OPTIONS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=connect,  # noqa: PLW1509 - it only moves descriptors
            close_fds=False,
        )
        os.close(to_it)
        os.close(from_it)
        self._buffer, self._count, self.events = b"", 0, []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable", session=True)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._send)
        os.close(self._receive)
        self._folder.cleanup()

    def open(
        self, path: Path, *, scheme: str = "light", width: int = 1100, fragment: str = ""
    ) -> None:
        """Show a page, light or dark, and wait until it is there; with `fragment`, at that place of
        it.
        """
        if fragment:
            self._go("about:blank")  # another place of the same page would be no new page
        self.events.clear()
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._call("Emulation.setEmulatedMedia", media, session=True)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size, session=True)
        address = path.resolve().as_uri() + (f"#{fragment}" if fragment else "")
        self._go(address)

    def _go(self, address: str) -> None:
        n_loaded = self._n_loaded()
        self._call("Page.navigate", {"url": address}, session=True)
        while self._n_loaded() == n_loaded:
            self._read()

    def _n_loaded(self) -> int:
        return sum(event["method"] == "Page.loadEventFired" for event in self.events)

    def evaluate(self, expression: str):
        """Return what JavaScript finds; the policy of the page does not bind the debugger."""
        options = {"expression": expression, "returnByValue": True}
        answer = self._call("Runtime.evaluate", options, session=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def run_scripts(self, allowed: bool) -> None:
        """Let pages that are opened from now on run scripts, or not."""
        self._call("Emulation.setScriptExecutionDisabled", {"value": not allowed}, session=True)

    def click(self, selector: str) -> None:
        """Click on the middle of the first element that a selector finds, as with a mouse."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        middle = "({left, top, width, height}) => [left + width / 2, top + height / 2]"
        x, y = self.evaluate(f"({middle})({found}.getBoundingClientRect())")
        place = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", {"type": kind, **place}, session=True)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self._call("Input.insertText", {"text": text}, session=True)

    def press(self, key: str) -> None:
        """Press and release a key, such as ``Enter``, ``ArrowDown`` or ``Tab``."""
        codes = {
            "Enter": 13,
            "Escape": 27,
            "Tab": 9,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            pressed["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", {"type": kind, **pressed}, session=True)

    def complaints(self) -> list[str]:
        """Return everything on the console, and every exception."""
        loud = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event) for event in self.events if event["method"] in loud]

    def requests(self) -> list[str]:
        """Return every address that the page asked for, itself included."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def top_of(self, selector: str) -> float:
        """Return how far below the top of the page an element begins."""
        return self.evaluate(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top + scrollY"
        )

    def screenshot(self, path: Path, *, top: float = 0, height: float | None = None) -> None:
        """Save a picture of the whole page, or of a part of it as wide as the page."""
        options = {"captureBeyondViewport": True}
        if height is not None:
            width = self.evaluate("document.documentElement.clientWidth")
            options["clip"] = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        picture = self._call("Page.captureScreenshot", options, session=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def _call(self, method: str, parameters: dict | None = None, *, session: bool = False) -> dict:
        self._count += 1
        number, message = (
            self._count,
            {"id": self._count, "method": method, "params": parameters or {}},
        )
        if session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            part = os.read(self._receive, 1 << 16)
            if not part:
                raise RuntimeError("The browser has ended.")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
