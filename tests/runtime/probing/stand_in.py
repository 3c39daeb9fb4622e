"""A process that stands in for an inference server: ``stand_in.py fake-engine --port N``, steered by a folder.

Behaviour is read from files of ``--stage`` at every request, so that a test can change it while it runs.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORDS = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
STAGE = Path(WORDS["--stage"])


class Stage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with (STAGE / "asked").open("a") as log:
            log.write(f"{self.path} {self.headers.get('Authorization', '')}\n")
        try:
            how = json.loads((STAGE / "answers.json").read_text()).get(self.path)
        except FileNotFoundError:
            how = None
        time.sleep(how.get("delay", 0) if how else 0)
        body = (how["body"] if how else "none").encode()
        self.send_response(how["status"] if how else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Say nothing."""


ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer(("127.0.0.1", int(WORDS["--port"])), Stage).serve_forever()
