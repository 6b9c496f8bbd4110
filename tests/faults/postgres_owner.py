"""Owns a Postgres in a process of its own, which has no gRPC in it and may fork: `start` and `stop` on standard input.

Arguments: the folder, and the keyword arguments of EmbeddedPostgres as JSON. Answers each word with a JSON line.
"""

from __future__ import annotations

import json
import sys

from placet_server.embedded.server import EmbeddedPostgres


def main() -> None:
    folder, arguments = sys.argv[1], json.loads(sys.argv[2])
    postgres = EmbeddedPostgres(folder, **arguments)
    for line in sys.stdin:
        if line.strip() == "stop":
            postgres.stop()
            print("{}", flush=True)
        else:
            postgres = EmbeddedPostgres(folder, **arguments)
            postgres.start()
            print(json.dumps({"dsn": postgres.dsn}), flush=True)
    postgres.stop()


if __name__ == "__main__":
    main()
