#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions of the program aider with the gateway: it changes a file of a git repository (README.md).

    client_libraries.sh ROOT BUILD       with SLUICE_LONG=1 makes the environment and calls this:
    client_aider.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK

A model answers every prompt with the new text of the file, in the form that aider asks for. Prints a line "ok NAME" or
"not ok NAME: reason" per session. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import functools
import json
import os
import subprocess
import sys

from session import Engine, holds, same, with_engine

OLD, NEW = "Good night.\n", "Good morning.\n"
CONTEXT = 16384  # a token per byte
ANSWERS = {"whole": ["I change it:\n\n", "greeting.txt\n```\n", NEW, "```\n"],
           "diff": ["I change it:\n\n", "greeting.txt\n```\n<<<<<<< SEARCH\n", OLD, "=======\n", NEW,
                    ">>>>>>> REPLACE\n```\n"]}


def git(directory, *words):
    return subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *words], cwd=directory,
                          check=True, capture_output=True, text=True).stdout


def aider(directory, base, form, *words):
    """What it prints. Its home is the directory above."""
    home = os.path.dirname(directory)
    env = dict(os.environ, HOME=home, OPENAI_API_KEY="unused", OPENAI_API_BASE=base, OLLAMA_API_BASE=base,
               ANTHROPIC_API_KEY="unused", ANTHROPIC_BASE_URL=base, LITELLM_LOCAL_MODEL_COST_MAP="True",
               GIT_CONFIG_COUNT="2", GIT_CONFIG_KEY_0="user.name", GIT_CONFIG_VALUE_0="T",
               GIT_CONFIG_KEY_1="user.email", GIT_CONFIG_VALUE_1="t@example.org")
    done = subprocess.run([sys.executable, "-m", "aider", "--edit-format", form, "--yes-always", "--no-analytics",
                           "--no-check-update", "--no-show-model-warnings", "--no-pretty", "--map-tokens", "0",
                           "--no-gitignore", "--no-suggest-shell-commands", "--timeout", "120", *words,
                           "greeting.txt"], cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=400, check=False)
    return done.stdout


def repository(work, name):
    directory = os.path.join(work, name, "repository")
    os.makedirs(directory)
    with open(os.path.join(directory, "greeting.txt"), "w") as f:
        f.write(OLD)
    git(directory, "init", "--quiet")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "-m", "first")
    return directory


def change(work, form, name, model, path, words, engine):
    directory = repository(work, f"{form}_{name}")
    out = aider(directory, engine.url + path, form, "--model", model, *words, "--message", "Change the greeting.")
    with open(os.path.join(directory, "greeting.txt")) as f:
        same(f"the file; aider printed {out[-600:]!r}", f.read(), NEW)
    same("commits", len(git(directory, "log", "--format=%h").split()), 2)


def full(work, form, engine):
    directory = repository(work, f"{form}_full")
    out = aider(directory, engine.url + "/v1", form, "--model", "openai/any", "--message", "x" * 2 * CONTEXT)
    holds(f"aider does not know that the context is full: {out[-600:]!r}", "token limit" in out)


def model_of(a, form):
    path = os.path.join(a.out, f"aider_{form}")
    with open(path + ".json", "w") as f:
        json.dump({"family": "coder", "template": "{% for m in messages %}{{ m.content }}\n{% endfor %}@",
                   "starts": ["@"], "context": CONTEXT, "pieces": ANSWERS[form]}, f)
    subprocess.run([a.models, path + ".gguf", path + ".json"], check=True)
    return path + ".gguf"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--only", help="the name of a session, without that of its form")
    a = p.parse_args()
    a.out = os.path.abspath(a.out)
    os.makedirs(a.out, mode=0o700, exist_ok=True)
    chat = functools.partial(change, a.out, "whole", "chat", "openai/any", "/v1", ["--stream"])
    sessions = {"whole": {"chat": chat,
                          "chat_whole": functools.partial(change, a.out, "whole", "chat_whole", "openai/any", "/v1",
                                                          ["--no-stream"]),
                          "ollama": functools.partial(change, a.out, "whole", "ollama", "ollama_chat/any", "", []),
                          "messages": functools.partial(change, a.out, "whole", "messages", "anthropic/any", "", []),
                          "full": functools.partial(full, a.out, "whole")},
                "diff": {"chat": functools.partial(change, a.out, "diff", "chat", "openai/any", "/v1", ["--stream"])}}
    good = [with_engine(f"aider_{form}", lambda path=model_of(a, form): Engine(path, a.libexec, a.out),
                        {name: session for name, session in of.items() if a.only in (None, name)})
            for form, of in sessions.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
