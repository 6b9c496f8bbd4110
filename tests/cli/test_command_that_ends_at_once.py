"""A forked command that ends before anybody has read which process it is, ends with its own exit code."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.warm import program_at


def test_its_process_and_its_code_come_as_one(tmp_path: Path) -> None:
    address, program = tmp_path / "line", tmp_path / "placet"
    program.write_text(program_at(str(address)), encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        with subprocess.Popen([sys.executable, "-IS", str(program)]) as asking:
            line, _ = listener.accept()
            with line:
                while line.recv(65536):
                    pass
                line.sendall(b"12345\n11")
        assert 11 == asking.returncode
