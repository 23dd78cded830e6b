"""A process that has everything imported and forks a child for each job it reads: a fresh process in milliseconds.

Jobs are JSON lines on its input: ``kind`` (``run``, ``resume``, ``replay``), ``folder``, ``out`` and options. It
prints the child's pid, and when the child has ended, its wait status. The outcome is written to ``out``.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import romanesco
from romanesco import Budget, Outcome
from romanesco._codec import from_json, to_json
from romanesco.models import OpenAICompatible
from romanesco.testing import Chain, FakeServer, Members, NgramEmbedder, Tree
from tests.support import config_in

TOPOLOGIES = {"members": Members, "chain": Chain, "tree": Tree}


def model_of(job: dict[str, Any]) -> Any:
    """The model by name, or an adapter that opens as many connections as the job has calls at once."""
    url = job.get("url")
    if url is None or "connections" not in job:
        return f"{url}#fake" if url else None
    return OpenAICompatible(name=f"{url}#fake", model="fake", base_url=url, max_connections=job["connections"])


async def work(job: dict[str, Any]) -> Outcome:
    config = config_in(Path(job["folder"]), **job.get("config", {}))
    options: dict[str, Any] = {
        "config": config,
        "budget": from_json(Budget, job.get("budget", {})),
        "embedder": NgramEmbedder(),
    }
    if job["kind"] == "run":
        topology = TOPOLOGIES.get(job["topology"])
        options["topology"] = topology() if topology else job["topology"]
        return await romanesco.run(
            job.get("goal", "say something"),
            model=model_of(job),
            params=job.get("params", {}),
            run=job.get("run", "r"),
            **options,
        )
    options["topologies"] = [kind() for kind in TOPOLOGIES.values()]
    options["model"] = model_of(job)
    if job["kind"] == "replay":
        del options["budget"]
        return await romanesco.replay(job.get("run", "r"), **options)
    return await romanesco.resume(job.get("run", "r"), **options)


def child(job: dict[str, Any]) -> None:
    if "file_limit" in job:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_limit"], job["file_limit"]))
    for name, value in job.get("env", {}).items():
        os.environ[name] = value
    outcome = asyncio.run(work(job))
    Path(job["out"]).write_text(json.dumps(to_json(outcome)), encoding="utf-8")


async def warm_up() -> None:
    """Whatever is imported or built lazily is there before the first fork."""
    with tempfile.TemporaryDirectory() as folder:
        async with FakeServer() as server:
            await work({"kind": "run", "folder": folder, "topology": "tree", "url": server.url})
            await work({"kind": "resume", "folder": folder})


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    asyncio.run(warm_up())
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(json.loads(line))
                code = 0
            except BaseException:  # noqa: BLE001 - the child ends here, whatever happened
                traceback.print_exc()
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
