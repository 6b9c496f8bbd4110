"""`placet` for a folder of programs on the PATH, forked from a process that has everything imported already: the same
command line to its exit code, on the same standard streams, without the second that Python needs to begin.

The process is told each command by its Unix socket, and ends with its standard input. So does a command with TIED in
its environment.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import ServiceDescriptor

from tests.house.source_tree import ROOT

TIED = "WARM_COMMAND_ENDS_WITH_STDIN"

# What wraps these modules takes longer to import than Python to start.
_PROGRAM = """#!{python} -IS
import _signal, _socket, marshal, os, sys
line = _socket.socket(_socket.AF_UNIX)
line.connect({address!r})
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in range(3))
line.sendmsg([b"-"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
line.sendall(marshal.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))
line.shutdown(_socket.SHUT_WR)
told = b""
while b"\\n" not in told:
    told += line.recv(16) or sys.exit("no command could be begun")
process, code = told.split(b"\\n")
process = int(process)
for number in (_signal.SIGTERM, _signal.SIGINT):
    _signal.signal(number, lambda number, _: os.kill(process, number))
# Whatever ends at once has said both already.
while part := line.recv(16):
    code += part
sys.exit(int(code or 1))
"""


class Warm:
    """The process, and in `folder` the program that asks it."""

    def __init__(self, folder: Path) -> None:
        address = folder / "line"
        program = folder / "placet"
        program.write_text(program_at(str(address)), encoding="utf-8")
        program.chmod(0o755)
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(address)],
            cwd=ROOT,
            # As the command sets it, which is too late once gRPC is there.
            env=os.environ | {"GRPC_VERBOSITY": "NONE"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        self._process.communicate()


def program_at(address: str) -> str:
    return _PROGRAM.format(python=sys.executable, address=address)


def warm_up() -> None:
    """What a server imports, and which rules it compiles, when it first needs them, if not before."""
    import grpc._server  # noqa: F401
    import uvloop  # noqa: F401
    from google.protobuf.message_factory import GetMessageClass

    from placet_server import app, kernel_setup  # noqa: F401
    from placet_server.rpc import method
    from placet_server.rpc.validation import Validation
    from placet_server.telemetry import exposition  # noqa: F401

    collect = Validation()._validator.collect_violations
    for service in (each for each in vars(method).values() if isinstance(each, ServiceDescriptor)):
        for rpc in service.methods:
            collect(GetMessageClass(rpc.input_type)())


def warm_up_commands() -> None:
    """What a command imports when it first needs it, and how all of them are read from the command line."""
    import grpc._channel  # noqa: F401
    import rich.table  # noqa: F401

    import placet
    from placet_server.cli import document, failure, health, run_view, session  # noqa: F401
    from placet_server.cli import main as command_line

    for name in placet.__all__:
        getattr(placet, name)
    command_line._command()


def main(address: str) -> None:
    warm_up()
    warm_up_commands()
    # What is here is everybody's: nobody looks it through again, nor copies its pages by doing so.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        watched: list[int | socket.socket] = [0, listener]
        while 0 not in select.select(watched, [], [])[0]:
            line, _ = listener.accept()
            with line:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    try:
                        code = run(line)
                        line.sendall(str(code).encode())
                    finally:
                        os._exit(1)


def run(line: socket.socket) -> int:
    """In the child."""
    _, streams, _, _ = socket.recv_fds(line, 1, 3)
    told = b"".join(iter(lambda: line.recv(65536), b""))
    arguments, folder, environment = marshal.loads(told)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = ["placet", *arguments]
    line.sendall(b"%d\n" % os.getpid())
    from placet_server.cli import serve
    from placet_server.cli.main import main

    if environment.pop(TIED, ""):
        serve._end_with_stdin()
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
