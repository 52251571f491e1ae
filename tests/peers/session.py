# SPDX-License-Identifier: Apache-2.0
"""A part of the sessions with the gateway (clients.py, openai_calls.py and others): an engine, and what a session is
to see. Needs no packages."""
import json
import os
import signal
import subprocess
import traceback
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO_MODEL = os.path.join(ROOT, "launch", "demo", "tiny-books-moe-q8_0.gguf")


class Wrong(Exception):
    pass


def same(what, got, wanted):
    if got != wanted:
        raise Wrong(f"{what}: {got!r} instead of {wanted!r}")


def holds(what, condition):
    if not condition:
        raise Wrong(what)


class Engine:
    """`sluice run` with the gateway; its private directory is `work`."""

    def __init__(self, model, libexec, work, *options):
        env = dict(os.environ, SLUICE_ROOT=ROOT, SLUICE_LIBEXEC=os.path.abspath(libexec),
                   XDG_RUNTIME_DIR=os.path.abspath(work))
        command = [os.path.join(os.path.abspath(libexec), "sluice-run"), "-m", model, "--http=0", "--threads=1"]
        self.process = subprocess.Popen([*command, *options], env=env, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stderr:  # at its end there is no line
            if line.startswith("ready: model"):
                self.url = "http://" + line.rsplit("http://", 1)[1].strip()
                break
        if not self.url:
            raise SystemExit(f"{model}: the engine does not start")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=120) as reply:
            return json.load(reply)

    def post(self, path, body):
        asked = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(asked, timeout=120) as reply:
            return json.load(reply)

    def exits(self):
        return self.get("/stats")["exits"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def report(name, session, *arguments):
    """Runs a session and prints "ok NAME" or "not ok NAME: reason"; whether it is as expected."""
    try:
        session(*arguments)
        why = ""
    except Wrong as error:
        why = str(error)
    except Exception:  # of a package: it cannot read an answer
        why = traceback.format_exc().strip().replace("\n", " | ")[-600:]
    print(f"{'not ok' if why else 'ok'} {name}{': ' if why else ''}{why}", flush=True)
    return not why


def with_engine(name, start, sessions):
    """All sessions {name: function of the engine}, one after the other, with one engine, of which no process ends."""
    engine = start()
    try:
        good = [report(f"{name}_{what}", session, engine) for what, session in sessions.items()]
        for e in engine.exits():
            print(f"not ok {name}: {e['service']} ended: {e['exit_message']}")
            good.append(False)
    finally:
        engine.stop()
    return all(good)


def family_models(program, work):
    """What tests/peers/family_models.c prints, after it wrote the models into `work`."""
    os.makedirs(work, mode=0o700, exist_ok=True)
    return json.loads(subprocess.run([program, work], check=True, capture_output=True, text=True).stdout)
