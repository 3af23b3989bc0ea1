"""Starts the stub server, prints its process id, and waits to be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from hogwild_sgl.launch import server_process

STUB = Path(__file__).with_name("stub_server.py")
folder = Path(sys.argv[1])
for name in ("config.json", "tokenizer.json"):
    (folder / name).touch()
server_process.launch_command = lambda model, host, port, args, patched: [
    sys.executable,
    str(STUB),
    "--port",
    str(port),
]
server = server_process.ServerProcess(folder, log_path=folder / "log")
server.start()
print(server.pid, flush=True)
time.sleep(600)
